/**
 * Sample source for clients: callers open episodes, call the model and set rewards; ClientGroups puts the episodes into groups for
 * training.
 *
 * A group is complete when `rollout.n` of its episodes have a reward. Steps take groups in the order in which they became complete.
 * Generation is paused from the moment a step has its groups until the new weights are in place. Open calls then continue after their last
 * token under the new weights. For every token the version of the weights that sampled it is stored.
 */

import { type DeviceLostError, InputError } from '../../errors.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { writesSchemas } from '../../rollout/agent/prompt.ts';
import { toolParserOf } from '../../rollout/tools/parser.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { generateOptions } from '../../grpo/generate/options.ts';
import { withLowered } from '../../grpo/generate/trainingSet.ts';
import { NothingInFlight } from '../../grpo/pipeline/nothingInFlight.ts';
import { staleShare } from '../pipelines/index.ts';
import type { GeneratedStep, SampleSource } from '../../grpo/generate/samples.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import { ApiError } from './api/apiError.ts';
import type { CallRequest, ServedModel } from './api/request.ts';
import {
  type Group,
  hasEqualReplies,
  keyOf,
  RandomStreams,
  restoreGroup,
  samplesOf,
  saveGroup,
  stalenessMax,
} from './group.ts';
import { Hints } from './hints.ts';
import { decodeEpisodes, encodeEpisodes, type SavedEpisodes } from './saved.ts';
import { checkConfig, type ClientLimits, COUNTED, NO_TASK } from './settings.ts';
import { CallTemplate } from './template.ts';
import { ClientTrajectory, type TrajectoryHost, type TrajectoryOptions } from './trajectory.ts';
import { startTimer } from '../../tasks/timer.ts';

/** Returns the error with which every call fails after the end of the run. */
export const runOverError = (): ApiError =>
  new ApiError('The run has ended and accepts no more episodes.', { status: 503, code: 'run_over' });

/** Collects the episodes of clients into groups, and passes complete groups to the trainer. */
export class ClientGroups extends NothingInFlight implements SampleSource {
  readonly inFlight = this;
  /** Name, temperature and vocabulary size of the model, against which requests are validated. */
  readonly served: ServedModel;
  readonly #config: TrainConfig;
  #engine: TrainerEngine;
  readonly #limits: Required<Omit<ClientLimits, 'toolParser' | 'strict'>>;
  readonly #host: TrajectoryHost;
  /**
   * Groups that still need episodes or rewards. There can be several of one key, if more than `rollout.n` episodes of that key are open.
   */
  #incomplete: Group[] = [];
  readonly #groupOf = new Map<ClientTrajectory, Group>();
  #complete: Group[] = [];
  /** The groups and counters that the current step has taken. They are put back if the step fails. */
  #currentStep: { step: number; groups: Group[]; requestedGroups: number | undefined; counts: Metrics } | undefined;
  /** Controller of the signal that aborts when the engine's GPU device is lost. */
  #deviceLost = new AbortController();
  #requestedGroups: number | undefined;
  #nextGroupNumber = 0;
  #version = 0;
  readonly #streams = new RandomStreams();
  #counts: Metrics = {};
  readonly #hints: Hints;
  #isEqualNoted = false;
  /** True from a step's start until generation resumes under the new weights. */
  #isPaused = false;
  /** True once an episode has had a reward, or once a note was printed that none has. */
  #isTold = false;
  /** Number of calls in flight, time of its last change, and seconds with at least one call since the last step. */
  readonly #generating = { calls: 0, since: 0, seconds: 0 };
  readonly #waiters: (() => void)[] = [];
  #closed = false;

  /** Throws InputError for settings that work only if the trainer generates the samples itself. */
  constructor(asked: TrainConfig, engine: TrainerEngine, limits: ClientLimits = {}) {
    super();
    const config = withLowered(asked, engine.lowered?.values);
    checkConfig(config);
    const { timeoutS = 600, maxTrajectories = 4096, stepWhen = 'complete', outlives = false } = limits;
    const { note = () => {} } = limits;
    this.#config = config;
    this.#engine = engine;
    this.#limits = { timeoutS, maxTrajectories, stepWhen, outlives, note };
    const toolParser = limits.toolParser ?? toolParserOf(config.rollout.multiTurn.format);
    const { sampling, agent } = generateOptions({ config, engine, task: NO_TASK, toolParser }, 0, 1);
    const { tokenizer, rollout, model } = engine;
    const { stop, includeStopStrInOutput = false } = sampling;
    this.served = {
      name: config.name,
      temperature: config.rollout.temperature,
      vocabSize: model.config.vocabSize,
      eosTokens: tokenizer.eosTokenIds.length + (toolParser.stopToken === undefined ? 0 : 1),
      ...(stop && { stop: { stop, includeStopStrInOutput } }),
      ...(limits.strict && { strict: true }),
    };
    this.#hints = new Hints(this.served, note);
    this.#host = {
      engine: rollout,
      lost: this.#deviceLost.signal,
      engineReady: (signal) => this.#engineReady(signal),
      template: new CallTemplate(tokenizer, toolParser, writesSchemas(config.rollout, tokenizer)),
      sampling,
      constrainToolCalls: agent?.constrainToolCalls ?? false,
      maxPromptLength: config.data.maxPromptLength,
      maxResponseLength: config.data.maxResponseLength,
      timeoutMs: timeoutS * 1000,
      count: (metric) => (this.#counts[metric] = (this.#counts[metric] ?? 0) + 1),
      takeHints: (names) => this.#hints.take(names),
      inFlight: (calls) => {
        this.#noteCalls(calls);
        if (calls < 0 && !this.#isTold) this.#noteUnrewarded();
      },
      join: (trajectory, request) => this.#join(trajectory, request),
      onEnd: (trajectory) => this.#onEnd(trajectory),
    };
  }

  /** Creates an episode. Its first call assigns it to a group. */
  open(options: TrajectoryOptions = {}): ClientTrajectory {
    if (this.#closed) throw runOverError();
    return new ClientTrajectory(this.#host, options);
  }

  /** Episodes that are open or wait for their step, in the order of their first calls. */
  get episodes(): ClientTrajectory[] {
    return [...this.#groupOf.keys()];
  }

  /** Number of `episodes`. */
  get size(): number {
    return this.#groupOf.size;
  }

  /** True if the episode is open or waiting for its step. */
  has(trajectory: ClientTrajectory): boolean {
    return this.#groupOf.has(trajectory);
  }

  /** Number of open episodes without a call in flight in which at least one call was answered. */
  get unrewarded(): number {
    return this.episodes.filter(({ state, isIdle }) => state === 'open' && isIdle).length;
  }

  /** For each request field that was accepted but has no effect: the number of requests that had it. */
  get hints(): Record<string, number> {
    return this.#hints.counts;
  }

  /** Number of complete groups. */
  get complete(): number {
    return this.#complete.length;
  }

  /** Number of groups that still need episodes or rewards. */
  get incomplete(): number {
    return this.#incomplete.length;
  }

  #advance(version: number): void {
    this.#version = version;
    this.#streams.advance(version, this.#incomplete);
  }

  /** Version of the weights: the number of updates so far. */
  get version(): number {
    return this.#version;
  }

  /** Chat template, tokenizer and parser of tool calls, for requests and replies. */
  get template(): CallTemplate {
    return this.#host.template;
  }

  /**
   * Returns the open episodes of a client that could belong to one group with the request: same `group` name if there is one, otherwise the
   * same first messages and tools.
   */
  openEpisodesLike(request: CallRequest, group?: string, owner?: string): ClientTrajectory[] {
    const key = keyOf(request, group);
    const groups = this.#incomplete.filter((one) => one.key === key && one.owner === owner);
    return groups.flatMap(({ members }) => [...members]).filter(({ state }) => state === 'open');
  }

  /**
   * Drops a client's episodes that are open or wait for their group to become complete. Calls in flight end with an error. Returns the
   * number of dropped episodes.
   * @param owner client; undefined = all clients
   * @param complete true to drop complete groups as well
   */
  reset(owner?: string, complete = false): number {
    const isOwn = (group: Group) => owner === undefined || group.owner === owner;
    const before = this.size;
    const reason = new ApiError('The episode was dropped by POST /v1/reset. Start another one.', { status: 409 });
    for (const group of this.#incomplete.filter(isOwn)) {
      for (const one of [...group.members]) one.abort(reason);
      this.#drop(group, 'client/dropped_trajectories');
    }
    const dropped = complete ? this.#complete.filter(isOwn) : [];
    for (const group of dropped) this.#drop(group, 'client/dropped_trajectories');
    this.#complete = this.#complete.filter((group) => !dropped.includes(group));
    return before - this.size;
  }

  /**
   * Waits until this number of groups is complete. Resolves to false if `signal` aborts or the run ends first. Rejects if the GPU device is
   * lost.
   */
  wait(groups: number, signal?: AbortSignal): Promise<boolean> {
    return this.#waitForGroups(() => groups, signal);
  }

  async #waitForGroups(groups: () => number, signal?: AbortSignal): Promise<boolean> {
    const { signal: deviceLost } = this.#deviceLost;
    const isMet = await this.#waitUntil(() => deviceLost.aborted || this.#complete.length >= groups(), signal);
    deviceLost.throwIfAborted();
    return isMet;
  }

  async #waitUntil(condition: () => boolean, signal?: AbortSignal): Promise<boolean> {
    const stopListening = signal && onAbort(signal, () => this.#notifyWaiters());
    while (!condition() && !this.#closed && !signal?.aborted)
      await new Promise<void>((wake) => this.#waiters.push(wake));
    stopListening?.();
    return condition();
  }

  /** Sets the number of complete groups that the next step takes. Default: data.trainBatchSize. */
  requestStep(groups: number | undefined): void {
    this.#requestedGroups = groups;
    this.#notifyWaiters();
  }

  /** Waits until enough groups for the next step are complete. Resolves to false if `stop` aborts first. */
  override async ready(stop: AbortSignal): Promise<boolean> {
    await this.run();
    const defaultGroups = this.#limits.stepWhen === 'complete' ? this.#config.data.trainBatchSize : Infinity;
    return this.#waitForGroups(() => this.#requestedGroups ?? defaultGroups, stop);
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { rollout } = this.#engine;
    this.#currentStep = undefined;
    const count = this.#requestedGroups ?? this.#config.data.trainBatchSize;
    if (this.#complete.length < count)
      throw new InputError(
        `The step needs ${count} complete groups, but only ${this.#complete.length} are complete. Reward more episodes first.`,
      );
    const groups = this.#complete.splice(0, count);
    this.#currentStep = { step, groups, requestedGroups: this.#requestedGroups, counts: this.#counts };
    this.#requestedGroups = undefined;
    for (const { rewarded } of groups) for (const one of rewarded) this.#groupOf.delete(one);
    this.#isPaused = true;
    await rollout.pause();
    const samples = groups.flatMap((group, i) => samplesOf(group, i));
    this.#advance(step);
    this.#noteCalls(0);
    const stats = await rollout.takeStats();
    const { seconds: genSeconds } = this.#generating;
    this.#generating.seconds = 0;
    const metrics = {
      ...Object.fromEntries(COUNTED.map((name) => [name, this.#counts[name] ?? 0])),
      'client/trajectories': groups.reduce((sum, { rewarded }) => sum + rewarded.length, 0),
      'client/open_trajectories': this.size,
      'client/complete_groups': this.#complete.length,
      'client/staleness_max': stalenessMax(samples, step),
      'training/stale_tokens_share': staleShare(samples),
    };
    this.#counts = {};
    const seconds = { tools: 0, reward: 0 };
    return { samples, seconds, genSeconds, stats, metrics };
  }

  /** Adds the episodes of a checkpoint. If `state` is undefined, puts back the groups and counters that a failed step had taken. */
  override restore(state: unknown, { vocabSize }: { vocabSize: number }): void {
    if (state === undefined) this.#putBack();
    else this.#restoreEpisodes(state, vocabSize);
  }

  #putBack(): void {
    if (!this.#currentStep) return;
    const { step, groups, requestedGroups, counts } = this.#currentStep;
    this.#currentStep = undefined;
    this.#complete.unshift(...groups);
    for (const group of groups) for (const one of group.rewarded) this.#groupOf.set(one, group);
    this.#requestedGroups ??= requestedGroups;
    for (const [name, count] of Object.entries(counts)) this.#counts[name] = (this.#counts[name] ?? 0) + count;
    if (this.#version === step) this.#version--; // a device loss has reset it to 0
  }

  /** Returns all groups, complete or not, as plain JSON. */
  override save(): Promise<unknown> {
    const open = this.#incomplete.map((group) => saveGroup(group, false));
    const groups = [...this.#complete.map((group) => saveGroup(group, true)), ...open];
    const state: SavedEpisodes = {
      version: this.#version,
      number: this.#nextGroupNumber,
      streams: this.#streams.save(),
      counts: { ...this.#counts },
      groups: groups.filter(({ members }) => members.length > 0),
    };
    return Promise.resolve(encodeEpisodes(state));
  }

  /**
   * Adds the episodes of a checkpoint, except those that are still in memory in a newer state. Restored open episodes are aborted, unless
   * clients are other processes (`limits.outlives`), which can continue them.
   */
  #restoreEpisodes(state: unknown, vocabSize: number): void {
    const { version, number, counts, groups, streams } = decodeEpisodes(state, vocabSize);
    this.#advance(version);
    if (this.#deviceLost.signal.aborted && this.#nextGroupNumber > 0) return; // after a device loss, all episodes are still in memory; see `attach`
    const given = groups.flatMap(({ members }) => members.map(({ key: [, stream] }) => stream));
    this.#streams.restore(streams ?? { version, given }, this.#incomplete); // older checkpoints have no streams
    this.#nextGroupNumber = Math.max(this.#nextGroupNumber, number);
    this.#counts = { ...counts };
    const inMemory = new Set(this.episodes.map(({ id }) => id));
    for (const saved of groups) {
      const { key, isComplete } = saved;
      const missing = saved.members.filter(({ id }) => !inMemory.has(id));
      const episodes = missing.map((one) => ClientTrajectory.restore(this.#host, one));
      if (episodes.length === 0) continue;
      // The stored group can still be in memory with other episodes. That group keeps its random stream, so the restored one gets a new
      // stream.
      const isInMemory = [...this.#groupOf.values()].some((group) => group.number === saved.number);
      const stream = isInMemory ? this.#streams.take(key, version, this.#nextGroupNumber++) : saved.members[0].key[1];
      const group = restoreGroup(saved, stream, episodes);
      for (const one of episodes) this.#groupOf.set(one, group);
      (isComplete ? this.#complete : this.#incomplete).push(group);
      if (group.rewarded.length === episodes.length && !isComplete) this.#waitForMore(group);
      if (!this.#limits.outlives) for (const one of episodes) one.abort();
    }
    this.#notifyWaiters();
  }

  /** Handles the loss of the engine's GPU device: open calls and the wait for a step reject with `error`. New calls wait for `attach`. */
  handleDeviceLoss(engine: TrainerEngine, error: DeviceLostError): void {
    if (this.#closed || engine !== this.#engine || this.#deviceLost.signal.aborted) return;
    this.#version = 0; // restoring a checkpoint sets another
    this.#deviceLost.abort(error);
    this.#notifyWaiters();
  }

  /**
   * Continues on a new engine with restored weights. After a device loss, open episodes and complete groups are still in memory. An episode
   * that a step has trained on is not used again, even if the restored checkpoint is older than that step.
   */
  attach(engine: TrainerEngine): void {
    if (engine === this.#engine) return;
    this.#engine = engine;
    this.#deviceLost = new AbortController();
    Object.assign(this.#host, { engine: engine.rollout, lost: this.#deviceLost.signal });
    this.#notifyWaiters();
  }

  async #engineReady(signal?: AbortSignal): Promise<void> {
    await this.#waitUntil(() => !this.#deviceLost.signal.aborted, signal);
    if (this.#closed) throw runOverError();
  }

  /** Resumes generation. */
  async run(): Promise<void> {
    this.#isPaused = false;
    await this.#engine.rollout.resume();
  }

  /** Runs an evaluation. Calls of clients continue meanwhile. Afterwards, generation is paused again if the pause has not ended. */
  override async evaluate<T>(run: (onQueued: () => Promise<void>) => Promise<T>): Promise<T> {
    const { rollout } = this.#engine;
    try {
      return await run(async () => rollout.resume());
    } finally {
      if (this.#isPaused) await rollout.pause(); // `run` can have ended the pause during the evaluation
    }
  }

  /** Ends the run: aborts all open episodes and ends steps that wait for groups. Call it once. */
  async end(): Promise<void> {
    this.#closed = true;
    await this.run(); // a paused engine would never end the aborted calls
    for (const trajectory of [...this.#groupOf.keys()]) trajectory.abort(runOverError());
    for (const group of this.#incomplete) clearTimeout(group.timer);
    this.#notifyWaiters();
  }

  #join(trajectory: ClientTrajectory, request: CallRequest): [number, number, number] {
    const { maxTrajectories } = this.#limits;
    if (this.#closed) throw runOverError();
    if (this.#groupOf.size >= maxTrajectories)
      throw new ApiError(
        `The limit of ${maxTrajectories} open or waiting episodes is reached. Reward or abort some, or train a step, then retry.`,
        { status: 429, code: 'too_many_trajectories' },
      );
    const key = keyOf(request, trajectory.groupName);
    const { owner } = trajectory;
    const hasPlace = (one: Group) =>
      one.key === key && one.owner === owner && one.members.size < this.#config.rollout.n;
    let group = this.#incomplete.find(hasPlace);
    if (!group) {
      const number = this.#nextGroupNumber++;
      const stream = this.#streams.take(key, this.#version, number);
      group = {
        key,
        number,
        stream,
        members: new Set(),
        rewarded: [],
        joined: 0,
        ...(owner !== undefined && { owner }),
      };
      this.#incomplete.push(group);
    }
    clearTimeout(group.timer);
    group.members.add(trajectory);
    this.#groupOf.set(trajectory, group);
    return [this.#config.seed, group.stream, group.joined++];
  }

  #onEnd(trajectory: ClientTrajectory): void {
    const group = this.#groupOf.get(trajectory);
    if (!group) return;
    if (trajectory.state === 'rewarded') {
      group.rewarded.push(trajectory);
      this.#isTold = true;
    } else {
      group.members.delete(trajectory);
      this.#groupOf.delete(trajectory);
    }
    if (group.rewarded.length === this.#config.rollout.n) this.#close(group);
    else if (group.members.size === 0) this.#forget(group);
    else if (group.rewarded.length === group.members.size) this.#waitForMore(group);
  }

  /**
   * Called when all members of a group have a reward but there are fewer than `rollout.n`. Waits `timeoutMs` for more episodes, then closes
   * the group.
   */
  #waitForMore(group: Group): void {
    clearTimeout(group.timer);
    group.timer = startTimer(() => {
      if (group.rewarded.length > 1) {
        this.#host.count('client/short_groups');
        return this.#close(group);
      }
      this.#drop(group, 'client/lost_trajectories'); // a single trajectory has nothing to be compared with
    }, this.#host.timeoutMs);
  }

  /** Drops a group and its rewarded episodes, which `metric` counts. */
  #drop(group: Group, metric: 'client/dropped_trajectories' | 'client/lost_trajectories'): void {
    for (const one of group.rewarded) {
      this.#host.count(metric);
      this.#groupOf.delete(one);
    }
    this.#forget(group);
  }

  #close(group: Group): void {
    this.#forget(group);
    if (hasEqualReplies(group)) this.#noteEqualReplies(group);
    this.#complete.push(group);
    this.#notifyWaiters();
  }

  #forget(group: Group): void {
    clearTimeout(group.timer);
    this.#incomplete = this.#incomplete.filter((other) => other !== group);
  }

  /** Prints a note, once, if as many episodes wait for a reward as a step needs and no episode has had a reward so far. */
  #noteUnrewarded(): void {
    const { data, rollout } = this.#config;
    if (this.size < data.trainBatchSize * rollout.n || this.unrewarded < data.trainBatchSize * rollout.n) return;
    this.#isTold = true;
    this.#limits.note(
      `${this.unrewarded} ${this.unrewarded === 1 ? 'episode is answered and waits' : 'episodes are answered and wait'} for a reward, and none had one so far`,
    );
  }

  #noteEqualReplies({ rewarded }: Group): void {
    this.#host.count('client/equal_groups');
    if (this.#isEqualNoted) return;
    this.#isEqualNoted = true;
    this.#limits.note(
      `a group of ${rewarded.length} episodes has equal replies, so it teaches nothing (counted in client/equal_groups). ` +
        'Leave "seed" out of requests if they give one.',
    );
  }

  /** Changes the number of calls in flight, and updates the seconds with at least one call. */
  #noteCalls(more: number): void {
    const now = performance.now() / 1000;
    const generating = this.#generating;
    if (generating.calls > 0) generating.seconds += now - generating.since;
    generating.since = now;
    generating.calls += more;
  }

  #notifyWaiters(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}

/**
 * One episode of an agent: all of its model calls, with tokens, loss masks, log-probs and weight versions, and one reward at the end. A
 * call whose messages extend an earlier call continues the token sequence of that call. Any other call starts a new sequence (a fork).
 */

import { onAbort } from '../../rollout/tools/onAbort.ts';
import type { Generation, RolloutEngine, SamplingParams } from '../../rollout/types.ts';
import { callConstraint } from '../../rollout/tools/parser.ts';
import type { Reward } from '../../tasks/task.ts';
import { randomKey } from '../../grpo/generate/samples.ts';
import { ApiError, refuse } from './api/apiError.ts';
import { type ChatMessage, firstMessages } from './api/messages.ts';
import { type Answer, type ReadReply, randomId, readReply } from './api/reply.ts';
import type { CallRequest } from './api/request.ts';
import { readReward, type RewardOptions } from './api/reward.ts';
import { ofItsSampler } from './ofItsSampler.ts';
import type { SavedTrajectory } from './saved.ts';
import { freeNumber, Sequence } from './sequence.ts';
import type { CallTemplate } from './template.ts';
import { startTimer } from '../../tasks/timer.ts';

/** The parts of a run that its trajectories use. */
export interface TrajectoryHost {
  engine: RolloutEngine;
  /** Aborts when the engine's GPU device is lost; its reason is the error. Calls in flight then reject. */
  lost: AbortSignal;
  /** Resolves when there is an engine again after a device loss, or when `signal` aborts. Throws ApiError if the run has ended. */
  engineReady(signal: AbortSignal | undefined): Promise<void>;
  template: CallTemplate;
  /** The run's sampling parameters; `maxNewTokens` = data.maxResponseLength. */
  sampling: SamplingParams;
  constrainToolCalls: boolean;
  maxPromptLength: number;
  maxResponseLength: number;
  /** An episode without a call in flight is aborted after this many milliseconds. */
  timeoutMs: number;
  /** Adds 1 to a metric of the current step. */
  count(metric: string): void;
  /** Counts the fields of a request that are accepted but have no effect. */
  takeHints(names: readonly string[]): void;
  /** Changes the number of calls in flight by 1 or -1. */
  inFlight(calls: 1 | -1): void;
  /**
   * Called before the first call of a trajectory: assigns it to a group, and returns the first parts of its random keys. Throws ApiError if
   * too many episodes are open.
   */
  join(trajectory: ClientTrajectory, request: CallRequest): [seed: number, group: number, member: number];
  /** Called when the trajectory gets its reward or is aborted. */
  onEnd(trajectory: ClientTrajectory): void;
}

/** Options of a new episode. */
export interface TrajectoryOptions {
  /** Name of the group. Rewards are compared within a group. Default: episodes with the same first messages and tools form a group. */
  group?: string | undefined;
  /** Name by which clients can refer to the episode, in addition to its id. */
  name?: string | undefined;
  /** Client that owns the episode. All episodes of a group have the same owner. */
  owner?: string | undefined;
  /** Aborts the episode when this signal aborts. */
  signal?: AbortSignal | undefined;
}

interface CallOptions {
  /** Cancels the call and drops its tokens. The call can then be repeated. */
  signal?: AbortSignal | undefined;
  /**
   * Called with newly sampled tokens.
   * @param choice index of the reply, if the request asks for several (`n`)
   */
  onTokens?: ((ids: readonly number[], choice: number) => void) | undefined;
}

/** An episode: its model calls and its reward. */
export class ClientTrajectory {
  /** Unique id. The id of every completion of the episode contains it. */
  readonly id: string;
  /** Name of the group, from the options. */
  readonly groupName: string | undefined;
  /** Name from the options. */
  readonly name: string | undefined;
  /** Owner from the options. */
  readonly owner: string | undefined;
  /** 'open' until the episode gets its reward or is aborted. */
  state: 'open' | 'rewarded' | 'aborted' = 'open';
  /** Messages of the first call up to, not including, the first assistant message. */
  start: readonly ChatMessage[] = [];
  /** The reward; undefined before `reward` is called. */
  result: Reward | undefined;
  readonly #host: TrajectoryHost;
  /** Token sequences, in the order of their first calls. */
  readonly #sequences: Sequence[] = [];
  /** Request id of each sequence in the engine. */
  readonly #requestIds = new Map<Sequence, string>();
  readonly #ending = new AbortController();
  readonly #stopListening: (() => void) | undefined;
  #key: [number, number, number] | undefined;
  #calls = 0;
  #underWay = 0;
  /** Error with which calls reject after an abort. */
  #reason: ApiError | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(host: TrajectoryHost, { group, name, owner, signal }: TrajectoryOptions = {}, id = randomId()) {
    this.#host = host;
    this.id = id;
    this.groupName = group;
    this.name = name;
    this.owner = owner;
    this.#stopListening = signal && onAbort(signal, () => this.abort());
    if (signal?.aborted) this.abort();
  }

  /** Creates an episode from the result of `save`. If it was open, it waits for its next call. */
  static restore(host: TrajectoryHost, { id, group, name, owner, start, key, result, sequences }: SavedTrajectory) {
    const episode = new ClientTrajectory(host, { group, name, owner }, id);
    episode.start = start;
    episode.#key = key;
    episode.#sequences.push(...sequences.map((saved, number) => Sequence.restore({ number, ...saved })));
    episode.result = result;
    if (result) episode.state = 'rewarded';
    episode.#rest();
    return episode;
  }

  /**
   * Returns the state of the episode, with the tokens of all answered calls. Undefined if no call was answered, or if the episode was
   * aborted.
   */
  save(): SavedTrajectory | undefined {
    const { id, groupName: group, name, owner, start, result } = this;
    const sequences = this.#sequences.flatMap((sequence) => sequence.save() ?? []);
    if (sequences.length === 0 || this.state === 'aborted') return undefined;
    const names = {
      ...(group !== undefined && { group }),
      ...(name !== undefined && { name }),
      ...(owner !== undefined && { owner }),
    };
    return { id, ...names, start: [...start], key: this.#key!, ...(result && { result }), sequences };
  }

  /**
   * Sets the reward and ends the episode. Throws ApiError if the episode already has a reward, if a call is in flight, if no call was
   * answered, or if a number is invalid.
   */
  reward(score: number, options: RewardOptions = {}): void {
    this.#expectOpen();
    if (this.#underWay > 0)
      throw new ApiError('A call is in flight. Give the reward when it is answered, or abort it first.', {
        status: 409,
      });
    const rows = this.rows();
    if (rows.length === 0) throw new ApiError('No call was answered, so there is nothing to reward.', { status: 409 });
    this.result = readReward(score, options, rows);
    this.#end('rewarded');
  }

  /**
   * Aborts the episode: calls in flight end, their slots are freed, and the episode is not trained on.
   * @param reason error with which these calls reject
   */
  abort(reason?: ApiError): void {
    if (this.state !== 'open') return;
    this.#reason = reason;
    this.#host.count('client/dropped_trajectories');
    this.#end('aborted');
  }

  /** True if at least one call was answered and none is in flight. */
  get isIdle(): boolean {
    return this.#underWay === 0 && this.#sequences.length > 0;
  }

  /** Returns the rows to train on: one per sequence in which a reply was sampled. */
  rows(): { sequence: Sequence; trajectory: ReturnType<Sequence['trajectory']> }[] {
    return this.#sequences
      .map((sequence) => ({ sequence, trajectory: sequence.trajectory() }))
      .filter(({ trajectory }) => trajectory.numTurns > 0);
  }

  /**
   * Returns the sequence whose conversation is the longest beginning of the request's messages, and the index of the last reply in that
   * beginning. Of equal ones, a sequence that ends with this reply is preferred. Also returns a `rank`, by which the matches of several
   * episodes can be compared.
   */
  match({
    messages,
    toolsKey,
  }: CallRequest): { sequence: Sequence; index: number; isLast: boolean; rank: number } | undefined {
    const found = this.#sequences.flatMap((sequence) => {
      const index = sequence.matches(messages, toolsKey);
      if (index < 0) return [];
      const isLast = index === sequence.replies.length - 1 && !sequence.isBusy;
      return [{ sequence, index, isLast, rank: 2 * sequence.replies[index].messages + (isLast ? 1 : 0) }];
    });
    return found.find(({ rank }) => found.every((other) => other.rank <= rank));
  }

  /** Calls the model for one reply. Throws ApiError, and rethrows errors of the engine. */
  async call(request: CallRequest, options: CallOptions = {}): Promise<Answer> {
    const [answer] = await this.choices({ ...request, n: 1 }, options);
    return answer;
  }

  /**
   * Calls the model for `n` replies. The first continues the conversation, each of the others starts a fork. If one fails, all are dropped.
   * Throws like `call`.
   */
  async choices(request: CallRequest, options: CallOptions = {}): Promise<[Answer, ...Answer[]]> {
    const { signal } = options;
    this.#expectOpen(signal);
    this.#key ??= this.#host.join(this, request);
    if (this.start.length === 0) this.start = firstMessages(request.messages);
    clearTimeout(this.#timer);
    this.#underWay++;
    this.#host.inFlight(1);
    try {
      if (this.#host.lost.aborted) await this.#host.engineReady(signal);
      this.#expectOpen(signal);
      this.#host.takeHints(request.hints ?? []);
      return await this.#choices(request, options);
    } finally {
      this.#underWay--;
      this.#host.inFlight(-1);
      this.#rest();
    }
  }

  #expectOpen(signal?: AbortSignal): void {
    if (this.state !== 'open') throw this.#isOver();
    if (signal?.aborted) throw this.#aborted();
  }

  async #choices(request: CallRequest, options: CallOptions): Promise<[Answer, ...Answer[]]> {
    const { template, count } = this.#host;
    const rendered = template.render(request.messages, request.tools);
    const places: Place[] = [];
    const failed = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal;
    try {
      for (let choice = 0; choice < (request.n ?? 1); choice++) places.push(this.#open(request, rendered));
      const generating = places.map(async ({ sequence, contextIds }, choice) => {
        const generation = await this.#generate(sequence, contextIds, { ...request, choice }, { ...options, signal });
        if (generation.stopReason === 'aborted') throw this.#aborted();
        return generation;
      });
      for (const one of generating) one.catch(() => failed.abort());
      await Promise.allSettled(generating); // also waits for calls that end because another one failed
      const generations = await Promise.all(generating);
      const answers = generations.map((generation, choice): Answer => {
        const reply = readReply(template.tokenizer, generation, request, template.toolParser);
        const { sequence, contextIds, counted } = places[choice];
        this.#record(sequence, generation, reply, request, rendered);
        count('client/calls');
        if (counted) count(counted);
        if (reply.unreadable > 0) count('client/unreadable_calls');
        return { generation, reply, contextIds };
      });
      return answers as [Answer, ...Answer[]]; // n is at least 1
    } catch (error) {
      count(options.signal?.aborted || this.state !== 'open' ? 'client/aborted_calls' : 'client/failed_calls');
      for (const { sequence, before, isNew } of places) {
        sequence.cutTo(before);
        this.#release(sequence); // its cache holds tokens that were truncated
        if (isNew) this.#sequences.splice(this.#sequences.indexOf(sequence), 1);
      }
      throw error;
    } finally {
      for (const { sequence } of places) {
        sequence.isBusy = false;
        if (this.state !== 'open') this.#release(sequence);
      }
    }
  }

  /** Prepares a sequence for a reply: appends the tokens of the messages before the reply, and marks the sequence as busy. */
  #open(request: CallRequest, rendered: string): Place {
    const { sequence, said, counted } = this.#place(request, rendered);
    const isNew = !this.#sequences.includes(sequence);
    if (isNew) {
      sequence.number = freeNumber(this.#sequences);
      this.#sequences.push(sequence);
    }
    const before = sequence.length;
    sequence.isBusy = true;
    sequence.push({ responseIds: said });
    return { sequence, counted, before, isNew, contextIds: sequence.contextIds };
  }

  #record(sequence: Sequence, generation: Generation, reply: ReadReply, request: CallRequest, rendered: string): void {
    const { template } = this.#host;
    const { stopReason, tokenIds } = generation;
    sequence.draw(ofItsSampler(generation, request, this.#host.sampling));
    sequence.messages.splice(0, Infinity, ...request.messages, messageOf(reply));
    const last = tokenIds.at(-1);
    const isEnd = stopReason === 'stop' && [...template.tokenizer.eosTokenIds, template.stopTokenId].includes(last);
    sequence.replies.push({
      call: this.#sequences.reduce((answered, { ownReplies }) => answered + ownReplies.length, 0),
      messages: sequence.messages.length,
      tokens: sequence.length,
      rendered,
      content: reply.content,
      calls: reply.calls.map(({ id, name }) => ({ id, name })),
      isOpen: !isEnd,
      endToken: isEnd ? last : undefined,
      stopReason,
    });
  }

  /** Returns the sequence that a request extends, or a new sequence, and the tokens of the messages to append. */
  #place(request: CallRequest, rendered: string): Extended {
    const { template, maxPromptLength, maxResponseLength } = this.#host;
    const { messages, tools, toolsKey } = request;
    const found = this.match(request);
    if (found) {
      const { sequence, index, isLast } = found;
      const reply = sequence.replies[index];
      const rest = messages.slice(reply.messages);
      if (template.canFollow(reply, rest) && template.keeps(reply, rendered)) {
        const target = isLast ? sequence : sequence.branch(index);
        const said = target.continuation(rest, template);
        if (said && target.length + said.length < maxResponseLength) {
          return { sequence: target, said, counted: isLast ? 'client/continuations' : 'client/forks' };
        }
      }
    }
    const sequence = Sequence.start(template.encode(messages, tools), maxPromptLength, toolsKey);
    return { sequence, said: new Uint32Array(0), counted: this.#sequences.length > 0 ? 'client/forks' : undefined };
  }

  async #generate(
    sequence: Sequence,
    contextIds: Uint32Array,
    request: CallRequest & { choice: number },
    { signal, onTokens }: CallOptions,
  ): Promise<Generation> {
    const { choice } = request;
    const { engine, lost, maxResponseLength, maxPromptLength } = this.#host;
    const left = maxResponseLength - sequence.length;
    if (left < 1)
      throw refuse(
        'messages',
        `The messages have ${contextIds.length} tokens, but a context holds ${maxPromptLength + maxResponseLength} ` +
          '(data.maxPromptLength + data.maxResponseLength), of which a reply needs at least one. Shorten the messages, or raise one of those keys.',
        'context_length_exceeded',
      );
    const requestId = this.#requestIds.get(sequence) ?? `${this.id}.${this.#calls++}`;
    this.#requestIds.set(sequence, requestId);
    const end = () => engine.abort([requestId]);
    const stopWaiting = [signal, this.#ending.signal].map((given) => given && onAbort(given, end));
    // A paused engine does not report the loss of its device, so `lost` is also awaited.
    const loss = new Promise<never>((_, reject) => {
      stopWaiting.push(onAbort(lost, () => reject(lost.reason as Error)));
    });
    try {
      const generation = engine.generate({
        requestId,
        contextIds,
        promptLength: sequence.promptIds.length,
        key: this.#randomKey(sequence, request),
        sampling: this.#sampling(request, left),
        ...(onTokens && { onTokens: (ids) => onTokens(ids, choice) }),
      });
      return await Promise.race([generation, loss]);
    } finally {
      for (const stop of stopWaiting) stop?.();
    }
  }

  /** Returns the random key for a call. The retry of a failed call gets the same key; different sequences get different keys. */
  #randomKey({ number }: Sequence, { seed, choice }: CallRequest & { choice: number }): [number, number] {
    if (seed !== undefined) return randomKey(seed, SEEDED, Math.floor(seed / 2 ** 32), choice);
    const [run, group, member] = this.#key!;
    return randomKey(run, group, member, number);
  }

  #sampling(request: CallRequest, left: number): SamplingParams {
    const { sampling, parse, tools, required, oneCall, jsonSchema } = request;
    const { sampling: run, constrainToolCalls, template } = this.#host;
    const maxNewTokens = Math.min(run.maxNewTokens, left, sampling.maxNewTokens ?? Infinity);
    const forced = required ? 'tool_choice' : parse && jsonSchema && 'response_format';
    if (forced && template.toolParser.callFormat === undefined)
      throw refuse(
        forced,
        `The format of this model's tool calls (rollout.multiTurn.format) cannot be constrained, so ${forced} is not served with tools. Leave it out.`,
      );
    return {
      ...run,
      ...sampling,
      maxNewTokens,
      minNewTokens: Math.min(sampling.minNewTokens ?? run.minNewTokens ?? 0, maxNewTokens),
      stopTokenIds: template.stopTokenIds(request),
      ...(parse && (constrainToolCalls || jsonSchema) && callConstraint(tools, template.toolParser)),
      ...(required && {
        ...callConstraint(required, template.toolParser),
        requiredCalls: oneCall ? ('one' as const) : ('some' as const),
      }),
      ...(jsonSchema && { jsonSchema }),
    };
  }

  #release(sequence: Sequence): void {
    const requestId = this.#requestIds.get(sequence);
    if (requestId === undefined) return;
    this.#requestIds.delete(sequence);
    if (!this.#host.lost.aborted) this.#host.engine.release(requestId);
  }

  #end(state: 'rewarded' | 'aborted'): void {
    this.state = state;
    clearTimeout(this.#timer);
    this.#stopListening?.();
    this.#ending.abort();
    for (const sequence of this.#sequences) if (!sequence.isBusy) this.#release(sequence);
    if (this.#key) this.#host.onEnd(this);
  }

  /** Starts the time limit for the pause between two calls. */
  #rest(): void {
    if (this.#underWay > 0 || this.state !== 'open') return;
    clearTimeout(this.#timer);
    this.#timer = startTimer(() => {
      this.#host.count('client/timed_out');
      this.abort();
    }, this.#host.timeoutMs);
  }

  #aborted(): ApiError {
    return this.#reason ?? new ApiError('The call was aborted.', { status: 499, code: 'aborted' });
  }

  #isOver(): ApiError {
    if (this.#reason) return this.#reason;
    const how = this.state === 'rewarded' ? 'has its reward' : 'was cancelled';
    return new ApiError(
      `This trajectory ${how} and has ended, so it accepts no more calls. Create a new client to start another trajectory.`,
      { status: 409 },
    );
  }
}

/** Makes the keys of requests with a seed differ from the keys of all trajectories. */
const SEEDED = 0x5eed;

/** The sequence that a call extends. */
interface Extended {
  sequence: Sequence;
  /** Tokens of the messages to append. */
  said: Uint32Array;
  /** Metric that counts the call once it is answered. */
  counted: 'client/continuations' | 'client/forks' | undefined;
}

/** A sequence that is waiting for a reply. */
interface Place extends Pick<Extended, 'sequence' | 'counted'> {
  contextIds: Uint32Array;
  /** Number of response tokens of the sequence before the call. */
  before: number;
  /** True if the sequence was created for this call, so that a failed call removes it. */
  isNew: boolean;
}

const messageOf = ({ content, calls }: ReadReply): ChatMessage => ({
  role: 'assistant',
  content,
  ...(calls.length > 0 && { toolCalls: calls }),
});

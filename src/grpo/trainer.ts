/** GrpoTrainer: the single controller of a run. */

import type { UserCodeError } from '../errors.ts';
import { agentLoopOf } from '../rollout/agent/loop.ts';
import type { ToolParser } from '../rollout/tools/parser.ts';
import type { Task } from '../tasks/task.ts';
import type { TrainConfig } from './config/types.ts';
import { finiteWeights } from './checkpoint.ts';
import { correctionSettings } from './correction/settings.ts';
import { greedyBaselines } from './generate/greedyBaselines.ts';
import { ProblemQueue } from './generate/problems.ts';
import { ReplayBuffer } from './generate/replayBuffer.ts';
import type { InFlight, SampleSource, SourceOptions } from './generate/samples.ts';
import { checkedProblems, withTotalSteps } from './generate/trainingSet.ts';
import { validate, type ValidateOptions } from './generate/validate.ts';
import {
  AskedChanges,
  changesOf,
  type LiveSettings,
  type Rules,
  withChanges,
  withRules,
  withSettings,
} from './live.ts';
import { RunHealth, wrongInputs, wrongResults } from './health.ts';
import type { Metrics } from './metrics.ts';
import { ScoredTask } from './rewards/scoredTask.ts';
import { restoreParts, statesOf, type StatefulParts } from './parts.ts';
import { type MakeRollouter, unlessGivenUp } from './pipeline/asyncGroups.ts';
import { NothingInFlight } from './pipeline/nothingInFlight.ts';
import { bringWeights } from './pipeline/sharedWeights.ts';
import { sampleSource } from './pipeline/source.ts';
import { stepMetrics, StepTimer } from './stepMetrics.ts';
import { goalReached, readsGreedy } from './stopWhen.ts';
import type { Checkpoint, FitResult, StepInputs, TrainerEngine, TrainerEvents, TrainerState } from './types.ts';
import { checkTokens, type Sample } from './update/batch.ts';
import type { PolicyLoss } from './losses/index.ts';
import { adaptKl, refreshReference } from './update/controllers.ts';
import type { CustomAdvantage } from './advantages/index.ts';
import type { AsyncCustomLoss } from './losses/custom.ts';
import type { AccumulatedMiniBatch } from './update/policyGradient.ts';
import { rowTokens } from './update/rows.ts';
import type { StepExtras, StepTokens } from './update/stepTokens.ts';
import { PolicyUpdater, type UpdateResult } from './update/updater.ts';

/** What a trainer is made of, and whom it tells. */
export interface GrpoTrainerOptions extends TrainerEvents {
  /** Result of `resolveTrainConfig`, or parsed from YAML. */
  config: TrainConfig;
  /** Problems, tools and reward. */
  task: Task;
  /** Engine from `createLocalEngine` (this thread) or `createRemoteEngine` (a worker), with the sizes of the config. */
  engine: TrainerEngine;
  /**
   * Replaces the configured policy loss, and not the KL and entropy terms beside it: a row, which runs fused as the shipped ones
   * do where it has WGSL, or a function of a mini-batch. Without WGSL either runs on this thread, between forward and backward.
   */
  loss?: AsyncCustomLoss | PolicyLoss;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** Replaces the configured advantage estimator. */
  advantage?: CustomAdvantage;
  /** Hands `onStep` a function that tells what the update made of each token: `StepInputs.updated`. Changes nothing that is computed. */
  inspect?: boolean;
  /** Replaces the samples that the trainer generates of the task's problems, which then serve evaluations alone. */
  source?: SampleSource;
  /** Replaces who generates where trainer.pipeline is one-step-off or fully-async; absent = the engine's rollout. */
  rollouter?: MakeRollouter;
}

interface FinishedStep {
  metrics: Metrics;
  samples: Sample[];
  inputs: StepInputs;
}

/**
 * Trains a policy by GRPO. A step draws prompts, generates a group of samples for each, scores them, turns rewards into
 * group-relative advantages, and updates the policy mini-batch by mini-batch. The engine may live in this thread or in a
 * worker; the trainer cannot tell.
 */
export class GrpoTrainer {
  readonly #options: GrpoTrainerOptions;
  /** Training generates by it: the task with the weights and the rewards by models that the config adds. Evaluations use the task itself. */
  readonly #generation: SourceOptions;
  readonly #scored: ScoredTask;
  readonly #problems: ProblemQueue;
  readonly #source: SampleSource;
  readonly #inFlight: InFlight;
  #updater: PolicyUpdater;
  /** Config as given; changes of a checkpoint override it. */
  readonly #given: TrainConfig;
  readonly #asked = new AskedChanges();
  /** What else goes into a checkpoint, by name. */
  readonly #parts: StatefulParts;
  #state: Omit<TrainerState, 'problems' | 'carried' | 'parts'> = { step: 0, updates: 0 };
  readonly #stopping = new AbortController();
  readonly #health = new RunHealth();
  /** The first fault of a sample of each kind; one that was told of is 'told'. */
  readonly #faults = new Map<string, UserCodeError | 'told'>();

  /** Throws InputError if trainer.totalEpochs counts an endless task. */
  constructor(options: GrpoTrainerOptions) {
    const { task, engine, loss, toolParser, onSample } = options;
    const config = withTotalSteps(options.config, task, engine.tokenizer);
    agentLoopOf(config.rollout.agent.defaultAgentLoop); // a name that does not exist is said before anything runs
    this.#options = { ...options, config };
    this.#given = config;
    const onFault = (fault: UserCodeError) => this.#faults.set(fault.kind, this.#faults.get(fault.kind) ?? fault);
    this.#scored = new ScoredTask(task, config, engine);
    this.#problems = new ProblemQueue(task, config, engine.tokenizer);
    const tell = (sample: Sample, step: number) => onSample?.(sample, step);
    const [scored, problems] = [this.#scored.under({}), this.#problems];
    this.#generation = { config, engine, task: scored, toolParser, onFault, problems, onSample: tell };
    const { replayBufferSize } = config.algorithm;
    const replay = replayBufferSize > 0 ? new ReplayBuffer(replayBufferSize) : undefined;
    this.#parts = { ...this.#problems.parts, ...(replay && { replay }), health: this.#health };
    this.#source = sampleSource(this.#generation, { ...options, replay });
    this.#inFlight = this.#source.inFlight ?? new NothingInFlight();
    this.#updater = new PolicyUpdater(config, engine, loss);
  }

  /**
   * Trains until totalTrainingSteps, until the metric of trainer.stopWhen is good enough, or until `stop`. Throws
   * NotFiniteError after three steps in a row whose numbers were not finite.
   */
  async fit(): Promise<FitResult> {
    try {
      return await this.#fit();
    } catch (error) {
      await this.#end();
      throw error;
    }
  }

  async #fit(): Promise<FitResult> {
    const { config, onStep, onCheckpoint } = this.#options;
    const { totalTrainingSteps, valBeforeTrain, testFreq, saveFreq, saveMinutes } = config.trainer;
    await checkedProblems(this.#options.task, config, 0);
    await this.#scored.load?.();
    let savedAt = performance.now();
    const history: Metrics[] = [];
    let reached: string | undefined;
    if (this.#state.step === 0 && valBeforeTrain) {
      const metrics = { 'training/global_step': 0, ...(await this.validate({ greedy: true })) };
      history.push(metrics);
      await onStep?.(metrics, []);
      reached = goalReached(config, metrics, false);
    }
    const firstStep = this.#state.step + 1;
    while (this.#state.step < totalTrainingSteps && !this.#stopping.signal.aborted && reached === undefined) {
      if (!(await this.#inFlight.ready(this.#stopping.signal))) break;
      const finished = await this.step().catch(unlessGivenUp);
      if (!finished) break;
      const { metrics, samples, inputs } = finished;
      const { step } = this.#state;
      const last = step === totalTrainingSteps;
      const evaluated = last || (testFreq > 0 && step % testFreq === 0);
      if (evaluated) Object.assign(metrics, await this.validate({ greedy: last || readsGreedy(config) }));
      reached = goalReached(config, metrics, step === firstStep);
      if (reached !== undefined && !evaluated) Object.assign(metrics, await this.validate({ greedy: true }));
      history.push(metrics);
      await onStep?.(metrics, samples, inputs);
      this.#health.check(step, this.config.actor.optim.lr);
      const isLate = saveMinutes > 0 && performance.now() - savedAt >= saveMinutes * 60_000;
      if (isLate || (saveFreq > 0 && step % saveFreq === 0)) {
        await onCheckpoint?.(await this.checkpoint());
        savedAt = performance.now();
      }
    }
    await this.#inFlight.close();
    const stopped = this.#state.step < totalTrainingSteps && reached === undefined;
    const warnings = this.#health.standing;
    return { state: this.state, history, stopped, warnings, ...(reached !== undefined && { reached }) };
  }

  /** Ends `fit` after the current step. */
  stop(): void {
    this.#stopping.abort();
  }

  /**
   * Changes settings from the next step on: those of LIVE_SETTINGS. Throws InputError for another key, and for a value that no config could
   * have. A checkpoint remembers what changed.
   */
  change(settings: LiveSettings): void {
    this.#asked.change(settings, this.#options.config, this.#options.engine);
  }

  /**
   * Replaces the reward, the loss or the tools from the next step on; what `rules` does not name stays. The task is then a plain object. No
   * checkpoint holds them: the caller that resumes passes them again. Throws InputError if models score the run.
   */
  replace(rules: Rules): void {
    this.#asked.replace(rules, this.#options.config, this.#options.task);
  }

  /** The settings of the steps to come, what was changed among them. */
  get config(): TrainConfig {
    return this.#options.config;
  }

  /**
   * One GRPO step: generate and score groups of samples, compute advantages, update the policy. A step that fails ends everything
   * it has begun before it rejects: called again, it draws the same problems, under the weights that its updates have left.
   */
  async step(): Promise<FinishedStep> {
    const { step } = this.#state;
    const [{ position, parts }, { carried = [] }] = [this.#problems, this.#inFlight];
    const states = statesOf(parts);
    try {
      return await this.#step();
    } catch (error) {
      await this.#end();
      if (this.#state.step === step) {
        this.#problems.moveTo(position);
        this.#restoreInFlight(undefined, carried);
        restoreParts(parts, states);
      }
      throw error;
    }
  }

  /** Ends what is in flight, and forgets what an update or an evaluation that failed has left on the engine. */
  async #end(): Promise<void> {
    const { model, rollout } = this.#options.engine;
    const left = [
      () => this.#inFlight.close(),
      () => model.zeroGrad(),
      () => rollout.resetCache(),
      () => rollout.takeStats(),
    ];
    for (const forget of left) await Promise.allSettled([(async () => forget())()]); // a lost device can forget no more
  }

  async #step(): Promise<FinishedStep> {
    const { config, engine, onPhase, inspect = false } = this.#options;
    const step = this.#state.step + 1;
    this.#applyAsked(step);
    await this.#scored.load?.();
    const timer = new StepTimer((phase) => onPhase?.(phase, step));
    const generated = await timer.time('gen', () => this.#source.generate(step));
    const { samples } = generated;
    await this.#tellFaults(step);
    checkTokens(samples, engine.model.config.vocabSize);
    const extras = await this.#logProbsAndBaselines(samples, step, timer);
    const tokens = rowTokens(config, samples, extras);
    const wrong = wrongInputs(samples, tokens);
    const done: AccumulatedMiniBatch[] | undefined = inspect ? [] : undefined;
    const update = wrong
      ? this.#noUpdate()
      : await timer.time('update_actor', () => this.#update(samples, tokens, done));
    const synced = await timer.time('sync', () => this.#inFlight.resume(step, engine));
    const notFinite = wrong ?? wrongResults(update);
    await this.#adapt(step, samples, tokens, update, notFinite === undefined);
    const metrics = stepMetrics({ config, step, generated, tokens, update, timer });
    Object.assign(metrics, synced, this.#problems.takeMetrics());
    for (const fault of this.#health.observe({ config, step, samples, tokens, metrics }, notFinite))
      await this.#options.onFault?.(fault);
    const updater = this.#updater; // the next step may have another
    const updated = done && { updated: () => updater.updatedTokens(samples, done) };
    return { samples, metrics, inputs: { tokens, extras, ...updated } };
  }

  /** Held-out accuracy: sampled as `rollout.valKwargs` says, and greedy as well when asked. Uses the outcome, not shaping. */
  async validate(options: ValidateOptions = {}): Promise<Metrics> {
    const { onPhase, onEvaluating, onValidation } = this.#options;
    const task = withRules(this.#options.task, { tools: this.#asked.rules.tools }, this.#options.config);
    const { step } = this.#state;
    onPhase?.('validate', step);
    const onProgress = (done: number, total: number) => onEvaluating?.(done, total, step);
    const evaluated = await this.#inFlight.evaluate((onQueued) =>
      validate({ ...this.#generation, task }, { globalStep: step, onProgress, onQueued, ...options }),
    );
    await this.#tellFaults(step);
    await onValidation?.(evaluated.samples, step);
    return evaluated.metrics;
  }

  /** Throws NotFiniteError if the weights are not finite: no run can resume from them. */
  async checkpoint(): Promise<Checkpoint> {
    const { config, engine } = this.#options;
    const refreshed = config.trainer.refUpdateFreq > 0 ? engine.reference : undefined;
    const inFlight = await this.#inFlight.save();
    const { state } = this;
    const weights = await finiteWeights(engine.model, this.#state.step, config.actor.optim.lr);
    return {
      state: inFlight === undefined ? state : { ...state, parts: { ...state.parts, inFlight } },
      weights,
      optimizer: await engine.model.exportOptimizer(),
      ...(refreshed && { reference: await refreshed.exportWeights() }),
    };
  }

  /** Continues from a checkpoint; its weights replace the engine's. */
  async restore({ state, weights, optimizer, reference }: Checkpoint): Promise<void> {
    const { model, reference: frozen, judge } = this.#options.engine;
    const { problems, carried = [], parts = {}, ...rest } = state;
    const { inFlight, ...others } = parts;
    await this.#inFlight.close();
    this.#restoreInFlight(inFlight, carried);
    await model.importWeights(weights);
    await model.importOptimizer(optimizer);
    if (reference) await frozen?.importWeights(reference);
    await Promise.all([bringWeights(this.#options.engine, state.step), judge?.resetCache()]);
    this.#state = rest;
    this.#use(withChanges(this.#given, rest.changes ?? [], this.#options.engine));
    this.#problems.moveTo(problems);
    this.#health.reset();
    restoreParts(this.#parts, others);
  }

  /** Counters and the state of each part, as plain JSON: what a checkpoint has beside its tensors. */
  get state(): TrainerState {
    const { carried } = this.#inFlight;
    const parts = statesOf(this.#parts);
    return { ...this.#state, problems: this.#problems.position, ...(carried && { carried }), ...(parts && { parts }) };
  }

  #restoreInFlight(state: unknown, carried: readonly number[]): void {
    const { vocabSize } = this.#options.engine.model.config;
    this.#inFlight.restore(state, { carried, vocabSize });
  }

  /** Applies what `change` and `replace` have asked for, before step `step`. */
  #applyAsked(step: number): void {
    const { config, task, engine, onChange, onReplace } = this.#options;
    const asked = this.#asked.take();
    if (!asked) return;
    const changed = withSettings(config, asked.settings, engine);
    const changes = changesOf(step, config, changed);
    if (changes.length > 0) this.#state.changes = [...(this.#state.changes ?? []), ...changes];
    if (asked.isReplaced) {
      const { rules } = this.#asked;
      this.#generation.task = this.#scored.under(rules);
      this.#problems.useTools(rules.tools ?? task.tools);
      onReplace?.(step);
    }
    this.#use(changed);
    for (const change of changes) onChange?.(change);
  }

  /** The one place where a run's config, task and loss change. */
  #use(config: TrainConfig): void {
    const { engine, loss } = this.#options;
    this.#options.config = this.#generation.config = config;
    this.#updater = new PolicyUpdater(config, engine, this.#asked.rules.loss ?? loss);
  }

  /** Log-probs and baselines of the samples, each where a setting asks for it; with the KL coefficient and the user's estimator. */
  async #logProbsAndBaselines(samples: Sample[], step: number, timer: StepTimer): Promise<StepExtras> {
    const { config, advantage } = this.#options;
    const updater = this.#updater;
    const refLogProbs = await timer.time('ref', () => updater.refLogProbs(samples));
    const bypass = correctionSettings(config).bypassMode;
    const oldLogProbs = bypass ? undefined : await timer.time('old_log_prob', () => updater.oldLogProbs(samples));
    const remax = config.algorithm.advEstimator === 'remax';
    const baselines = remax ? await greedyBaselines(this.#generation, samples, step) : undefined;
    const { klCoef, roleBaselines } = this.#state;
    return { refLogProbs, oldLogProbs, baselines, klCoef, roleBaselines, advantage };
  }

  /** Updates the policy; draws the next step's problems and encodes their prompts while the device computes. */
  async #update(samples: Sample[], tokens: StepTokens, done?: AccumulatedMiniBatch[]): Promise<UpdateResult> {
    const { totalTrainingSteps } = this.#options.config.trainer;
    await this.#inFlight.pause();
    const updating = this.#updater.update(samples, tokens, this.#state, done);
    if (this.#state.step + 1 < totalTrainingSteps) this.#problems.prefetch();
    return updating;
  }

  /** Returns the result of a step whose inputs are not finite. */
  #noUpdate(): UpdateResult {
    return { metrics: {}, updates: 0, trainedTokens: 0, entropy: this.#state.entropy };
  }

  /** Tells of samples that were left out, a kind once. */
  async #tellFaults(step: number): Promise<void> {
    for (const [kind, fault] of this.#faults) {
      if (fault === 'told') continue;
      this.#faults.set(kind, 'told');
      const reason = `${fault.message} The sample is left out (trainer.onError: skip); more like it are only counted.`;
      await this.#options.onFault?.({ step, reason });
    }
  }

  /** Counts the step, and moves what a run adapts from step to step beside the weights; not by numbers that are not `finite`. */
  async #adapt(
    step: number,
    samples: Sample[],
    tokens: StepTokens,
    update: UpdateResult,
    finite: boolean,
  ): Promise<void> {
    const { config, engine } = this.#options;
    await refreshReference(config, engine, step);
    this.#state.step = step;
    this.#state.updates += update.updates;
    if (!finite) return;
    if (tokens.roleBaselines) this.#state.roleBaselines = tokens.roleBaselines;
    adaptKl(config, this.#state, tokens.metrics, samples.length);
    if (update.entropy) this.#state.entropy = update.entropy;
  }
}

/** GrpoTrainer: the single controller of a run. */

import { agentLoopOf } from '../rollout/agent/loop.ts';
import type { ToolParser } from '../rollout/tools/parser.ts';
import { withRewardWeights } from '../tasks/rewards/combine.ts';
import type { Task } from '../tasks/task.ts';
import type { TrainConfig } from './config/types.ts';
import { correctionSettings } from './correction/settings.ts';
import { FilteredGroups } from './generate/filterGroups.ts';
import { greedyBaselines } from './generate/greedyBaselines.ts';
import type { GenerationContext } from './generate/options.ts';
import { OverSampledGroups } from './generate/overSampling.ts';
import { ProblemQueue } from './generate/problems.ts';
import { ReplayBuffer, ReplayedGroups } from './generate/replayBuffer.ts';
import { PlainGroups, type SampleSource } from './generate/samples.ts';
import { withTotalSteps } from './generate/trainingSet.ts';
import { validate, type ValidateOptions } from './generate/validate.ts';
import type { Metrics } from './metrics.ts';
import { restoreParts, statesOf, type StatefulParts } from './parts.ts';
import { stepMetrics, StepTimer } from './stepMetrics.ts';
import { goalReached, readsGreedy } from './stopWhen.ts';
import type { Checkpoint, FitResult, TrainerEngine, TrainerEvents, TrainerState } from './types.ts';
import type { Sample } from './update/batch.ts';
import type { PolicyLoss } from './losses/index.ts';
import { adaptKl, refreshReference } from './update/controllers.ts';
import type { CustomAdvantage } from './advantages/index.ts';
import type { CustomLoss } from './losses/custom.ts';
import { type StepExtras, stepTokens, type StepTokens } from './update/stepTokens.ts';
import { PolicyUpdater, type UpdateResult } from './update/updater.ts';

export interface GrpoTrainerOptions extends TrainerEvents {
  config: TrainConfig;
  task: Task;
  engine: TrainerEngine;
  /**
   * Replaces the configured policy loss, and not the KL and entropy terms beside it: a row, which runs fused as the shipped ones
   * do where it has WGSL, or a function of a micro-batch. Without WGSL either runs on this thread, between forward and backward.
   */
  loss?: CustomLoss | PolicyLoss;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** Replaces the configured advantage estimator. */
  advantage?: CustomAdvantage;
}

/**
 * Trains a policy by GRPO. A step draws prompts, generates a group of samples for each, scores them, turns rewards into
 * group-relative advantages, and updates the policy mini-batch by mini-batch. The engine may live in this thread or in a
 * worker; the trainer cannot tell.
 */
export class GrpoTrainer {
  readonly #options: GrpoTrainerOptions;
  /** Training generates by it: the task with the weights and the rewards by models that the config adds. Evaluations use the task itself. */
  readonly #generation: GenerationContext;
  readonly #problems: ProblemQueue;
  readonly #source: SampleSource;
  readonly #updater: PolicyUpdater;
  /** What else goes into a checkpoint, by name. */
  readonly #parts: StatefulParts;
  #state: Omit<TrainerState, 'problems' | 'carried' | 'parts'> = { step: 0, updates: 0 };
  #stopRequested = false;

  /** Throws InputError where trainer.totalEpochs counts an endless task. */
  constructor(options: GrpoTrainerOptions) {
    const { task, engine, loss, toolParser } = options;
    const config = withTotalSteps(options.config, task, engine.tokenizer);
    agentLoopOf(config.rollout.agent.defaultAgentLoop); // a name that does not exist is said before anything runs
    this.#options = { ...options, config };
    this.#generation = { config, engine, task: scoredTask(options), toolParser };
    this.#problems = new ProblemQueue(task, config, engine.tokenizer);
    const { replayBufferSize } = config.algorithm;
    const replay = replayBufferSize > 0 ? new ReplayBuffer(replayBufferSize) : undefined;
    this.#parts = { ...this.#problems.parts, ...(replay && { replay }) };
    const source = this.#sampleSource();
    this.#source = replay ? new ReplayedGroups(source, config, replay) : source;
    this.#updater = new PolicyUpdater(config, engine, loss);
  }

  /** Trains until totalTrainingSteps, until the metric of trainer.stopWhen is good enough, or until `stop`. */
  async fit(): Promise<FitResult> {
    const { config, onStep, onCheckpoint } = this.#options;
    const { totalTrainingSteps, valBeforeTrain, testFreq, saveFreq } = config.trainer;
    const history: Metrics[] = [];
    let reached: string | undefined;
    if (this.#state.step === 0 && valBeforeTrain) {
      const metrics = { 'training/global_step': 0, ...(await this.validate({ greedy: true })) };
      history.push(metrics);
      await onStep?.(metrics, []);
      reached = goalReached(config, metrics, false);
    }
    const firstStep = this.#state.step + 1;
    while (this.#state.step < totalTrainingSteps && !this.#stopRequested && reached === undefined) {
      const { metrics, samples } = await this.step();
      const { step } = this.#state;
      const last = step === totalTrainingSteps;
      const evaluated = last || (testFreq > 0 && step % testFreq === 0);
      if (evaluated) Object.assign(metrics, await this.validate({ greedy: last || readsGreedy(config) }));
      reached = goalReached(config, metrics, step === firstStep);
      if (reached !== undefined && !evaluated) Object.assign(metrics, await this.validate({ greedy: true }));
      history.push(metrics);
      await onStep?.(metrics, samples);
      if (saveFreq > 0 && step % saveFreq === 0) await onCheckpoint?.(await this.checkpoint());
    }
    await this.#source.close?.();
    return { state: this.state, history, stopped: this.#stopRequested, ...(reached !== undefined && { reached }) };
  }

  /** Ends `fit` after the current step. */
  stop(): void {
    this.#stopRequested = true;
  }

  /** One GRPO step: generate and score groups of samples, compute advantages, update the policy. */
  async step(): Promise<{ metrics: Metrics; samples: Sample[] }> {
    const { config, engine, onPhase } = this.#options;
    const step = this.#state.step + 1;
    const timer = new StepTimer((phase) => onPhase?.(phase, step));
    const generated = await timer.time('gen', () => this.#source.generate(step));
    const { samples } = generated;
    const extras = await this.#logProbsAndBaselines(samples, step, timer);
    const tokens = stepTokens(config, samples, extras);
    const update = await timer.time('update_actor', () => this.#update(samples, tokens));
    await timer.time('sync', () => engine.rollout.resetCache());
    await this.#adapt(step, samples, tokens, update);
    const metrics = stepMetrics({ config, step, generated, tokens, update, timer });
    return { samples, metrics: { ...metrics, ...this.#problems.takeMetrics() } };
  }

  /** Held-out accuracy: sampled as `rollout.valKwargs` says, and greedy as well when asked. Uses the outcome, not shaping. */
  async validate(options: ValidateOptions = {}): Promise<Metrics> {
    const { task, onPhase, onValidation } = this.#options;
    const { step } = this.#state;
    onPhase?.('validate', step);
    await this.#source.resume?.();
    const given = { globalStep: step, ...options };
    const { metrics, samples } = await validate({ ...this.#generation, task }, given);
    await onValidation?.(samples, step);
    return metrics;
  }

  async checkpoint(): Promise<Checkpoint> {
    const { config, engine } = this.#options;
    const refreshed = config.trainer.refUpdateFreq > 0 ? engine.reference : undefined;
    return {
      state: this.state,
      weights: await engine.model.exportWeights(),
      optimizer: await engine.model.exportOptimizer(),
      ...(refreshed && { reference: await refreshed.exportWeights() }),
    };
  }

  /** Continues from a checkpoint; its weights replace the engine's. */
  async restore({ state, weights, optimizer, reference }: Checkpoint): Promise<void> {
    const { model, rollout, reference: frozen, judge } = this.#options.engine;
    await model.importWeights(weights);
    await model.importOptimizer(optimizer);
    if (reference) await frozen?.importWeights(reference);
    await Promise.all([rollout.resetCache(), judge?.resetCache()]);
    const { problems, carried = [], parts, ...rest } = state;
    this.#state = rest;
    this.#problems.moveTo(problems);
    this.#source.startOver?.(carried);
    restoreParts(this.#parts, parts);
  }

  get state(): TrainerState {
    const { carried } = this.#source;
    const parts = statesOf(this.#parts);
    return { ...this.#state, problems: this.#problems.position, ...(carried && { carried }), ...(parts && { parts }) };
  }

  #sampleSource(): SampleSource {
    const { config, onSample } = this.#options;
    const { rollout, algorithm } = config;
    const Source =
      rollout.overSampleRate > 0 ? OverSampledGroups : algorithm.filterGroups.enable ? FilteredGroups : PlainGroups;
    return new Source({
      ...this.#generation,
      problems: this.#problems,
      onSample: (sample, step) => onSample?.(sample, step),
    });
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
  async #update(samples: Sample[], tokens: StepTokens): Promise<UpdateResult> {
    const { totalTrainingSteps } = this.#options.config.trainer;
    const updating = this.#updater.update(samples, tokens, this.#state);
    if (this.#state.step + 1 < totalTrainingSteps) this.#problems.prefetch();
    return updating;
  }

  /** Counts the step, and moves what a run adapts from step to step beside the weights. */
  async #adapt(step: number, samples: Sample[], tokens: StepTokens, update: UpdateResult): Promise<void> {
    const { config, engine } = this.#options;
    this.#state.step = step;
    this.#state.updates += update.updates;
    if (tokens.roleBaselines) this.#state.roleBaselines = tokens.roleBaselines;
    adaptKl(config, this.#state, tokens.metrics, samples.length);
    if (update.entropy) this.#state.entropy = update.entropy;
    await refreshReference(config, engine, step);
  }
}

/** The task with the weights and the rewards by models that the config adds; the models' code is loaded at the first sample. */
function scoredTask({ task: own, config, engine }: GrpoTrainerOptions): Task {
  const { judge, model, weights } = config.reward;
  const task = Object.keys(weights).length > 0 ? withRewardWeights(own, weights) : own;
  if (judge.weight === 0 && model.path === undefined) return task;
  let scored: Promise<Task> | undefined;
  const load = async () => (await import('./modelRewards.ts')).withModelRewards(task, config, engine);
  return { ...task, reward: async (sample) => (await (scored ??= load())).reward(sample) };
}

/** GrpoTrainer: the single controller of a training run. */

import { InputError } from '../errors.ts';
import { agentLoopOf } from '../rollout/agent/loop.ts';
import { checkedTask } from '../tasks/checkedTask.ts';
import { abandon, exportCheckpoint, importCheckpoint, isSaveDue } from './checkpoint.ts';
import type { TrainConfig } from './config/types.ts';
import { greedyBaselines } from './generate/greedyBaselines.ts';
import { ProblemQueue } from './generate/problems.ts';
import { ignoreCancelled, type InFlight, type SampleSource, type SourceOptions } from './generate/samples.ts';
import { checkedProblems, completedConfig } from './generate/trainingSet.ts';
import { unlessEnded, validate, type ValidateOptions } from './generate/validate.ts';
import { type Fault, RunHealth, SampleFaults } from './health.ts';
import { LiveRun, type LiveSettings, type Rules } from './live.ts';
import type { Metrics } from './metrics.ts';
import { restoreParts, statesOf, type StatefulParts } from './parts.ts';
import { sampleSource } from './pipeline/source.ts';
import { ScoredTask } from './generate/scoredTask.ts';
import { stepMetrics, StepTimer } from './stepMetrics.ts';
import { evaluationAt, goalReached, readsGreedy } from './stopWhen.ts';
import { type Events, eventsOf, type GrpoTrainerOptions } from './trainerOptions.ts';
import type { Task } from '../tasks/task.ts';
import type { Checkpoint, FitResult, StepInputs, TrainerState } from './types.ts';
import type { Sample } from './update/batch.ts';
import { PolicyStep } from './update/policyStep.ts';

interface FinishedStep {
  metrics: Metrics;
  samples: Sample[];
  inputs: StepInputs;
}

/**
 * Trains a policy with GRPO. A step draws prompts, generates a group of samples for each, scores them, turns rewards
 * into group-relative advantages, and updates the policy mini-batch by mini-batch. The engine can be in this thread or
 * in a worker; the trainer treats both the same.
 */
export class GrpoTrainer {
  readonly #options: GrpoTrainerOptions;
  readonly #events: Events;
  /** Config and rules of the next steps, with all changes made by `change` and `replace`. */
  readonly #live: LiveRun;
  /**
   * Options with which training samples are generated. Their task has the config's reward weights and reward models.
   * Evaluations use the original task.
   */
  readonly #generation: SourceOptions;
  readonly #scored: ScoredTask;
  readonly #problems: ProblemQueue;
  readonly #source: SampleSource;
  readonly #inFlight: InFlight;
  readonly #policy: PolicyStep;
  /** Parts whose state a checkpoint stores by name, in addition to the counters. */
  readonly #parts: StatefulParts;
  /** Steps done. */
  #done = 0;
  readonly #stopping = new AbortController();
  readonly #health = new RunHealth();
  readonly #faults = new SampleFaults();

  /** Throws InputError for an invalid task, and if trainer.totalEpochs counts an endless one. */
  constructor(given: GrpoTrainerOptions) {
    const options = { ...given, task: checkedTask(given.task) };
    const { task, engine, loss, advantage, inspect, toolParser } = options;
    const config = completedConfig(options.config, task, engine);
    agentLoopOf(config.rollout.agent.defaultAgentLoop); // throws for an unknown name before anything runs
    this.#options = options;
    this.#events = eventsOf(options);
    this.#live = new LiveRun(config, task, engine);
    this.#scored = new ScoredTask(task, config, engine);
    this.#problems = new ProblemQueue(task, config, engine.tokenizer);
    this.#generation = {
      ...{ config, engine, toolParser, problems: this.#problems, task: this.#scored.under({}) },
      onFault: (fault) => this.#faults.add(fault),
      onSample: this.#events.onSample,
    };
    const { source, inFlight, parts } = sampleSource(this.#generation, options);
    [this.#source, this.#inFlight] = [source, inFlight];
    this.#parts = { ...this.#problems.parts, ...parts, health: this.#health };
    const policy = {
      ...{ engine, advantage, inspect, isOwnSize: options.source !== undefined },
      baselines: (samples: Sample[], step: number) => greedyBaselines(this.#generation, samples, step),
      pause: () => this.#inFlight.pause(),
      whileUpdating: () => this.#done + 1 < config.trainer.totalTrainingSteps && this.#problems.prefetch(),
    };
    this.#policy = new PolicyStep(policy, config, loss);
  }

  /**
   * Trains until totalTrainingSteps, until trainer.stopWhen is reached, or until `stop`. Throws NotFiniteError after
   * three steps in a row with numbers that were not finite.
   * @param unevaluated metrics of the last step, if the run resumes after it to repeat an evaluation that `stop` aborted
   */
  async fit(unevaluated?: Metrics): Promise<FitResult> {
    const [{ onCheckpoint }, { trainer }] = [this.#events, this.config];
    const history: Metrics[] = [];
    try {
      await checkedProblems(this.#options.task, this.config, 0);
      await this.#scored.load();
      let savedAt = performance.now();
      const metrics = this.#done === 0 && trainer.valBeforeTrain ? { 'training/global_step': 0 } : unevaluated;
      let reached = metrics && (await this.#complete({ metrics, samples: [] }, history, false));
      const firstStep = this.#done + 1;
      while (this.#done < trainer.totalTrainingSteps && reached === undefined) {
        const finished = await this.#nextStep();
        if (!finished) break;
        reached = await this.#complete(finished, history, this.#done === firstStep);
        this.#health.check(this.#done, this.config.actor.optim.lr);
        if (!onCheckpoint || !isSaveDue(trainer, this.#done, savedAt)) continue;
        await onCheckpoint(await this.checkpoint());
        savedAt = performance.now();
      }
      await this.#inFlight.close();
      const stopped = this.#done < trainer.totalTrainingSteps && reached === undefined;
      const warnings = this.#health.standing;
      return { state: this.state, history, stopped, warnings, ...(reached !== undefined && { reached }) };
    } catch (error) {
      await abandon(this.#options.engine, this.#inFlight);
      throw error;
    }
  }

  /**
   * Ends `fit` after the current step. A running evaluation is aborted immediately, and its step is logged without evaluation metrics.
   */
  stop(): void {
    this.#stopping.abort();
  }

  /**
   * Changes settings from the next step on; only settings in LIVE_SETTINGS. Throws InputError for another key or an
   * invalid value, and for a key of `rollout` if a custom source makes the samples. Checkpoints store the changes.
   */
  change(settings: LiveSettings): void {
    const key = Object.keys(settings).find((one) => one.startsWith('rollout.'));
    if (key !== undefined && this.#options.source)
      throw new InputError(`change: "${key}" cannot change while clients make the samples. Start a run with it.`);
    this.#live.change(settings);
  }

  /**
   * Replaces the reward, the loss or the tools from the next step on; a rule that `rules` does not name stays as it is.
   * A new reward or new tools are put into a copy of the task, which is a plain object even if the task is an instance of
   * a class. Checkpoints do not store rules: a caller that resumes must pass them again. Throws InputError for a new
   * reward if reward models score the run.
   */
  replace(rules: Rules): void {
    this.#live.replace(rules);
  }

  /** The task that evaluations use: with replaced tools, and its own reward. */
  get evaluatedTask(): Task {
    return this.#live.evaluated;
  }

  /** Settings of the next steps, including changes made by `change`. */
  get config(): TrainConfig {
    return this.#live.config;
  }

  /**
   * Runs one GRPO step: generates and scores groups of samples, computes advantages, updates the policy. A step that
   * fails ends all its work before it rejects. The next call then draws the same problems, with weights that include
   * the updates made before the failure.
   */
  async step(): Promise<FinishedStep> {
    const step = this.#done;
    const [{ position, parts }, { inFlightNumbers = [] }] = [this.#problems, this.#inFlight];
    const states = statesOf(parts);
    try {
      return await this.#step(step + 1);
    } catch (error) {
      await abandon(this.#options.engine, this.#inFlight);
      if (this.#done === step) {
        this.#problems.moveTo(position);
        this.#restoreInFlight(undefined, inFlightNumbers);
        restoreParts(parts, states);
      }
      throw error;
    }
  }

  async #step(step: number): Promise<FinishedStep> {
    this.#applyChanges(step);
    await this.#scored.load();
    const timer = new StepTimer((phase) => this.#events.onPhase(phase, step));
    const generated = await timer.time('gen', () => this.#source.generate(step));
    const { samples } = generated;
    await this.#report(this.#faults.take(step));
    const inputs = await this.#policy.inputs(samples, step, timer);
    const update = await this.#policy.update(samples, inputs, step, timer);
    const synced = await timer.time('sync', () => this.#inFlight.resume(step, this.#options.engine));
    await this.#policy.adapt(step, samples, inputs, update);
    this.#done = step;
    const { config } = this;
    const metrics = stepMetrics({ config, step, generated, tokens: inputs.tokens, update, timer });
    Object.assign(metrics, synced, this.#problems.takeMetrics());
    await this.#report(this.#health.observe({ config, step, samples, tokens: inputs.tokens, metrics }, update.wrong));
    return { samples, metrics, inputs: { ...inputs, ...update.updated } };
  }

  /**
   * Runs an evaluation. Returns held-out accuracy: sampled as `rollout.valKwargs` sets, and also greedy if requested.
   * Uses the outcome, without reward shaping.
   */
  async validate(options: ValidateOptions = {}): Promise<Metrics> {
    const step = this.#done;
    const { onPhase, onEvaluating, onValidation } = this.#events;
    onPhase('validate', step);
    const onProgress = (done: number, total: number, tokens: number) => onEvaluating(done, total, step, tokens);
    const generation = { ...this.#generation, task: this.evaluatedTask };
    const { metrics, samples } = await this.#inFlight.evaluate((onQueued) =>
      validate(generation, { globalStep: step, onProgress, onQueued, ...options }),
    );
    await this.#report(this.#faults.take(step));
    await onValidation(samples, step);
    return metrics;
  }

  /**
   * Returns a checkpoint of the current state. Throws NotFiniteError if the weights are not finite, because no run can
   * resume from them.
   */
  async checkpoint(): Promise<Checkpoint> {
    const inFlight = await this.#inFlight.save();
    const { state } = this;
    const parts = { ...state.parts, inFlight };
    return exportCheckpoint(this.#options.engine, this.config, inFlight === undefined ? state : { ...state, parts });
  }

  /** Continues from a checkpoint: its weights replace those of the engine. */
  async restore(checkpoint: Checkpoint): Promise<void> {
    const { step, problems, carried = [], changes, parts = {}, ...adapted } = checkpoint.state;
    await this.#inFlight.close();
    this.#restoreInFlight(parts['inFlight'], carried);
    await importCheckpoint(this.#options.engine, checkpoint);
    [this.#done, this.#policy.state] = [step, adapted];
    this.#live.restore(changes);
    this.#useConfig();
    this.#problems.moveTo(problems);
    this.#health.reset();
    restoreParts(this.#parts, parts);
  }

  /** Counters and the state of each part, as plain JSON: everything in a checkpoint except its tensors. */
  get state(): TrainerState {
    const { inFlightNumbers } = this.#inFlight;
    const { changes } = this.#live;
    const parts = statesOf(this.#parts);
    return {
      step: this.#done,
      ...this.#policy.state,
      ...(changes.length > 0 && { changes }),
      problems: this.#problems.position,
      ...(inFlightNumbers && { carried: inFlightNumbers }),
      ...(parts && { parts }),
    };
  }

  /**
   * Evaluates after a step if an evaluation is due, and reports the step's metrics. Returns the reason if the run must
   * end, otherwise undefined.
   */
  async #complete(
    { metrics, samples, inputs }: Omit<FinishedStep, 'inputs'> & Partial<FinishedStep>,
    history: Metrics[],
    isFirst: boolean,
  ): Promise<string | undefined> {
    const [{ config }, step] = [this, this.#done];
    const { isDue, isEnd } = evaluationAt(config, step);
    const { signal } = this.#stopping;
    const evaluate = async (greedy: boolean) =>
      Object.assign(metrics, await this.validate({ greedy, signal }).catch(unlessEnded(signal)));
    if (isDue) await evaluate(isEnd || readsGreedy(config));
    if (step === 0 && signal.aborted) return undefined; // a resumed run repeats this evaluation
    const reached = goalReached(config, metrics, isFirst);
    if (reached !== undefined && !isDue) await evaluate(true);
    history.push(metrics);
    await this.#events.onStep(metrics, samples, inputs);
    return reached;
  }

  /** Waits until the next step can start and runs it. Returns undefined if the run was stopped first. */
  async #nextStep(): Promise<FinishedStep | undefined> {
    const { signal } = this.#stopping;
    if (signal.aborted || !(await this.#inFlight.ready(signal))) return undefined;
    return this.step().catch(ignoreCancelled);
  }

  #restoreInFlight(state: unknown, inFlightNumbers: readonly number[]): void {
    const { vocabSize } = this.#options.engine.model.config;
    this.#inFlight.restore(state, { inFlightNumbers, vocabSize });
  }

  /** Applies the changes requested by `change` and `replace` before step `step`. */
  #applyChanges(step: number): void {
    const applied = this.#live.apply(step);
    if (!applied) return;
    if (applied.isReplaced) {
      this.#generation.task = this.#scored.under(this.#live.rules);
      this.#problems.useTools(this.#live.rules.tools ?? this.#options.task.tools);
      this.#events.onReplace(step);
    }
    this.#useConfig();
    for (const change of applied.settings) this.#events.onChange(change);
  }

  #useConfig(): void {
    this.#generation.config = this.config;
    this.#policy.use(this.config, this.#live.rules.loss ?? this.#options.loss);
  }

  async #report(faults: readonly Fault[]): Promise<void> {
    for (const fault of faults) await this.#events.onFault(fault);
  }
}

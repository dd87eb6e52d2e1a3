/** A run of the page: a TrainingRun on sessions in workers. It can be paused, and evaluates its start weights between steps. */

import { isA, isEngineLost, NoAdapterError } from '../../src/errors.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { checkFirstPrompts } from '../../src/extensions/checks/index.ts';
import { Evaluation } from '../../src/grpo/generate/validate.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint, FitResult } from '../../src/grpo/types.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import type { FolderFiles } from '../../src/runs/fileSystem.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import type { RunFolder } from '../../src/runs/runFolder.ts';
import { type LoggedStep, type RunHost, TrainingRun } from '../../src/runs/trainingRun.ts';
import type { Task } from '../../src/tasks/task.ts';
import type { HeldRun } from '../storage/heldRun.ts';
import { CHANGES } from '../storage/savedRuns.ts';
import { changesText } from '../storage/changesFile.ts';
import type { RunChange } from '../storage/runChanges.ts';
import { Session } from '../engine/session.ts';
import { canEvaluateBetween, fitsBetweenSteps, StartEvaluation } from './startEvaluation.ts';
import { keepTokens } from './tokens.ts';

export interface EvaluationProgress {
  /** Number of answered problems. */
  done: number;
  total: number;
  /** Step whose weights are evaluated; 0 = the weights from which the run started. */
  step: number;
  /** True if `stop` ends the evaluation but not the session. */
  canSkip: boolean;
}

/** Callbacks of a run. */
export interface RunEvents extends Pick<
  RunHost<Session>,
  'onPhase' | 'onSample' | 'onChange' | 'onReplace' | 'onClosed' | 'onValidation'
> {
  /** Called during downloads from other servers, then during uploads to the GPU. */
  onDownload(progress: DownloadProgress): void;
  onLoaded(session: Session): void;
  /** Called before the first step on each engine. The run waits for the callback. */
  onTrainer?(trainer: GrpoTrainer, session: Session): Promise<void>;
  onEvaluating(progress: EvaluationProgress): void;
  /** Called with additional metrics for a step that was already reported, or for the start weights, which have step 0. */
  onEvaluated(metrics: Metrics): void;
  /** Called with every try of the step; with no tries after an evaluation. The next step waits for the callback. */
  onStep(metrics: Metrics, tries: LoggedRollout[]): void | Promise<void>;
  /** Called with the reason why a step is faulty. The run continues. */
  onFault(reason: string): void;
  /** Called when the trainer has paused after `pause` was called. */
  onPaused(): void;
  /** Called when the engine was lost. The run resumes after the step `from`, or restarts if `from` is -1. */
  onLost(error: unknown, from: number): void;
}

/** How a run ended. */
interface Ended {
  step: number;
  stopped: boolean;
  /** Reason if trainer.stopWhen ended the run. */
  reached?: string;
  /** Problems that persist at the end, one sentence each. */
  warnings: readonly string[];
}

interface PageRunOptions {
  config: TrainConfig;
  /** Server of models that are not shipped with the page; undefined = huggingface.co. */
  hub: string | undefined;
  /** Storage of the run; undefined = the run is not saved. */
  held?: HeldRun | undefined;
  /** State to resume from. */
  from?: Checkpoint | undefined;
  /** A session that was opened ahead, with untrained weights. If its promise rejects, the run opens another session. */
  warm?: Promise<Session> | undefined;
  /** True if the evaluation of the start weights is known from an earlier visit. */
  startIsKnown?: boolean;
  /** True if the run repeats steps that were trained before. `stop` then evaluates nothing. */
  replays?: boolean;
  events: RunEvents;
}

/** Milliseconds before each retry, because the browser needs a while to restart its GPU process. */
const WAITS_MS = [0, 1000, 4000];

/** Maximum number of bytes of a model that is saved: weights and two moments of a larger one would not fit into a page's memory. */
const MAX_BYTES = 512 * 2 ** 20;

/** Maximum number of bytes of a run's saved tries. Beyond that, each step saves only trainer.logRollouts of its tries. */
const TRIES_BYTES = 32 * 2 ** 20;

/** Size and frequency of the evaluations while a rule replaces the reward. */
const FEW = { problems: 32, everySteps: 5 };

/** The page's part of a run: pauses, sessions opened ahead, and evaluations that a click can end. */
export class Run {
  readonly training: TrainingRun<Session>;
  /**
   * True to evaluate a few problems now and every few steps, because a rule replaces the reward. Stored steps do not contain these
   * evaluations.
   */
  watched = false;
  /** Step at which the additional evaluations began that `watched` requests; undefined = none. */
  #watchedFrom: number | undefined;
  readonly #options: PageRunOptions;
  #start: StartEvaluation | undefined;
  #startMetrics: Metrics | undefined;
  #evaluatedStep: number | undefined;
  /** Ends an evaluation that the run does in addition to its trainer's. */
  #evaluating: AbortController | undefined;
  #ending = new AbortController();
  /** Set while a pause is requested. The trainer waits for it between steps. */
  #gate: { promise: Promise<void>; open: () => void } | undefined;
  #triesBytes = 0;

  constructor(options: PageRunOptions) {
    const { config, held, from, events } = options;
    this.#options = options;
    const behind = {
      maxBytes: MAX_BYTES,
      onProblem: (error: Error) => held?.onProblem(error),
      save: async (step: number, files: FolderFiles) => held?.save(step, files),
    };
    const where = { folder: held?.folder, isOwn: true, from };
    this.training = new TrainingRun<Session>(
      { config, ...where, waitsMs: WAITS_MS, inspect: true, behind },
      {
        ...events,
        open: (aborted) => this.#open(aborted),
        configFor: (session) => this.#configFor(session),
        onReady: (trainer, session) => this.#onReady(trainer, session),
        onEvaluating: (done, total, step) => this.#onEvaluating(done, total, step),
        onFault: ({ reason }) => events.onFault(reason),
        log: (folder, step) => this.#log(folder, step),
        onStep: (step, trainer, session) => this.#onStep(step, trainer, session),
        onEnd: (fitted, trainer) => this.#onEnd(fitted, trainer),
        onLost: (error) => events.onLost(error, this.training.keptStep),
      },
    );
  }

  get asked(): 'running' | 'pausing' | 'stopping' {
    if (this.training.isStopping) return 'stopping';
    return this.#gate ? 'pausing' : 'running';
  }

  /** False if `watched` has no effect, because samples are in flight between steps. */
  get canWatch(): boolean {
    return canEvaluateBetween(this.#options.config);
  }

  /** Loads and trains until the last step or `stop`. The session stays open, unless this function rejects. */
  async train(): Promise<Ended> {
    try {
      const { state, stopped, reached, warnings } = await this.training.run();
      return { step: state.step, stopped, warnings, ...(reached !== undefined && { reached }) };
    } catch (error) {
      if (!this.training.isStopping || !isEngineLost(error)) throw error;
      return { step: Math.max(0, this.training.keptStep), stopped: true, warnings: [] };
    }
  }

  pause(): void {
    let open = () => {};
    const promise = new Promise<void>((resolve) => (open = resolve));
    this.#gate ??= { promise, open };
    this.training.keepSoon();
  }

  resume(): void {
    this.#gate?.open();
    this.#gate = undefined;
  }

  /** Ends the run after the current step and an evaluation. A second call ends that evaluation, or the step, immediately. */
  stop(): void {
    if (this.training.isStopping && this.#evaluating) return this.#evaluating.abort();
    this.training.keepSoon();
    this.training.stop();
    this.resume();
  }

  /** Saves all changes during the run. */
  writeChanges(all: readonly RunChange[]): void {
    void this.training.write((folder) => folder.files.write(folder.file(CHANGES), changesText(all)));
  }

  /** Releases the storage of the run, once everything is written. */
  async end(finished: boolean): Promise<void> {
    await this.training.written;
    await this.#options.held?.end(finished);
  }

  async #open(aborted: Promise<never>): Promise<Session> {
    const { config, hub, events, warm } = this.#options;
    this.#options.warm = undefined;
    const opened = warm?.catch((error: unknown) => {
      if (isA(error, NoAdapterError)) throw error; // another session would wait for the GPU as long
    });
    const given = await Promise.race([opened, aborted]).catch((error: unknown) => {
      void warm?.then((unused) => unused.close()).catch(() => {});
      throw error;
    });
    const onDownload = (progress: DownloadProgress) => events.onDownload(progress);
    return given ?? Session.open(config, { hub, onDownload }, aborted);
  }

  /** True if the start weights are to be evaluated between steps. */
  #isApart({ model }: Session): boolean {
    const { config, startIsKnown } = this.#options;
    const isDue = config.trainer.valBeforeTrain && !startIsKnown && !this.#startMetrics;
    return isDue && model.weights instanceof Map && fitsBetweenSteps(config);
  }

  #configFor(session: Session): TrainConfig {
    const { config } = this.training;
    const knowsStart = this.#startMetrics !== undefined || this.#isApart(session);
    return knowsStart ? { ...config, trainer: { ...config.trainer, valBeforeTrain: false } } : config;
  }

  async #onReady(trainer: GrpoTrainer, session: Session): Promise<void> {
    const { config, events } = this.#options;
    const { engine, task } = session;
    [this.#evaluating, this.#ending] = [undefined, new AbortController()];
    const onProgress = (done: number, total: number) => this.#onEvaluating(done, total, 0);
    const watch = { onProgress, signal: this.#ending.signal };
    this.#start = this.#isApart(session) ? await StartEvaluation.begin(session, config, watch) : undefined;
    await events.onTrainer?.(trainer, session);
    events.onLoaded(session);
    const notes = await checkFirstPrompts({ config, task, tokenizer: engine.tokenizer });
    if (notes.length > 0) events.onFault(notes.join(' '));
    if (this.#startMetrics && this.training.keptStep < 0) this.#tellEvaluated(this.#startMetrics);
  }

  #onEvaluating(done: number, total: number, step: number): void {
    this.#options.events.onEvaluating({ done, total, step, canSkip: this.#evaluating !== undefined });
  }

  /** Writes every try of the newest step, and tries of each step as long as TRIES_BYTES allows. */
  async #log(folder: RunFolder, { metrics, tries }: LoggedStep): Promise<void> {
    if (tries.length === 0) return;
    const lines = tries.map((rollout) => `${JSON.stringify(rollout)}\n`).join('');
    this.#triesBytes += lines.length;
    const kept = this.#triesBytes > TRIES_BYTES ? this.#options.config.trainer.logRollouts : tries.length;
    await folder.writeRollouts(metrics['training/global_step'], tries.slice(0, kept));
    await folder.files.write(folder.file('latest.jsonl'), lines);
  }

  async #onStep(
    { metrics, samples, tries, inputs }: LoggedStep,
    trainer: GrpoTrainer,
    session: Session,
  ): Promise<void> {
    if (inputs) keepTokens(tries, samples, inputs, session.engine);
    if ('timing_s/testing' in metrics) this.#evaluatedStep = metrics['training/global_step'];
    await this.#options.events.onStep(metrics, tries);
    if (this.#start && this.asked === 'running') await this.#evaluate(() => this.#evaluateStart(trainer));
    if (this.#isWatching(metrics))
      await this.#evaluate((signal) => this.#evaluateFew(metrics, session.engine, trainer.evaluatedTask, signal));
    if (!this.#gate) return;
    await this.training.keepNow(); // the pause can have been requested after the step was logged
    await this.#untilResumed();
  }

  /** Reports the pause and waits for its end. Without a pause, or if it has ended already, does nothing. */
  async #untilResumed(): Promise<void> {
    if (!this.#gate) return;
    this.#options.events.onPaused();
    await this.#gate.promise;
  }

  async #onEnd({ stopped, state: { step } }: FitResult, trainer: GrpoTrainer): Promise<void> {
    if (step === 0) return;
    await this.#evaluate(async (signal) => {
      // A run that is stopped in its last step counts as finished, but its last evaluation was aborted.
      const isStopped = stopped || this.training.isStopping;
      if (isStopped && !this.#options.replays && this.#evaluatedStep !== step) {
        const values = await trainer.validate({ greedy: true, signal });
        this.#tellEvaluated({ 'training/global_step': step, ...values });
      }
      await this.#evaluateStart(trainer, Infinity); // the remaining part
    });
  }

  /** Runs an evaluation that `stop` can end. */
  async #evaluate(evaluate: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal } = (this.#evaluating = this.#ending);
    try {
      await evaluate(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#evaluating = undefined;
    }
  }

  async #evaluateStart(trainer: GrpoTrainer, count?: number): Promise<void> {
    if (!this.#start || this.#startMetrics) return;
    const { step } = trainer.state;
    this.#options.events.onPhase?.('validate', step);
    await this.#start.next(step, count);
    const done = this.#start.result;
    if (!done) return;
    this.#startMetrics = done.metrics;
    await this.#options.events.onValidation?.(done.samples, 0);
    this.#tellEvaluated(done.metrics);
  }

  #isWatching(metrics: Metrics): boolean {
    const { replays = false } = this.#options;
    if (!this.watched) this.#watchedFrom = undefined;
    if (!this.watched || replays || this.asked !== 'running' || !this.canWatch) return false;
    const step = metrics['training/global_step'];
    this.#watchedFrom ??= step;
    return (step - this.#watchedFrom) % FEW.everySteps === 0 && !('timing_s/testing' in metrics);
  }

  async #evaluateFew(metrics: Metrics, engine: Session['engine'], task: Task, signal: AbortSignal): Promise<void> {
    const { config } = this.training;
    const step = metrics['training/global_step'];
    this.#options.events.onPhase?.('validate', step);
    const onProgress = (done: number, total: number) => this.#onEvaluating(done, Math.min(FEW.problems, total), step);
    const evaluation = await Evaluation.begin({ config, engine, task }, { globalStep: step, onProgress, signal });
    await evaluation.next(FEW.problems);
    const { samples } = evaluation.result();
    const accs = samples.map(({ reward }) => reward.acc).filter((acc) => !Number.isNaN(acc));
    if (accs.length === 0) return; // the task does not say which answers are right
    const problems = samples.length / config.rollout.valKwargs.n;
    const value = accs.reduce((sum, acc) => sum + acc, 0) / accs.length;
    this.#tellEvaluated({ 'training/global_step': step, [`val-aux/${task.name}/acc/first@${problems}`]: value });
  }

  #tellEvaluated(metrics: Metrics): void {
    this.#options.events.onEvaluated(metrics);
    this.training.amend(metrics);
  }
}

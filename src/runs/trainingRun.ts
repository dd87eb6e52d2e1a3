/**
 * A training run of the command line or of the page: writes its logs and checkpoints, and resumes it after a stop or a lost device. The
 * host of the run (RunHost) opens sessions and shows events.
 */

import { DeviceLostError, InputError, isA, isEngineLost, StoppedError } from '../errors.ts';
import type { TrainConfig } from '../grpo/config/types.ts';
import { completedConfig } from '../grpo/generate/trainingSet.ts';
import { isEndOfRun, isEvaluated } from '../grpo/stopWhen.ts';
import type { Metrics } from '../grpo/metrics.ts';
import { GrpoTrainer } from '../grpo/trainer.ts';
import type { GrpoTrainerOptions } from '../grpo/trainerOptions.ts';
import type { Checkpoint, FitResult, StepInputs, TrainerEvents, TrainerState } from '../grpo/types.ts';
import type { Sample } from '../grpo/update/batch.ts';
import type { ModelCheckpoint } from '../model/checkpoint/checkpoint.ts';
import { type LoraConfig, planLora } from '../model/lora/weights.ts';
import { optimizerOf } from '../model/optimizer/spec.ts';
import { parameterCount } from '../model/params.ts';
import { pipelineOf } from '../grpo/pipeline/settings.ts';
import { amended } from './amended.ts';
import * as checkpoints from './checkpointFolder.ts';
import type { FolderFiles } from './fileSystem.ts';
import { KeptCheckpoints } from './keptCheckpoints.ts';
import { type LoggedRollout, loggedRollouts } from './rollouts.ts';
import { RunFolder } from './runFolder.ts';

/** An engine on one device, together with its model and its task. */
export interface RunSession extends Pick<GrpoTrainerOptions, 'engine' | 'task' | 'source' | 'rollouter'> {
  /** Files of a checkpoint other than its weights, and the base model of an adapter. */
  model: Omit<ModelCheckpoint, 'weights'> & { base: string };
  /** Settings of the adapters. Undefined if every weight is trained. */
  lora?: LoraConfig | undefined;
  /** Rejects when the device or its worker is lost. Undefined if every call of the engine rejects in that case. */
  failed?: Promise<never>;
  /**
   * Frees the device.
   * @param error error that ended the run on this device; undefined if the run ended without one
   */
  close(error?: unknown): void | Promise<void>;
}

/** A step that has ended, with the data to log. */
export interface LoggedStep {
  metrics: Metrics;
  samples: Sample[];
  /** The first `trainer.logRollouts` samples of the step, or all samples if the run does not wait for its files (RunOptions.behind). */
  tries: LoggedRollout[];
  inputs: StepInputs | undefined;
  /** Time at which the step ended, on the clock of `performance`. */
  at: number;
}

/** Callbacks of the command line or the page for their run. If one of them throws, the run ends. */
export interface RunHost<S extends RunSession> extends Omit<TrainerEvents, 'onStep' | 'onCheckpoint'> {
  /** Opens a session on a new device. Can reject with the error of `aborted`, which rejects when the run is aborted. */
  open(aborted: Promise<never>): Promise<S>;
  /** Returns the config to train with on this device. Default: the run's config. */
  configFor?(session: S): TrainConfig;
  /** Called with lines for the user: where the run resumes, what was damaged, and which devices were lost. */
  note?(line: string): void;
  /** Returns lines that say how the config differs from that of the run to which the checkpoint folder `from` belongs. */
  changesSince?(from: string, step: number): Promise<readonly string[]>;
  /**
   * Called when the folder is ready for writing.
   * @param step step after which the run resumes; -1 = from the start, undefined = the folder is new
   */
  onFolder?(step: number | undefined, session: S): Promise<void>;
  /** Called before the first step on each device. */
  onReady?(trainer: GrpoTrainer, session: S): void | Promise<void>;
  /** Writes the data of a step, except for its metrics, into the folder. */
  log?(folder: RunFolder, step: LoggedStep): Promise<void>;
  /** Called after each step. If the state of the step is due to be saved, it has been saved before. The next step waits for this call. */
  onStep?(step: LoggedStep, trainer: GrpoTrainer, session: S): void | Promise<void>;
  /** Called after the last step, once the state of the run has been saved. */
  onEnd?(fitted: FitResult, trainer: GrpoTrainer): Promise<void>;
  /**
   * Called when an error has ended the steps. Returns the error to throw instead.
   * @param keep saves the state after the last step
   */
  onFailed?(error: unknown, keep: () => Promise<void>): Promise<unknown>;
  /** Called with a session that was closed because the run failed on its device. */
  onClosed?(session: S): void;
  /** Called when the device was lost, before another one is requested. */
  onLost?(error: unknown): void;
}

/**
 * Settings of a run that does not wait for its files to be written. It keeps its newest state in memory, to continue on the next device.
 */
interface WritesBehind {
  /** Maximum size of the state in memory, in bytes. */
  maxBytes: number;
  /** Called when something could not be written. The run continues. */
  onProblem(error: Error): void;
  /** Writes the checkpoint of a step, and deletes surplus ones. */
  save(step: number, files: FolderFiles): Promise<void>;
}

export interface RunOptions {
  config: TrainConfig;
  /** Folder of the run, which no other run may write to. Undefined: nothing is written. */
  folder?: RunFolder | undefined;
  /** True if the run in the folder is this run. Default: false. The folder of an earlier run is then renamed. */
  isOwn?: boolean;
  /** Checkpoint folder, or state in memory, to resume from. */
  from?: string | Checkpoint | undefined;
  /** Milliseconds to wait before another device is requested, by the number of losses in a row. One more loss ends the run. */
  waitsMs: readonly number[];
  /** Settings for a run that does not wait for its files. Undefined: every write is awaited, and a failed write ends the run. */
  behind?: WritesBehind;
  /** Same as GrpoTrainerOptions.inspect. */
  inspect?: boolean;
}

/**
 * If a run does not wait for its files, time between two saved states: at least KEEP_EVERY_MS, and TIMES_COST times the duration of the
 * last save.
 */
const KEEP_EVERY_MS = 10_000;
const TIMES_COST = 50;

/** Trains until the last step or until `stop` is called. Opens another session when a device is lost. */
export class TrainingRun<S extends RunSession = RunSession> {
  /** Every line of metrics.jsonl, including those before a resume. */
  history: Metrics[] = [];
  /** The run's config, with the number of steps computed from trainer.totalEpochs. */
  config: TrainConfig;
  /** Checkpoints to keep. Undefined if the run does not wait for its files. */
  kept: KeptCheckpoints | undefined;
  isStopping = false;
  /** Resolves when all data is written. */
  written: Promise<void> = Promise.resolve();
  readonly #options: RunOptions;
  readonly #host: RunHost<S>;
  readonly #aborted: Promise<never>;
  #abort: (error: Error) => void = () => {};
  #session: S | undefined;
  #trainer: GrpoTrainer | undefined;
  #from: string | Checkpoint | undefined;
  #isOwn: boolean;
  /** Newest step whose checkpoint is in the folder; -1 if the folder has no checkpoint. */
  #savedStep = -1;
  /** True if the config differs from the checkpoint's config. */
  #isChanged = false;
  /** Last step that ended on this device, or after which the run resumed on it; -1 before that. */
  #step = -1;
  #hasHadEngine = false;
  #keptAt = -Infinity;
  #keepMs = 0;
  #isDueSoon = false;
  /** True if metrics.jsonl can differ from `history`, because a write has failed or a line is replaced. */
  #isOutdated = false;
  /** Metrics of the step after which the run resumes, if the run ended there and a signal aborted its last evaluation. */
  #unevaluated: Metrics | undefined;

  constructor(options: RunOptions, host: RunHost<S>) {
    const { config, from, folder, isOwn = false } = options;
    this.#options = options;
    this.#host = host;
    this.config = config;
    this.#from = from;
    this.#isOwn = isOwn;
    if (typeof from === 'object') this.#keptAt = performance.now();
    if (typeof from === 'object' && folder) this.#savedStep = from.state.step;
    this.#aborted = new Promise((_, reject) => (this.#abort = reject));
    this.#aborted.catch(() => {}); // the promise of `run` rejects with the same error
  }

  /**
   * Trains until the run ends. If it resolves, the last session is still open; if it rejects, the session is closed. A step depends only on
   * its checkpoint and the config, so a run that loses devices has the same result as one that does not.
   */
  async run(): Promise<FitResult & { session: S }> {
    const { waitsMs } = this.#options;
    for (let [losses, farthest] = [0, -1]; ;) {
      try {
        return await this.#onDevice();
      } catch (error) {
        losses = this.#step > farthest ? 1 : losses + 1;
        farthest = Math.max(farthest, this.#step);
        const hadDevice = this.#hasHadEngine || losses > 1 || isA(error, DeviceLostError);
        if (!isEngineLost(error) || !hadDevice || this.isStopping) throw error;
        this.#from = await this.#newest();
        const isLast = losses > waitsMs.length;
        this.#noteLoss(error as Error, losses, isLast);
        if (isLast) throw error;
        this.#host.onLost?.(error);
        // Waits, because a driver needs some time to restart.
        await Promise.race([new Promise((resolve) => setTimeout(resolve, waitsMs[losses - 1])), this.#aborted]);
      }
    }
  }

  /**
   * Ends the run after the current step. If `stop` is called again, or before the first step, the run ends immediately with a StoppedError.
   */
  stop(): void {
    if (!this.#trainer || this.isStopping) this.#abort(new StoppedError('Stopped.'));
    this.isStopping = true;
    this.#trainer?.stop();
  }

  /** Saves the state after the current step, if the run does not wait for its files. */
  keepSoon(): void {
    this.#isDueSoon = true;
  }

  /** Saves the state between two steps, if the run does not wait for its files. */
  async keepNow(): Promise<void> {
    if (this.#options.behind && this.#trainer && this.#session) await this.#keep(this.#trainer, this.#session);
  }

  /** Step of the newest state to resume from; -1 without a state. */
  get keptStep(): number {
    return typeof this.#from === 'object' ? this.#from.state.step : this.#savedStep;
  }

  /** Number of steps that would be lost if the process ended now. */
  get unsavedSteps(): number {
    return Math.max(0, this.#step) - Math.max(0, this.#savedStep);
  }

  /** Adds values to the line of a step in the metrics, or adds a line for the step. For a run that does not wait for its files. */
  amend(metrics: Metrics): void {
    void this.write(async (folder) => {
      this.history = amended(this.history, metrics);
      await folder.writeMetrics(this.history);
    });
  }

  /** Runs a write to the folder, if the run has one, after all earlier writes. */
  async write(task: (folder: RunFolder) => Promise<void>): Promise<void> {
    const { folder, behind } = this.#options;
    if (!folder) return;
    if (!behind) return task(folder);
    this.written = this.written
      .then(() => task(folder))
      .catch((error: unknown) => {
        this.#isOutdated = true;
        behind.onProblem(error as Error);
      });
  }

  async #onDevice(): Promise<FitResult & { session: S }> {
    this.#step = -1;
    const session = await this.#host.open(this.#aborted);
    this.#session = session;
    try {
      const failed = session.failed ? [session.failed] : [];
      return { ...(await Promise.race([this.#train(session), ...failed, this.#aborted])), session };
    } catch (error) {
      await session.close(error);
      this.#host.onClosed?.(session);
      throw error;
    } finally {
      [this.#session, this.#trainer] = [undefined, undefined];
    }
  }

  async #train(session: S): Promise<FitResult> {
    const host = this.#host;
    this.config = completedConfig(this.#options.config, session.task, session.engine, session.lora && true);
    const trainer = this.#trainerOf(session);
    const step = await this.#restore(trainer);
    await this.write((folder) => this.#openFolder(folder, step, session));
    this.#trainer = trainer;
    this.#hasHadEngine = true;
    await host.onReady?.(trainer, session);
    try {
      const fitted = await trainer.fit(this.#unevaluated);
      await this.#keep(trainer, session);
      await host.onEnd?.(fitted, trainer);
      return fitted;
    } catch (error) {
      if (!host.onFailed) throw error;
      throw await host.onFailed(error, () => this.#keep(trainer, session));
    }
  }

  /** Creates the trainer of a session. Once its session is lost, events of the trainer are not passed on. */
  #trainerOf(session: S): GrpoTrainer {
    const { behind, inspect = false } = this.#options;
    const { task, engine, source, rollouter } = session;
    const host = this.#host;
    const isUsed = () => this.#session === session;
    const trainer: GrpoTrainer = new GrpoTrainer({
      config: host.configFor?.(session) ?? this.config,
      task,
      engine,
      inspect,
      ...(source && { source }),
      ...(rollouter && { rollouter }),
      onPhase: (...of) => void (isUsed() && host.onPhase?.(...of)),
      onSample: (...of) => void (isUsed() && host.onSample?.(...of)),
      onEvaluating: (...of) => void (isUsed() && host.onEvaluating?.(...of)),
      onChange: (...of) => void (isUsed() && host.onChange?.(...of)),
      onReplace: (...of) => void (isUsed() && host.onReplace?.(...of)),
      onValidation: (...of) => host.onValidation?.(...of),
      onFault: (...of) => host.onFault?.(...of),
      onStep: (metrics, samples, inputs) => this.#onStep(trainer, session, { metrics, samples, inputs }),
      ...(!behind && { onCheckpoint: (made) => this.#keep(trainer, session, !this.#isAsked(made.state.step), made) }),
    });
    return trainer;
  }

  /** Restores the trainer from the newest state. Returns the step after which the run resumes; -1 = the run starts. */
  async #restore(trainer: GrpoTrainer): Promise<number> {
    const from = this.#from;
    if (from === undefined) return -1;
    if (typeof from === 'object') {
      await trainer.restore(from);
      return (this.#step = from.state.step);
    }
    const { files } = this.#options.folder!;
    const checkpoint = await checkpoints.loadTrainerCheckpoint(files, from, this.#note);
    const step = (this.#step = checkpoint.state.step);
    const changes = (await this.#host.changesSince?.(from, step)) ?? [];
    this.#isChanged = changes.length > 0;
    changes.forEach(this.#note);
    await trainer.restore(checkpoint).catch((error: unknown) => {
      if (!(error instanceof InputError)) throw error;
      throw new InputError(`The run cannot resume from ${from}: ${error.message}`);
    });
    for (const line of resumed(checkpoint.state, from, this.config)) this.#note(line);
    return step;
  }

  /**
   * Creates the run folder, or reopens it if it belongs to this run. Without space for a checkpoint, the run ends before its first step.
   */
  async #openFolder(folder: RunFolder, step: number, session: S): Promise<void> {
    const { files, path } = folder;
    const { config } = this;
    const { behind } = this.#options;
    await files.tidy(path); // the unfinished files of a killed run take space too
    if (!behind) await checkpoints.expectRoom(files, path, stateBytes(session, config));
    const isOwn = this.#isOwn;
    if (isOwn) {
      if (this.#isChanged) this.#note(`the earlier config was saved as ${await folder.keepConfig()}`);
      const before = await folder.metrics();
      await RunFolder.reopen(files, path, step, config);
      this.history = await folder.metrics();
      const dropped = before.filter((line) => line['training/global_step'] > step).length;
      if (dropped > 0)
        this.#note(
          `the logs of ${dropped} later step${dropped === 1 ? '' : 's'} were deleted, because the run repeats them`,
        );
      if (!behind) this.#savedStep = step;
      if (!behind) this.#takeUnevaluated(step);
    } else {
      const { moved } = await RunFolder.create(files, path, config);
      if (moved) this.#note(`an earlier run of that name was renamed to ${moved}`);
      this.#isOwn = true;
    }
    await this.#host.onFolder?.(isOwn ? step : undefined, session);
    if (behind) return;
    // The next checkpoint replaces the checkpoint that an interrupted run saved only to resume from. It does not replace the last
    // checkpoint of a finished run whose number of steps was raised since.
    const wasLast = (await folder.keptSteps()).includes(this.#savedStep);
    const isPassing = !this.#isChanged && !wasLast && !config.trainer.stopWhen && !this.#isAsked(this.#savedStep);
    const passing = isPassing ? this.#savedStep : undefined;
    this.kept = await KeptCheckpoints.open(folder, config.trainer, { history: this.history, passing });
  }

  /** Takes the line of `step` out of the history if the evaluation that ends the run is missing in it. The trainer then logs the line again. */
  #takeUnevaluated(step: number): void {
    const last = this.history.at(-1);
    const isUnevaluated =
      last?.['training/global_step'] === step && !isEvaluated(last) && isEndOfRun(this.config, last);
    this.#unevaluated = isUnevaluated ? this.history.pop() : undefined;
    if (!isUnevaluated) return;
    this.#isOutdated = true;
    this.#note(`step ${step} lacks the evaluation that ends the run, which is done now`);
  }

  async #onStep(trainer: GrpoTrainer, session: S, done: Omit<LoggedStep, 'tries' | 'at'>): Promise<void> {
    const { metrics, samples } = done;
    const { behind } = this.#options;
    const step = metrics['training/global_step'];
    const tries = loggedRollouts(samples, step, behind ? samples.length : this.config.trainer.logRollouts);
    const logged = { ...done, tries, at: performance.now() };
    await this.write(async (folder) => {
      this.history.push(metrics);
      await (this.#isOutdated ? folder.writeMetrics(this.history) : folder.appendMetrics(metrics));
      [this.#isOutdated, this.#unevaluated] = [false, undefined];
      await this.#host.log?.(folder, logged);
    });
    if (behind ? this.#isDue(step) : this.kept?.isBest(metrics)) await this.#keep(trainer, session);
    this.#step = step;
    await this.#host.onStep?.(logged, trainer, session);
  }

  /** True if the state after a step must be saved, in a run that does not wait for its files. */
  #isDue(step: number): boolean {
    const since = performance.now() - this.#keptAt;
    return this.#isDueSoon || this.#isAsked(step) || since >= Math.max(KEEP_EVERY_MS, TIMES_COST * this.#keepMs);
  }

  /** True if the checkpoint of this step is due by trainer.saveFreq, and not only because of the elapsed time or a signal. */
  #isAsked(step: number): boolean {
    const { saveFreq } = this.config.trainer;
    return saveFreq > 0 && step % saveFreq === 0;
  }

  /**
   * Saves the state after the last step, unless it has been saved already.
   * @param passing true if the next checkpoint replaces this one
   * @param made the state, if it has been read from the device already
   */
  async #keep(trainer: GrpoTrainer, session: S, passing = false, made?: Checkpoint): Promise<void> {
    const { behind, folder } = this.#options;
    const { step } = trainer.state;
    if (step === this.keptStep) return this.kept?.prune(); // a repeated evaluation can have made it the best
    // A run that does not wait for its files saves nothing before its first step, because resuming from that state would be the same as
    // a new start.
    if (behind && (step === 0 || this.#isTooLarge(session, behind))) return;
    const start = performance.now();
    const checkpoint = made ?? (await trainer.checkpoint());
    if (behind) this.#from = checkpoint;
    const files = folder && filesOf(session, checkpoint);
    await this.write(async (to) => {
      await (behind?.save(step, files!) ?? checkpoints.writeCheckpoint(to.files, to.checkpoint(step), files!));
      this.#savedStep = step;
      await this.kept?.update(step, passing);
    });
    [this.#keptAt, this.#isDueSoon] = [performance.now(), false];
    this.#keepMs = performance.measure('webgrpo: keep state', { start }).duration;
  }

  #isTooLarge(session: S, { maxBytes, onProblem }: WritesBehind): boolean {
    const bytes = stateBytes(session, this.config);
    if (bytes <= maxBytes) return false;
    const mib = (n: number) => `${Math.round(n / 2 ** 20)} MiB`;
    const most = `the page saves up to ${mib(maxBytes)}. Train on the command line to save it.`;
    onProblem(new Error(`A checkpoint of this model is ${mib(bytes)}, but ${most}`));
    return true;
  }

  /** Returns the newest state of this run, or the state with which it started. */
  async #newest(): Promise<string | Checkpoint | undefined> {
    const { folder, behind, from } = this.#options;
    if (behind || !folder || !this.#isOwn) return this.#from;
    return (await checkpoints.newestCheckpoint(folder.files, folder.path, 'trainer', this.#note)) ?? from;
  }

  #noteLoss({ message }: Error, losses: number, isLast: boolean): void {
    const when = this.#step < 0 ? 'before the first step was done' : `after step ${this.#step}`;
    const from = typeof this.#from === 'string' ? this.#from : undefined;
    const kept = from === undefined ? 'no checkpoint was saved' : `the newest checkpoint is ${from}`;
    const often = `the GPU device was lost ${losses} times without a new step in between, ${when}: stopped, ${kept}`;
    if (!isLast)
      this.#note(`the GPU device was lost ${when} (${message}), resuming on a new one from ${from ?? 'the start'}`);
    else if (losses > 1) this.#note(often);
  }

  readonly #note = (line: string): void => this.#host.note?.(line);
}

/** Returns lines that tell the user where a run resumes. */
function resumed({ step, carried = [], parts = {} }: TrainerState, from: string, config: TrainConfig): string[] {
  const { rollout, trainer } = config;
  const { totalTrainingSteps } = trainer;
  const done = step >= totalTrainingSteps ? `; trainer.totalTrainingSteps is ${totalTrainingSteps}, so it is done` : '';
  const lines = [`resumed from step ${step}: ${from}${done}`];
  if (carried.length === 0) return lines;
  const { isAsync } = pipelineOf(config);
  const how =
    rollout.overSampleRate === 0 && !isAsync
      ? 'dropped, because rollout.overSampleRate is 0 and trainer.pipeline is on-policy'
      : parts['inFlight'] === undefined
        ? 'restarted'
        : 'resumed with the samples so far';
  const by = isAsync ? 'trainer.pipeline' : 'rollout.partialRollout';
  return [
    ...lines,
    `${carried.length} ${carried.length === 1 ? 'group was' : 'groups were'} in flight (${by}): ${how}`,
  ];
}

function filesOf({ model, lora }: RunSession, checkpoint: Checkpoint): FolderFiles {
  const { weights } = checkpoint;
  if (!lora) return checkpoints.modelFiles({ ...model, weights }, checkpoint);
  return checkpoints.adapterFiles({ lora, tensors: weights, baseModel: model.base }, model, checkpoint);
}

/**
 * Returns a lower bound of the size of a state in bytes: the trained weights, the optimizer's state, and a reference model that changes.
 */
function stateBytes({ model, lora }: RunSession, { actor, trainer }: TrainConfig): number {
  const { name, ...spec } = optimizerOf(actor.optim);
  const moments = name === 'AdamW' ? 2 : 'momentum' in spec && spec.momentum > 0 ? 1 : 0;
  const weightBytes = lora ? planLora(model.config, lora).bytes : parameterCount(model.config) * 4;
  return weightBytes * (1 + moments + (trainer.refUpdateFreq > 0 ? 1 : 0));
}

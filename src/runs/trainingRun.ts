/**
 * A training run of the command line or of the page: its log, its checkpoints, and how it resumes after a stop or a lost device. Its host says how
 * a session is opened, and shows what happens.
 */

import { DeviceLostError, InputError, isA, isEngineLost, StoppedError } from '../errors.ts';
import type { TrainConfig } from '../grpo/config/types.ts';
import type { SampleSource } from '../grpo/generate/samples.ts';
import { withTotalSteps } from '../grpo/generate/trainingSet.ts';
import type { Metrics } from '../grpo/metrics.ts';
import type { MakeRollouter } from '../grpo/pipeline/asyncGroups.ts';
import { GrpoTrainer } from '../grpo/trainer.ts';
import type { Checkpoint, FitResult, StepInputs, TrainerEngine, TrainerEvents, TrainerState } from '../grpo/types.ts';
import type { Sample } from '../grpo/update/batch.ts';
import type { ModelCheckpoint } from '../model/checkpoint/checkpoint.ts';
import { type LoraConfig, planLora } from '../model/lora/weights.ts';
import { optimizerOf } from '../model/optimizer/spec.ts';
import { parameterCount } from '../model/params.ts';
import type { Task } from '../tasks/task.ts';
import { amended } from './amended.ts';
import {
  adapterFiles,
  expectRoom,
  loadTrainerCheckpoint,
  modelFiles,
  newestCheckpoint,
  writeCheckpoint,
} from './checkpointFolder.ts';
import type { FolderFiles } from './fileSystem.ts';
import { type BestCheckpoint, KeptCheckpoints } from './keptCheckpoints.ts';
import { PhaseClock } from './profileLog.ts';
import { type LoggedRollout, loggedRollouts } from './rollouts.ts';
import { RunFolder } from './runFolder.ts';

/** An engine on one device, with its model and its task. */
export interface RunSession {
  engine: TrainerEngine;
  task: Task;
  /** Files that a checkpoint has besides its weights, and the base of an adapter. */
  model: Omit<ModelCheckpoint, 'weights'> & { base: string };
  /** Absent if every weight is trained. */
  lora?: LoraConfig | undefined;
  /** Replaces the samples of the task. */
  source?: SampleSource;
  /** Replaces the rollouter of an asynchronous pipeline. */
  rollouter?: MakeRollouter;
  /** Replaces the run's config for the trainer, and not in config.yaml. */
  config?: TrainConfig;
  /** Rejects when the device or its worker is lost. Absent: every call of the engine rejects then. */
  lost?: Promise<never>;
  /** Frees the device. @param error what ended the run on it, if it has not ended well */
  close(error?: unknown): void | Promise<void>;
}

/** A step that was logged. */
export interface LoggedStep {
  metrics: Metrics;
  samples: Sample[];
  /** The first `trainer.logRollouts` samples; all of them if the run writes behind. */
  tries: LoggedRollout[];
  inputs: StepInputs | undefined;
  /** Times of its phases. */
  phases: ReturnType<PhaseClock['take']>;
  /** Every line of metrics.jsonl, this one the last. */
  history: readonly Metrics[];
}

/** A device that was lost. */
export interface Loss {
  error: Error;
  /** Losses in a row without a new step between them. */
  losses: number;
  /** The last step of that device; -1 = it had none. */
  step: number;
  /** Checkpoint folder to resume from; undefined = the start, or a state in memory. */
  from: string | undefined;
  /** True if the run ends by it. */
  isLast: boolean;
}

/** How a run folder was opened. */
export interface OpenedFolder {
  /** The run resumes in it after this step; -1 = from the start. undefined = the folder is new. */
  reopened?: number;
  /** New name of an earlier run of that name. */
  moved?: string | undefined;
  /** Copy of the config of earlier steps, if it was another one. */
  keptConfig?: string | undefined;
}

/** What the command line and the page do for their run. A function that throws ends the run. */
export interface RunHost<S extends RunSession> extends Pick<
  TrainerEvents,
  'onPhase' | 'onSample' | 'onEvaluating' | 'onValidation' | 'onFault' | 'onChange' | 'onReplace'
> {
  /** Opens a session on a fresh device. May reject with the error of `aborted`. */
  open(aborted: Promise<never>): Promise<S>;
  /** Called with a line about a checkpoint that is damaged or cannot be checked. */
  note?(line: string): void;
  /** Returns lines on how the config differs from that of the run to which a checkpoint folder belongs. */
  changesSince?(from: string, step: number): Promise<readonly string[]>;
  /** Called when the trainer has resumed from a checkpoint folder. */
  onRestored?(state: TrainerState, from: string): void;
  /** Called when the run's folder can be written. */
  onFolder?(folder: RunFolder, opened: OpenedFolder, session: S): Promise<void>;
  /** Called before the first step on each device. */
  onReady?(trainer: GrpoTrainer, session: S): void | Promise<void>;
  /** Writes what the folder holds of a step besides its metrics. */
  log?(folder: RunFolder, step: LoggedStep): Promise<void>;
  /** Called after each step, once its state is kept if that is due. The next step waits for it. */
  onStep?(step: LoggedStep): void | Promise<void>;
  /** Called after the last step, once its state is kept. */
  onEnd?(fitted: FitResult, trainer: GrpoTrainer, session: S): Promise<void>;
  /** Returns the error to throw instead of one that ended the steps. @param keep keeps the state after the last step */
  onFailed?(error: unknown, keep: () => Promise<void>): Promise<unknown>;
  onLost?(loss: Loss): void;
}

/** A run that holds its newest state in memory for the next device, and that does not wait for its files. */
export interface WritesBehind {
  /** A larger state is not kept. */
  maxBytes: number;
  /** Called when something could not be written; the run continues. */
  onProblem(error: Error): void;
  /** Writes the checkpoint of a step, and decides which others stay. */
  save(step: number, files: FolderFiles): Promise<void>;
}

export interface RunOptions {
  config: TrainConfig;
  /** Folder that no other run writes to. Absent: the run is not written. */
  folder?: RunFolder | undefined;
  /** True if the folder is this run's. Default: false, an earlier run in it gets another name. */
  isOwn?: boolean;
  /** Checkpoint folder or state to resume from. */
  from?: string | Checkpoint | undefined;
  /** Milliseconds to wait after each loss of the device in a row before the next one is asked for. Their count is the most losses to survive. */
  waitsMs: readonly number[];
  /** Absent: every write is awaited, and one that fails ends the run. */
  behind?: WritesBehind;
  /** See GrpoTrainerOptions. */
  inspect?: boolean;
}

/** With `behind`: least time between two states, and the least time as a multiple of what the last one took. */
const KEEP_EVERY_MS = 10_000;
const TIMES_COST = 50;

/** Trains until the last step or `stop`, on as many devices as that takes. */
export class TrainingRun<S extends RunSession = RunSession> {
  readonly #options: RunOptions;
  #config: TrainConfig;
  readonly #host: RunHost<S>;
  readonly #aborted: Promise<never>;
  #abort: (error: Error) => void = () => {};
  #session: S | undefined;
  #trainer: GrpoTrainer | undefined;
  #from: string | Checkpoint | undefined;
  #isOwn: boolean;
  /** The checkpoints that stay, unless the run writes behind. */
  #kept: KeptCheckpoints | undefined;
  /** Every line of metrics.jsonl, those before a resume included. */
  #history: Metrics[] = [];
  /** Lines at the end of the history that metrics.jsonl lacks; Infinity = it has to be written again. */
  #lacking = 0;
  #writing = Promise.resolve();
  /** Newest step whose checkpoint is in the folder; -1 = none. */
  #savedStep = -1;
  /** Lines on how the config differs from that of the checkpoint. */
  #changes: readonly string[] = [];
  /** The last step on this device. */
  #step = -1;
  #farthest = -1;
  #hasHadEngine = false;
  #stopping = false;
  #keptAt = -Infinity;
  #keepMs = 0;
  #isDueSoon = false;

  constructor(options: RunOptions, host: RunHost<S>) {
    this.#options = options;
    this.#config = options.config;
    this.#host = host;
    this.#from = options.from;
    this.#isOwn = options.isOwn ?? false;
    if (typeof options.from === 'object') {
      this.#keptAt = performance.now();
      if (options.folder) this.#savedStep = options.from.state.step;
    }
    this.#aborted = new Promise((_, reject) => (this.#abort = reject));
    this.#aborted.catch(() => {}); // `run` rejects with it
  }

  /**
   * Trains until the run ends. The session stays open then; if this rejects, it is closed. A step depends on its checkpoint and the config alone,
   * so that a run that loses devices is the same as one that loses none.
   */
  async run(): Promise<FitResult & { session: S }> {
    const { waitsMs } = this.#options;
    for (let losses = 0; ;) {
      const farthest = this.#farthest;
      try {
        return await this.#onDevice();
      } catch (error) {
        losses = this.#farthest > farthest ? 1 : losses + 1;
        const hadDevice = this.#hasHadEngine || losses > 1 || isA(error, DeviceLostError);
        if (!isEngineLost(error) || !hadDevice || this.#stopping) throw error;
        this.#from = await this.#newest();
        const isLast = losses > waitsMs.length;
        const from = typeof this.#from === 'string' ? this.#from : undefined;
        this.#host.onLost?.({ error: error as Error, losses, step: this.#step, from, isLast });
        if (isLast) throw error;
        // A driver that restarts takes a moment.
        await Promise.race([new Promise((resolve) => setTimeout(resolve, waitsMs[losses - 1])), this.#aborted]);
      }
    }
  }

  /** Ends the run after the step in hand; called again, or before the first step, at once by a StoppedError. */
  stop(): void {
    if (!this.#trainer || this.#stopping) this.#abort(new StoppedError('Stopped.'));
    this.#stopping = true;
    this.#trainer?.stop();
  }

  get isStopping(): boolean {
    return this.#stopping;
  }

  /** Keeps the state after the step in hand, if the run writes behind. */
  keepSoon(): void {
    this.#isDueSoon = true;
  }

  /** Step of the newest state to resume from; -1 = none. */
  get keptStep(): number {
    return typeof this.#from === 'object' ? this.#from.state.step : this.#savedStep;
  }

  /** Steps that are lost if the process ends. */
  get unsavedSteps(): number {
    return Math.max(0, this.#step) - Math.max(0, this.#savedStep);
  }

  /** The config, with the steps that trainer.totalEpochs comes to. */
  get config(): TrainConfig {
    return this.#config;
  }

  get history(): readonly Metrics[] {
    return this.#history;
  }

  get best(): BestCheckpoint | undefined {
    return this.#kept?.best;
  }

  /** Folder of the newest checkpoint, if it is still there. */
  async savedCheckpoint(): Promise<string | undefined> {
    const path = this.#options.folder?.checkpoint(this.#savedStep);
    const isThere = this.#savedStep >= 0 && (await this.#options.folder?.files.exists(path!));
    return isThere ? path : undefined;
  }

  /** Adds values to the line of a step, or a line in its place. */
  amend(metrics: Metrics): void {
    void this.write(async (folder) => {
      this.#history = amended(this.#history, metrics);
      this.#lacking = Infinity;
      await this.#writeLines(folder);
    });
  }

  /** Writes to the folder, if there is one, after what was to be written before. */
  async write(task: (folder: RunFolder) => Promise<void>): Promise<void> {
    const { folder, behind } = this.#options;
    if (!folder) return;
    if (!behind) return task(folder);
    this.#writing = this.#writing.then(() => task(folder)).catch((error: unknown) => behind.onProblem(error as Error));
  }

  /** Resolves when everything is written. */
  get written(): Promise<void> {
    return this.#writing;
  }

  async #onDevice(): Promise<FitResult & { session: S }> {
    this.#step = -1;
    const session = await this.#host.open(this.#aborted);
    this.#session = session;
    try {
      const lost = session.lost ? [session.lost] : [];
      return { ...(await Promise.race([this.#train(session), ...lost, this.#aborted])), session };
    } catch (error) {
      await session.close(error);
      throw error;
    } finally {
      [this.#session, this.#trainer] = [undefined, undefined];
    }
  }

  async #train(session: S): Promise<FitResult> {
    const host = this.#host;
    this.#config = withTotalSteps(this.#options.config, session.task, session.engine.tokenizer);
    const trainer = this.#trainerOf(session);
    const step = await this.#restore(trainer);
    await this.write((folder) => this.#openFolder(folder, step, session));
    this.#trainer = trainer;
    this.#hasHadEngine = true;
    await host.onReady?.(trainer, session);
    try {
      const fitted = await trainer.fit();
      await this.#keep(trainer, session);
      await host.onEnd?.(fitted, trainer, session);
      return fitted;
    } catch (error) {
      if (!host.onFailed) throw error;
      throw await host.onFailed(error, () => this.#keep(trainer, session));
    }
  }

  /** The trainer of a session. What is left of a session that was lost is not heard. */
  #trainerOf(session: S): GrpoTrainer {
    const host = this.#host;
    const isUsed = () => this.#session === session;
    const phases = new PhaseClock();
    const trainer: GrpoTrainer = new GrpoTrainer({
      config: session.config ?? this.#config,
      task: session.task,
      engine: session.engine,
      inspect: this.#options.inspect ?? false,
      ...(session.source && { source: session.source }),
      ...(session.rollouter && { rollouter: session.rollouter }),
      onPhase: (phase, at) => {
        phases.mark(phase);
        if (isUsed()) host.onPhase?.(phase, at);
      },
      onSample: (sample, at) => void (isUsed() && host.onSample?.(sample, at)),
      onEvaluating: (done, total, at) => void (isUsed() && host.onEvaluating?.(done, total, at)),
      onChange: (change) => void (isUsed() && host.onChange?.(change)),
      onReplace: (at) => void (isUsed() && host.onReplace?.(at)),
      onValidation: (samples, at) => host.onValidation?.(samples, at),
      onFault: async (fault) => void (isUsed() && (await host.onFault?.(fault))),
      onStep: (metrics, samples, inputs) =>
        this.#onStep(trainer, session, { metrics, samples, inputs, phases: phases.take() }),
      ...(!this.#options.behind && {
        onCheckpoint: (made) => this.#keep(trainer, session, !this.#isAsked(made.state.step), made),
      }),
    });
    return trainer;
  }

  /** Returns the step to resume after; -1 = the run starts. */
  async #restore(trainer: GrpoTrainer): Promise<number> {
    const [from, host] = [this.#from, this.#host];
    if (from === undefined) return -1;
    const isPath = typeof from === 'string';
    const checkpoint = isPath
      ? await loadTrainerCheckpoint(this.#options.folder!.files, from, (line) => host.note?.(line))
      : from;
    const { step } = checkpoint.state;
    this.#step = step;
    this.#farthest = Math.max(this.#farthest, step);
    this.#changes = (isPath && (await host.changesSince?.(from, step))) || [];
    await trainer.restore(checkpoint).catch((error: unknown) => {
      if (!(error instanceof InputError) || !isPath) throw error;
      throw new InputError(`The run cannot go on from ${from}: ${error.message}`);
    });
    if (isPath) host.onRestored?.(checkpoint.state, from);
    return step;
  }

  /** Makes the run folder, or reopens this run's own. A run that has no space for a checkpoint rejects before its first step. */
  async #openFolder(folder: RunFolder, step: number, session: S): Promise<void> {
    const { files, path } = folder;
    const config = this.#config;
    const { trainer } = config;
    await files.tidy(path); // what a killed run left takes space too
    if (!this.#options.behind) await expectRoom(files, path, stateBytes(session, config));
    let opened: OpenedFolder;
    if (this.#isOwn) {
      const keptConfig = this.#changes.length > 0 ? await folder.keepConfig() : undefined;
      await RunFolder.reopen(files, path, step, config);
      opened = { reopened: step, keptConfig };
      this.#history = await folder.metrics();
      this.#lacking = 0;
      if (!this.#options.behind) this.#savedStep = step;
    } else {
      const { moved } = await RunFolder.create(files, path, config);
      opened = { moved };
    }
    this.#isOwn = true;
    await this.#host.onFolder?.(folder, opened, session);
    if (this.#options.behind) return;
    // The next checkpoint replaces that of a run that was interrupted, not of one that was lengthened since.
    const isPassing = this.#changes.length === 0 && !trainer.stopWhen && !this.#isAsked(this.#savedStep);
    const passing = isPassing ? this.#savedStep : undefined;
    this.#kept = await KeptCheckpoints.open(folder, trainer, { history: this.#history, passing });
  }

  async #onStep(trainer: GrpoTrainer, session: S, done: Omit<LoggedStep, 'tries' | 'history'>): Promise<void> {
    const { metrics, samples } = done;
    const step = metrics['training/global_step'];
    const { behind } = this.#options;
    const tries = loggedRollouts(samples, step, behind ? samples.length : this.#config.trainer.logRollouts);
    const logged = (): LoggedStep => ({ ...done, tries, history: this.#history });
    await this.write(async (folder) => {
      this.#history.push(metrics);
      this.#lacking++;
      await this.#writeLines(folder);
      await this.#host.log?.(folder, logged());
    });
    if (behind ? this.#isDue(step) : this.#kept?.isBest(metrics)) await this.#keep(trainer, session);
    this.#step = step;
    this.#farthest = Math.max(this.#farthest, step);
    await this.#host.onStep?.(logged());
  }

  /** True if the state after a step is to be kept by a run that writes behind. */
  #isDue(step: number): boolean {
    const since = performance.now() - this.#keptAt;
    return this.#isDueSoon || this.#isAsked(step) || since >= Math.max(KEEP_EVERY_MS, TIMES_COST * this.#keepMs);
  }

  /** True if trainer.saveFreq asks for the checkpoint of this step, rather than time or a signal. */
  #isAsked(step: number): boolean {
    const { saveFreq } = this.#config.trainer;
    return saveFreq > 0 && step % saveFreq === 0;
  }

  /**
   * Keeps the state after the last step, unless it is kept already.
   * @param passing the next checkpoint takes its place
   * @param made the state, if it has been taken from the device
   */
  async #keep(trainer: GrpoTrainer, session: S, passing = false, made?: Checkpoint): Promise<void> {
    const { behind } = this.#options;
    const { step } = trainer.state;
    // Before the first step, a page has nothing that a restart would not have.
    if (step === this.keptStep || (behind && (step === 0 || this.#isTooLarge(session, behind)))) return;
    const start = performance.now();
    const checkpoint = made ?? (await trainer.checkpoint());
    if (behind) this.#from = checkpoint;
    const files = this.#options.folder && filesOf(session, checkpoint);
    await this.write(async (folder) => {
      await this.#writeLines(folder);
      await (behind?.save(step, files!) ?? writeCheckpoint(folder.files, folder.checkpoint(step), files!));
      this.#savedStep = step;
      await this.#kept?.update(step, passing);
    });
    [this.#keptAt, this.#isDueSoon] = [performance.now(), false];
    this.#keepMs = performance.measure('webgrpo: keep state', { start }).duration;
  }

  #isTooLarge(session: S, { maxBytes, onProblem }: WritesBehind): boolean {
    const bytes = stateBytes(session, this.#config);
    const mib = (n: number) => `${Math.round(n / 2 ** 20)} MiB`;
    if (bytes <= maxBytes) return false;
    onProblem(
      new Error(
        `A state of this model takes ${mib(bytes)}, and the page keeps up to ${mib(maxBytes)}; the command line saves it.`,
      ),
    );
    return true;
  }

  /** The newest state of this run, or the one that it began with. */
  async #newest(): Promise<string | Checkpoint | undefined> {
    const { folder, behind, from } = this.#options;
    if (behind || !folder || !this.#isOwn) return this.#from;
    return (await newestCheckpoint(folder.files, folder.path, 'trainer', (line) => this.#host.note?.(line))) ?? from;
  }

  /** Writes the lines that metrics.jsonl lacks. */
  async #writeLines(folder: RunFolder): Promise<void> {
    if (this.#lacking > this.#history.length) await folder.writeMetrics(this.#history);
    else if (this.#lacking > 0)
      for (const line of this.#history.slice(-this.#lacking)) await folder.appendMetrics(line);
    this.#lacking = 0;
  }
}

function filesOf({ model, lora }: RunSession, checkpoint: Checkpoint): FolderFiles {
  const { weights } = checkpoint;
  if (lora) return adapterFiles({ lora, tensors: weights, baseModel: model.base }, model, checkpoint);
  return modelFiles({ ...model, weights }, checkpoint);
}

/** Returns the least bytes of a state: the trained weights, what the optimizer keeps of each, and a reference that moves. */
function stateBytes({ model, lora }: RunSession, { actor, trainer }: TrainConfig): number {
  const { name, ...spec } = optimizerOf(actor.optim);
  const moments = name === 'AdamW' ? 2 : 'momentum' in spec && spec.momentum > 0 ? 1 : 0;
  const weightBytes = lora ? planLora(model.config, lora).bytes : parameterCount(model.config) * 4;
  return weightBytes * (1 + moments + (trainer.refUpdateFreq > 0 ? 1 : 0));
}

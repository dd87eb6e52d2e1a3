/** Trains for the command line: prints lines on standard error, handles Ctrl-C, and writes rollouts, trackers and the report. */

import { resolve } from 'node:path';
import { FolderGoneError, NotFiniteError } from '../../errors.ts';
import { forget, keepStep } from '../../extensions/replay/index.ts';
import type { Fault } from '../../grpo/health.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { GrpoTrainer } from '../../grpo/trainer.ts';
import type { FitResult, Phase } from '../../grpo/types.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { type RunSummary, summarizeRun } from '../../report/summary.ts';
import { newestCheckpoint } from '../../runs/checkpointFolder.ts';
import type { BestCheckpoint } from '../../runs/keptCheckpoints.ts';
import { PhaseClock, stepProfile } from '../../runs/profileLog.ts';
import { loggedRollouts, spreadOut } from '../../runs/rollouts.ts';
import type { RunFolder } from '../../runs/runFolder.ts';
import {
  type LoggedStep,
  type RunHost,
  type RunOptions,
  type RunSession,
  TrainingRun,
} from '../../runs/trainingRun.ts';
import { onInterrupt } from '../process/interrupt.ts';
import { isLarge, sayEstimate, sayPlan } from './plan.ts';
import { Progress, repeatProgress, say, sayProgress, stepLine, timeLeft } from './progress.ts';
import { noteLiveChanges } from './namedRun.ts';
import { writeRunReport } from './reports.ts';
import { changesSince, runFolderOfCheckpoint, noteBase, noteTask, setLaterAside } from './resume.ts';
import { openTrackers, type Tracker } from './trackers.ts';

/** Result of a run. */
export interface FinishedRun {
  summary: RunSummary;
  /** True if a signal asked the run to stop, in its last step too. */
  stopped: boolean;
  best: BestCheckpoint | undefined;
  /** See FitResult. */
  warnings: readonly string[];
}

/** Options of `trainInto` that differ between commands. */
interface RunParts extends Pick<RunOptions, 'config'>, Pick<RunHost<RunSession>, 'open'> {
  folder: RunFolder;
  /** Checkpoint folder to resume from; undefined = from the start. */
  from: string | undefined;
  /**
   * Milliseconds to wait before the run continues after device losses in a row: the first number after the first loss, and so on. One loss
   * more than there are numbers ends the run. Default: [0, 1000].
   */
  waitsMs?: readonly number[];
  /** Called on each GPU device before its first step. */
  onReady?(): Promise<void>;
  /** Called when the user asks the run to stop. Returns the line to print. */
  onStop?(): string;
  /** Called after the metrics of a step were logged. */
  onLogged?(metrics: Metrics): void;
}

/** Trains in a locked run folder (heldFolder.ts) and prints the progress. The engine is closed when this returns. */
export const trainInto = (parts: RunParts): Promise<FinishedRun> => new ShownRun(parts).train();

class ShownRun implements RunHost<RunSession> {
  readonly #parts: RunParts;
  readonly #run: TrainingRun;
  readonly #phases = new PhaseClock();
  #trackers: Tracker[] = [];
  #removeHandler: () => void = () => {};
  /** Progress of the current phase, whose finished samples are counted. */
  #progress = new Progress();
  #samples = 0;
  #tokens = 0;
  /** Returns the text of the current phase's progress. */
  #text = () => '';
  #isEvaluating = false;
  #isEstimated = false;
  readonly note = say;

  constructor(parts: RunParts) {
    const { folder, config, from, waitsMs = [0, 1000] } = parts;
    this.#parts = parts;
    const isOwn = from !== undefined && runFolderOfCheckpoint(from) === resolve(folder.path);
    this.#run = new TrainingRun({ folder, config, from, waitsMs, isOwn }, this);
  }

  async train(): Promise<FinishedRun> {
    const { session, stopped, warnings } = await this.#run.run();
    await session.close();
    return {
      stopped: stopped || this.#run.isStopping,
      summary: summarizeRun(this.#run.history),
      best: this.#run.kept?.best,
      warnings,
    };
  }

  async open(aborted: Promise<never>): Promise<RunSession> {
    this.#phases.take(); // discards phases of a lost device
    const session = await this.#parts.open(aborted);
    const stopRepeating = repeatProgress(() => this.#text());
    const close = (error?: unknown) => {
      this.#removeHandler();
      stopRepeating();
      return session.close(error);
    };
    return { ...session, close };
  }

  changesSince(from: string, step: number): Promise<readonly string[]> {
    noteLiveChanges(runFolderOfCheckpoint(from));
    return changesSince(from, this.#run.config, step);
  }

  async onFolder(step: number | undefined, session: RunSession): Promise<void> {
    const { folder } = this.#parts;
    const { config, history } = this.#run;
    this.#isEstimated = step !== undefined || !isLarge(session.model.config) || session.source !== undefined;
    if (step === undefined) sayPlan(config, this.#parts.config, session);
    else {
      await setLaterAside(folder, step);
      await forget(folder, (kept) => kept > step);
    }
    const { from } = this.#parts;
    await noteTask(folder, session.task, from);
    if (from !== undefined) await noteBase(from, session.model.base);
    this.#trackers = await openTrackers(config.trainer.logger, folder, history);
  }

  async onReady(_trainer: GrpoTrainer, session: RunSession): Promise<void> {
    await this.#parts.onReady?.();
    const estimating = new AbortController();
    this.#removeHandler = onInterrupt(() => {
      estimating.abort();
      this.#run.stop();
      const ending = this.#isEvaluating
        ? 'Stopping: this evaluation ends without a result.'
        : 'Stopping after this step.';
      say(this.#parts.onStop?.() ?? `${ending} Press Ctrl-C again to quit without saving.`);
    });
    if (!this.#isEstimated && !session.rollouter)
      // Errors of the estimate are ignored: a sample that fails here fails in step 1 again, and there ends the run, unless trainer.onError
      // skips the sample.
      await sayEstimate(this.#run.config, session, estimating.signal).catch(() => undefined);
    this.#isEstimated = true;
  }

  onPhase(phase: Phase, step: number): void {
    this.#phases.mark(phase);
    this.#isEvaluating = phase === 'validate';
    [this.#progress, this.#samples, this.#tokens] = [new Progress(), 0, 0];
    this.#show(() => `step ${step}: ${this.#progress.phase(phase)}`);
  }

  onSample({ trajectory }: Sample, step: number): void {
    if (this.#isEvaluating) return;
    const { data, rollout } = this.#run.config;
    const [done, total] = [++this.#samples, data.trainBatchSize * rollout.n];
    this.#tokens += trajectory.responseIds.length;
    if (done <= total)
      this.#show(() => `step ${step}: generating, ${this.#progress.text(done, total, 'samples', this.#tokens)}`);
  }

  onEvaluating(done: number, total: number, step: number, tokens: number): void {
    this.#show(() => `step ${step}: evaluating, ${this.#progress.text(done, total, 'problems', tokens)}`);
  }

  #show(text: () => string): void {
    this.#text = text;
    sayProgress(text());
  }

  async onFault({ step, reason, inputs }: Fault): Promise<void> {
    const kept = inputs && ` Its inputs are in ${await this.#parts.folder.writeError(step, inputs)}.`;
    say(`${reason}${kept ?? ''}`);
  }

  async onValidation(samples: Sample[], step: number): Promise<void> {
    const { logValGenerations } = this.#run.config.trainer;
    const shown = spreadOut(samples, logValGenerations);
    await this.#parts.folder.writeValRollouts(step, loggedRollouts(shown, step, logValGenerations));
  }

  async log(folder: RunFolder, { metrics, samples, inputs, tries, at }: LoggedStep): Promise<void> {
    const { config, history } = this.#run;
    const { keepRollouts, profile } = config.trainer;
    const step = metrics['training/global_step'];
    const phases = this.#phases.take(at);
    for (const tracker of this.#trackers) await tracker.log(metrics, history);
    await folder.writeRollouts(step, tries);
    if (keepRollouts !== false && inputs) await keepStep(folder, config, step, samples, inputs);
    if (profile && samples.length > 0) await folder.writeProfile(stepProfile(step, samples, phases));
  }

  onStep({ metrics }: LoggedStep): void {
    const { config, history } = this.#run;
    const { logger, totalTrainingSteps: total } = config.trainer;
    if (logger.includes('console')) say(stepLine(metrics, total, timeLeft(history, total)));
    this.#parts.onLogged?.(metrics);
  }

  async onEnd({ reached }: FitResult): Promise<void> {
    if (reached !== undefined) say(`done early: ${reached}`);
    await writeRunReport(this.#parts.folder);
  }

  /** Writes the report of the steps before a failure, and returns the error to throw. A failure of the report itself is ignored. */
  async onFailed(error: unknown, keep: () => Promise<void>): Promise<unknown> {
    if (error instanceof FolderGoneError) return error;
    const { folder } = this.#parts;
    const saved = folder.checkpoint(this.#run.keptStep);
    const failure = error instanceof NotFiniteError ? await lastGoodState(folder, error, keep) : error;
    if (failure === error)
      say(
        (await folder.files.exists(saved))
          ? `saved until then: ${saved}, trainer.resumeMode=auto resumes from it`
          : 'no checkpoint was saved',
      );
    await writeRunReport(folder).catch(() => undefined);
    return failure;
  }
}

/**
 * Saves the weights after an error about NaN or Infinity, if the weights themselves are finite. Returns the error with a sentence that
 * names the saved or the newest checkpoint.
 */
async function lastGoodState(
  folder: RunFolder,
  error: NotFiniteError,
  keep: () => Promise<void>,
): Promise<NotFiniteError> {
  let state = `The weights are finite and saved as ${folder.checkpoint(error.step)}.`;
  try {
    await keep();
  } catch (second) {
    if (!(second instanceof NotFiniteError)) throw second;
    const newest = await newestCheckpoint(folder.files, folder.path, 'trainer').catch(() => undefined);
    const left = newest ? `The newest checkpoint is ${newest}` : 'The run has no checkpoint (see trainer.saveFreq)';
    state = `Weights that are not finite are not saved. ${left}.`;
  }
  return new NotFiniteError(error.step, `${error.message} ${state}`, { cause: error });
}

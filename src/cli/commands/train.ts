/** `webgrpo train`: a GRPO run from a YAML, with its run folder, progress, Ctrl-C and final table. */

import { dirname, join, resolve } from 'node:path';
import { FolderGoneError, InputError, NotFiniteError } from '../../errors.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseTrainConfig } from '../../grpo/config/text.ts';
import { batchTable } from '../../grpo/config/rules.ts';
import type { Fault } from '../../grpo/health.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { explainLoss } from '../../grpo/losses/explain.ts';
import type { SampleSource } from '../../grpo/generate/samples.ts';
import type { MakeRollouter } from '../../grpo/pipeline/asyncGroups.ts';
import { withTotalSteps } from '../../grpo/generate/trainingSet.ts';
import { isOwnLoss } from '../../grpo/losses/index.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import type { Checkpoint, StepInputs, TrainerEngine } from '../../grpo/types.ts';
import { planLora } from '../../model/lora/weights.ts';
import { optimizerOf } from '../../model/optimizer/spec.ts';
import { parameterCount } from '../../model/params.ts';
import { oneFile } from '../args.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Command, JSON_FLAG, type Output } from '../command.ts';
import {
  adapterFiles,
  loadTrainerCheckpoint,
  modelFiles,
  newestCheckpoint,
  writeCheckpoint,
  expectRoom,
} from '../../runs/checkpointFolder.ts';
import { type BestCheckpoint, KeptCheckpoints } from '../../runs/keptCheckpoints.ts';
import { forget, keepStep } from '../../extensions/replay/index.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { readText } from '../files.ts';
import { resolvedAlgorithm, say, sayPassing, stepLine, timeLeft } from '../run/progress.ts';
import { passAt1 } from '../../report/metricOf.ts';
import { PhaseClock, stepProfile } from '../../runs/profileLog.ts';
import { loggedRollouts, spreadOut } from '../../runs/rollouts.ts';
import { type RunSummary, summarizeRun, summaryTable } from '../../report/summary.ts';
import { writeRunReport } from '../run/reports.ts';
import { type Attempt, onFreshDevices } from '../run/freshDevice.ts';
import { changesSince, checkpointToResume, noteTask, resumeCommand, setLaterAside } from '../run/resume.ts';
import { openSession, type Session } from '../run/session.ts';
import { holdingFolder } from '../process/heldFolder.ts';
import { onInterrupt, STOPPED_EXIT_CODE, STOPS } from '../process/interrupt.ts';
import { withRewardFiles } from '../run/rewardFiles.ts';
import { openTrackers, type Tracker } from '../run/trackers.ts';
import { withWarmStart } from '../run/warmStart.ts';

export const train: Command = {
  summary: 'train by GRPO',
  usage: [
    'train configs/gsm8k-tool.yaml',
    'train configs/gsm8k-tool.yaml seed=2 actor.optim.lr=1e-4',
    'train configs/gsm8k-tool.yaml trainer.resumeMode=auto',
  ],
  flags: { ...JSON_FLAG, ...IMPORT_FLAG },
  details: () => STOPS,
  async run({ positionals, overrides, flags, lists }, io) {
    const source = oneFile(positionals, 'config');
    const config = parseTrainConfig(await readText(source), { source, overrides, note: say });
    const finished = await runTraining(config, () => checkpointToResume(config));
    return tellOfRun(io, config, finished, resumeCommand(source, { overrides, flags, lists }));
  },
};

export interface FinishedRun {
  summary: RunSummary;
  stopped: boolean;
  best: BestCheckpoint | undefined;
  /** See FitResult. */
  warnings: readonly string[];
}

/** Prints what a run came to. Returns the exit code. @param again the command that continues with it */
export function tellOfRun(
  io: Output,
  config: TrainConfig,
  { summary, stopped, best, warnings }: FinishedRun,
  again: string,
): number {
  const path = join(config.trainer.defaultLocalDir, config.name);
  if (stopped) say(`Stopped and saved. To go on: ${again}`);
  io.text(summaryTable(summary));
  for (const warning of warnings) say(warning);
  if (best) io.text(`  best: step ${best.step}, ${best.metric} ${best.value} (${join(path, best.checkpoint)})`);
  io.text(`  run folder: ${path} (open ${join(path, 'report.html')})`);
  io.result({ run: path, stopped, ...(best && { best }), ...summary });
  return stopped ? STOPPED_EXIT_CODE : 0;
}

/**
 * One run into its folder, which no other process writes to meanwhile; its engines are gone when it returns.
 * @param checkpoint says which checkpoint folder to resume from, when the folder is this run's; undefined = from the start
 */
export async function runTraining(
  asked: TrainConfig,
  checkpoint: () => Promise<string | undefined>,
): Promise<FinishedRun> {
  const config = await withRewardFiles(asked);
  const path = join(config.trainer.defaultLocalDir, config.name);
  return holdingFolder(path, async (files) => {
    const folder = RunFolder.open(files, path);
    return onFreshDevices(folder, await checkpoint(), (attempt) => trainIn(folder, config, attempt));
  });
}

async function trainIn(folder: RunFolder, config: TrainConfig, attempt: Attempt): Promise<FinishedRun> {
  const session = await openSession(await withWarmStart(config));
  try {
    const settled = withTotalSteps(config, session.task, session.engine.tokenizer);
    const run = new TrainingRun(settled, session, folder, attempt);
    await run.prepare();
    return await run.fit();
  } finally {
    session.task.close?.();
    session.engine.destroy();
  }
}

/** What a run needs of a session. The campaign gives an engine without a GPU. */
type RunSession = Omit<Session, 'engine'> & {
  engine: TrainerEngine;
  /** Replaces the samples of the task. */
  source?: SampleSource;
  /** Replaces who generates. */
  rollouter?: MakeRollouter;
  /** Hears that the run is to stop after its step, and says how. */
  onStop?: () => string;
  /** Hears of every step when it is logged. */
  onLogged?: (metrics: Metrics) => void;
};

export class TrainingRun {
  readonly #config: TrainConfig;
  readonly #session: RunSession;
  readonly #attempt: Attempt;
  readonly #trainer: GrpoTrainer;
  #folder: RunFolder;
  #kept!: KeptCheckpoints;
  #trackers: Tracker[] = [];
  /** Every line of metrics.jsonl, those before a resume included. */
  #history: Metrics[] = [];
  #savedStep = -1;
  /** Lines on how the config is another than that of the checkpoint. */
  #changes: readonly string[] = [];
  readonly #phases = new PhaseClock();

  constructor(config: TrainConfig, session: RunSession, folder: RunFolder, attempt: Attempt) {
    this.#config = config;
    this.#session = session;
    this.#attempt = attempt;
    this.#folder = folder;
    this.#trainer = new GrpoTrainer({
      config,
      task: session.task,
      engine: session.engine,
      ...(session.source && { source: session.source }),
      ...(session.rollouter && { rollouter: session.rollouter }),
      onPhase: (phase, step) => {
        this.#phases.mark(phase);
        sayPassing(`step ${step}: ${phase}`);
      },
      onStep: (metrics, samples, inputs) => this.#onStep(metrics, samples, inputs),
      onValidation: (samples, step) => this.#onValidation(samples, step),
      onFault: (fault) => this.#onFault(fault),
      onCheckpoint: (checkpoint) => this.#save(checkpoint, !this.#isAsked(checkpoint.state.step)),
    });
  }

  /** Makes the run folder, or continues in the one that is there. */
  async prepare(): Promise<void> {
    const { resumeFrom, again } = this.#attempt;
    if (resumeFrom !== undefined) await this.#restore(resumeFrom);
    await this.#expectRoom();
    if (again || (resumeFrom !== undefined && isCheckpointOf(this.#folder.path, resumeFrom))) await this.#reopen();
    else await this.#create();
    this.#attempt.ownsFolder = true;
    await noteTask(this.#folder, this.#session.task);
    const { trainer } = this.#config;
    // True for a run that was interrupted, not for one that was lengthened since.
    const isPassing = this.#changes.length === 0 && !trainer.stopWhen && !this.#isAsked(this.#savedStep);
    const passing = isPassing ? this.#savedStep : undefined;
    this.#kept = await KeptCheckpoints.open(this.#folder, trainer, { history: this.#history, passing });
    this.#trackers = await openTrackers(trainer.logger, this.#folder, this.#history);
  }

  async #restore(checkpointFolder: string): Promise<void> {
    const checkpoint = await loadTrainerCheckpoint(this.#folder.files, checkpointFolder, say);
    const { step, carried = [], parts = {} } = checkpoint.state;
    this.#attempt.step = step;
    this.#changes = await changesSince(checkpointFolder, this.#config, step);
    for (const line of this.#changes) say(line);
    await this.#trainer.restore(checkpoint).catch((error: unknown) => {
      if (!(error instanceof InputError)) throw error;
      throw new InputError(`The run cannot go on from ${checkpointFolder}: ${error.message}`);
    });
    const { rollout, trainer } = this.#config;
    const { totalTrainingSteps } = trainer;
    const done =
      step >= totalTrainingSteps ? `; trainer.totalTrainingSteps is ${totalTrainingSteps}, so it is done` : '';
    say(`resuming after step ${step}, from ${checkpointFolder}${done}`);
    if (carried.length === 0) return;
    const isAsync = trainer.pipeline !== 'on-policy';
    const how =
      rollout.overSampleRate === 0 && !isAsync
        ? 'they are given up, since rollout.overSampleRate is 0 and trainer.pipeline on-policy now'
        : parts['inFlight'] === undefined
          ? 'they start over'
          : 'their samples go on where they stood';
    say(`${carried.length} groups were under way (${isAsync ? 'trainer.pipeline' : 'rollout.partialRollout'}); ${how}`);
  }

  /** A run that can save nothing says so before it begins, not after an hour. */
  async #expectRoom(): Promise<void> {
    const { model, lora } = this.#session;
    const { files, path } = this.#folder;
    await files.tidy(path); // what a killed run left takes room too
    await expectRoom(
      files,
      path,
      leastBytes(lora ? planLora(model.config, lora).bytes : parameterCount(model.config) * 4, this.#config),
    );
  }

  async #reopen(): Promise<void> {
    const { step } = this.#attempt;
    const { files, path } = this.#folder;
    if (this.#changes.length > 0) say(`the earlier config is kept as ${await this.#folder.keepConfig()}`);
    this.#folder = await RunFolder.reopen(files, path, step, this.#config);
    await setLaterAside(this.#folder, step);
    await forget(this.#folder, (kept) => kept > step);
    this.#history = await this.#folder.metrics();
    this.#savedStep = step;
  }

  async #create(): Promise<void> {
    const { files, path } = this.#folder;
    const { folder, moved } = await RunFolder.create(files, path, this.#config);
    this.#folder = folder;
    if (moved) say(`an earlier run of that name is kept as ${moved}`);
    const { samples, updates, maxTokens } = batchTable(this.#config);
    say(`batches: ${samples} samples a step, ${updates} updates a step, at most ${maxTokens} tokens an update`);
    say(`algorithm: ${resolvedAlgorithm(this.#config)}`);
  }

  async fit(): Promise<FinishedRun> {
    const removeHandler = onInterrupt(() => {
      this.#trainer.stop();
      this.#attempt.stopping = true;
      say(this.#session.onStop?.() ?? 'Stopping after this step; press Ctrl-C again to quit without saving.');
    });
    try {
      const { stopped, reached, warnings } = await this.#trainer.fit();
      if (reached !== undefined) say(`done early: ${reached}`);
      if (this.#savedStep !== this.#trainer.state.step) await this.#save(await this.#trainer.checkpoint());
      await writeRunReport(this.#folder);
      return { stopped, summary: summarizeRun(this.#history), best: this.#kept.best, warnings };
    } catch (error) {
      const failure = error instanceof NotFiniteError ? await this.#lastGoodState(error) : error;
      if (!(failure instanceof FolderGoneError)) await this.#afterFailure(failure);
      throw failure;
    } finally {
      removeHandler();
    }
  }

  /** What was measured until then can be read; where that fails too, the first failure is the one to be told. */
  async #afterFailure(failure: unknown): Promise<void> {
    const saved = this.#folder.checkpoint(this.#savedStep);
    const isThere = this.#savedStep >= 0 && (await this.#folder.files.exists(saved));
    if (!(failure instanceof NotFiniteError))
      say(isThere ? `saved until then: ${saved}; trainer.resumeMode=auto goes on from it` : 'no checkpoint was saved');
    await writeRunReport(this.#folder).catch(() => undefined);
  }

  async #onFault({ step, reason, inputs }: Fault): Promise<void> {
    const kept = inputs && ` What it computed on is in ${await this.#folder.writeError(step, inputs)}.`;
    say(`${reason}${kept ?? ''}`);
  }

  /** Saves weights that are finite; the error says what there is to resume from. */
  async #lastGoodState(error: NotFiniteError): Promise<NotFiniteError> {
    const { files, path } = this.#folder;
    const state = await this.#trainer
      .checkpoint()
      .then((checkpoint) => this.#save(checkpoint))
      .then(() => `The weights are finite and saved as ${this.#folder.checkpoint(error.step)}.`)
      .catch(async (second: unknown) => {
        if (!(second instanceof NotFiniteError)) throw second;
        const newest = await newestCheckpoint(files, path, 'trainer').catch(() => undefined);
        const left = newest ? `the newest checkpoint is ${newest}` : 'the run has no checkpoint (see trainer.saveFreq)';
        return `Weights that are not finite are not saved; ${left}.`;
      });
    return new NotFiniteError(error.step, `${error.message} ${state}`, { cause: error });
  }

  async #onStep(metrics: Metrics, samples: Sample[], inputs?: StepInputs): Promise<void> {
    const { totalTrainingSteps, logRollouts, keepRollouts, profile, logger } = this.#config.trainer;
    const { lossMode } = this.#config.actor.policyLoss;
    const { n } = this.#config.rollout;
    const phases = this.#phases.take();
    this.#history.push(metrics);
    await this.#folder.appendMetrics(metrics);
    for (const tracker of this.#trackers) await tracker.log(metrics, this.#history);
    const step = metrics['training/global_step'];
    this.#attempt.step = step;
    await this.#folder.writeRollouts(step, loggedRollouts(samples, step, logRollouts));
    if (keepRollouts !== false && inputs) await keepStep(this.#folder, this.#config, step, samples, inputs);
    if (profile && samples.length > 0) await this.#folder.writeProfile(stepProfile(step, samples, phases));
    if (logger.includes('console')) {
      const lastPass = this.#history.map(passAt1).findLast((value) => value !== undefined);
      say(stepLine(metrics, totalTrainingSteps, lastPass, timeLeft(this.#history, totalTrainingSteps)));
      const explained =
        step === 1 ? explainLoss(metrics, { ...(isOwnLoss(lossMode) && { ownLoss: lossMode }), n }) : undefined;
      if (explained) say(explained);
    }
    if (this.#kept.isBest(metrics)) await this.#save(await this.#trainer.checkpoint());
    this.#session.onLogged?.(metrics);
  }

  async #onValidation(samples: Sample[], step: number): Promise<void> {
    const { logValGenerations } = this.#config.trainer;
    const shown = spreadOut(samples, logValGenerations);
    await this.#folder.writeValRollouts(step, loggedRollouts(shown, step, logValGenerations));
  }

  /** trainer.saveFreq asks for the checkpoint of this step, rather than time or a signal. */
  #isAsked(step: number): boolean {
    const { saveFreq } = this.#config.trainer;
    return saveFreq > 0 && step % saveFreq === 0;
  }

  /** @param passing the next checkpoint takes its place */
  async #save(checkpoint: Checkpoint, passing = false): Promise<void> {
    const { step } = checkpoint.state;
    if (step === this.#savedStep) return; // as the best, before trainer.saveFreq asked for it
    const { model, lora } = this.#session;
    const { weights } = checkpoint;
    const files = lora
      ? adapterFiles({ lora, tensors: weights, baseModel: model.base }, model, checkpoint)
      : modelFiles({ ...model, weights }, checkpoint);
    await writeCheckpoint(this.#folder.files, this.#folder.checkpoint(step), files);
    this.#savedStep = step;
    await this.#kept.update(step, passing);
  }
}

/** Bytes that a checkpoint has at least: the trained weights, what the optimizer keeps of each, and a reference that moves. */
function leastBytes(weightBytes: number, { actor, trainer }: TrainConfig): number {
  const { name, ...spec } = optimizerOf(actor.optim);
  const kept = name === 'AdamW' ? 2 : 'momentum' in spec && spec.momentum > 0 ? 1 : 0;
  return weightBytes * (1 + kept + (trainer.refUpdateFreq > 0 ? 1 : 0));
}

/** True if a checkpoint folder is one of this run's: the run continues in its folder rather than beside it. */
const isCheckpointOf = (runFolder: string, checkpoint: string): boolean =>
  resolve(dirname(dirname(checkpoint))) === resolve(runFolder);

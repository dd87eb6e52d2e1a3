/** `webgrpo train`: a GRPO run from a YAML, with its run folder, progress, Ctrl-C and final table. */

import { dirname, join, resolve } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseTrainConfig } from '../../grpo/config/text.ts';
import { batchTable } from '../../grpo/config/rules.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { explainLoss } from '../../grpo/losses/explain.ts';
import { withTotalSteps } from '../../grpo/generate/trainingSet.ts';
import { isOwnLoss } from '../../grpo/losses/index.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import type { Checkpoint } from '../../grpo/types.ts';
import { oneFile } from '../args.ts';
import { loadTrainerCheckpoint, saveAdapterCheckpoint, saveModel } from '../run/checkpoints.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { readText } from '../files.ts';
import { type BestCheckpoint, KeptCheckpoints } from '../run/keptCheckpoints.ts';
import { resolvedAlgorithm, say, sayPassing, stepLine, timeLeft } from '../run/progress.ts';
import { passAt1 } from '../../report/metricOf.ts';
import { PhaseClock, stepProfile } from '../../report/profileLog.ts';
import { loggedRollouts, spreadOut } from '../../report/rollouts.ts';
import { type RunSummary, summarizeRun, summaryTable } from '../../report/summary.ts';
import { writeRunReport } from '../run/reports.ts';
import { checkpointToResume, resumeCommand, setLaterAside } from '../run/resume.ts';
import { RunFolder } from '../run/runFolder.ts';
import { openSession, type Session } from '../run/session.ts';
import { onInterrupt } from '../run/interrupt.ts';
import { withRewardFolders } from '../run/rewardFolders.ts';
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
  async run({ positionals, overrides }, io) {
    const source = oneFile(positionals, 'config');
    const config = parseTrainConfig(await readText(source), { source, overrides, note: say });
    const path = join(config.trainer.defaultLocalDir, config.name);
    const { summary, stopped, best } = await runTraining(config, await checkpointToResume(config));
    if (stopped) say(`Stopped and saved. To go on: ${resumeCommand(source, overrides)}`);
    io.text(summaryTable(summary));
    if (best) io.text(`  best: step ${best.step}, ${best.metric} ${best.value} (${join(path, best.checkpoint)})`);
    io.text(`  run folder: ${path} (open ${join(path, 'report.html')})`);
    io.result({ run: path, stopped, ...(best && { best }), ...summary });
  },
};

/** One run into its folder, from the start or from a checkpoint folder; its engine is gone when it returns. */
export async function runTraining(
  config: TrainConfig,
  resumeFrom?: string,
): Promise<{ summary: RunSummary; stopped: boolean; best: BestCheckpoint | undefined }> {
  const session = await openSession(await withWarmStart(config));
  try {
    const settled = withTotalSteps(withRewardFolders(config), session.task, session.engine.tokenizer);
    const run = new TrainingRun(settled, session, join(config.trainer.defaultLocalDir, config.name));
    await run.prepare(resumeFrom);
    return await run.fit();
  } finally {
    session.engine.destroy();
  }
}

class TrainingRun {
  readonly #config: TrainConfig;
  readonly #session: Session;
  readonly #path: string;
  readonly #trainer: GrpoTrainer;
  #folder: RunFolder;
  #kept: KeptCheckpoints;
  #trackers: Tracker[] = [];
  /** Every line of metrics.jsonl, those before a resume included. */
  #history: Metrics[] = [];
  #savedStep = -1;
  readonly #phases = new PhaseClock();

  constructor(config: TrainConfig, session: Session, path: string) {
    this.#config = config;
    this.#session = session;
    this.#path = path;
    this.#folder = RunFolder.open(path);
    this.#kept = new KeptCheckpoints(this.#folder, config.trainer);
    this.#trainer = new GrpoTrainer({
      config,
      task: session.task,
      engine: session.engine,
      onPhase: (phase, step) => {
        this.#phases.mark(phase);
        sayPassing(`step ${step}: ${phase}`);
      },
      onStep: (metrics, samples) => this.#onStep(metrics, samples),
      onValidation: (samples, step) => this.#onValidation(samples, step),
      onCheckpoint: (checkpoint) => this.#save(checkpoint),
    });
  }

  /** Makes the run folder, or goes on in the one that is there. */
  async prepare(resumeFrom: string | undefined): Promise<void> {
    if (resumeFrom !== undefined) await this.#restore(resumeFrom);
    if (resumeFrom !== undefined && isCheckpointOf(this.#path, resumeFrom)) await this.#reopen();
    else await this.#create();
    const { trainer } = this.#config;
    this.#kept = new KeptCheckpoints(this.#folder, trainer, this.#history);
    this.#trackers = await openTrackers(trainer.logger, this.#folder, this.#history);
  }

  async #restore(checkpointFolder: string): Promise<void> {
    const checkpoint = await loadTrainerCheckpoint(checkpointFolder);
    await this.#trainer.restore(checkpoint);
    const { step, carried = [] } = checkpoint.state;
    const { totalTrainingSteps } = this.#config.trainer;
    const done =
      step >= totalTrainingSteps ? `; trainer.totalTrainingSteps is ${totalTrainingSteps}, so it is done` : '';
    say(`resuming after step ${step}, from ${checkpointFolder}${done}`);
    if (carried.length > 0) say(`${carried.length} groups were under way (rollout.partialRollout); they start over`);
  }

  async #reopen(): Promise<void> {
    const { step } = this.#trainer.state;
    this.#folder = await RunFolder.reopen(this.#path, step, this.#config);
    await setLaterAside(this.#folder, step);
    this.#history = await this.#folder.metrics();
    this.#savedStep = step;
  }

  async #create(): Promise<void> {
    const { folder, moved } = await RunFolder.create(this.#path, this.#config);
    this.#folder = folder;
    if (moved) say(`an earlier run of that name is kept as ${moved}`);
    const { samples, updates, maxTokens } = batchTable(this.#config);
    say(`batches: ${samples} samples a step, ${updates} updates a step, at most ${maxTokens} tokens an update`);
    say(`algorithm: ${resolvedAlgorithm(this.#config)}`);
  }

  async fit() {
    const removeHandler = onInterrupt(() => {
      this.#trainer.stop();
      say('Stopping after this step; press Ctrl-C again to quit without saving.');
    });
    try {
      const { stopped, reached } = await this.#trainer.fit();
      if (reached !== undefined) say(`done early: ${reached}`);
      if (this.#savedStep !== this.#trainer.state.step) await this.#save(await this.#trainer.checkpoint());
      return { stopped, summary: summarizeRun(this.#history), best: this.#kept.best };
    } finally {
      removeHandler();
      // Also after a failure: what was measured until then can be read.
      await writeRunReport(this.#folder);
    }
  }

  async #onStep(metrics: Metrics, samples: Sample[]): Promise<void> {
    const { totalTrainingSteps, logRollouts, profile, logger } = this.#config.trainer;
    const { lossMode } = this.#config.actor.policyLoss;
    const phases = this.#phases.take();
    this.#history.push(metrics);
    await this.#folder.appendMetrics(metrics);
    for (const tracker of this.#trackers) await tracker.log(metrics, this.#history);
    const step = metrics['training/global_step'];
    await this.#folder.writeRollouts(step, loggedRollouts(samples, step, logRollouts));
    if (profile && samples.length > 0) await this.#folder.writeProfile(stepProfile(step, samples, phases));
    if (logger.includes('console')) {
      const lastPass = this.#history.map(passAt1).findLast((value) => value !== undefined);
      say(stepLine(metrics, totalTrainingSteps, lastPass, timeLeft(this.#history, totalTrainingSteps)));
      const explained = step === 1 ? explainLoss(metrics, isOwnLoss(lossMode) ? lossMode : undefined) : undefined;
      if (explained) say(explained);
    }
    if (this.#kept.isBest(metrics)) await this.#save(await this.#trainer.checkpoint());
  }

  async #onValidation(samples: Sample[], step: number): Promise<void> {
    const { logValGenerations } = this.#config.trainer;
    const shown = spreadOut(samples, logValGenerations);
    await this.#folder.writeValRollouts(step, loggedRollouts(shown, step, logValGenerations));
  }

  async #save(checkpoint: Checkpoint): Promise<void> {
    const { step } = checkpoint.state;
    if (step === this.#savedStep) return; // as the best, before trainer.saveFreq asked for it
    const { model, lora } = this.#session;
    const { config, tokenizerJson, tokenizerConfigJson } = model;
    const folder = this.#folder.checkpoint(step);
    const { weights } = checkpoint;
    if (lora) await saveAdapterCheckpoint(folder, { lora, tensors: weights, baseModel: model.base }, model, checkpoint);
    else await saveModel(folder, { config, weights, tokenizerJson, tokenizerConfigJson }, checkpoint);
    this.#savedStep = step;
    await this.#kept.update();
  }
}

/** Whether a checkpoint folder is one of this run's: the run goes on in its folder rather than beside it. */
const isCheckpointOf = (runFolder: string, checkpoint: string): boolean =>
  resolve(dirname(dirname(checkpoint))) === resolve(runFolder);

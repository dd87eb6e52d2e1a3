/** `webgrpo train`: a GRPO run from a YAML, with its run folder, progress, Ctrl-C and final table. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseTrainConfig } from '../../grpo/config/text.ts';
import { batchTable } from '../../grpo/config/rules.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { explainLoss } from '../../grpo/losses/explain.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import type { Checkpoint } from '../../grpo/types.ts';
import { InputError } from '../../errors.ts';
import { oneFile } from '../args.ts';
import { loadTrainerCheckpoint, newestCheckpoint, saveAdapterCheckpoint, saveModel } from '../run/checkpoints.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { readText } from '../files.ts';
import { resolvedAlgorithm, say, sayPassing, stepLine, timeLeft } from '../run/progress.ts';
import { passAt1 } from '../../report/metricOf.ts';
import { PhaseClock, stepProfile } from '../../report/profileLog.ts';
import { loggedRollouts } from '../../report/rollouts.ts';
import { type RunSummary, summarizeRun, summaryTable } from '../../report/summary.ts';
import { writeRunReport } from '../run/reports.ts';
import { RunFolder } from '../run/runFolder.ts';
import { openSession, type Session } from '../run/session.ts';
import { onInterrupt } from '../run/interrupt.ts';
import { withRewardFolders } from '../run/rewardFolders.ts';
import { withWarmStart } from '../run/warmStart.ts';

export const train: Command = {
  summary: 'train by GRPO',
  usage: [
    'train configs/gsm8k-tool.yaml',
    'train configs/gsm8k-tool.yaml seed=2 actor.optim.lr=1e-4',
    'train configs/gsm8k-tool.yaml trainer.resume=true',
  ],
  flags: JSON_FLAG,
  async run({ positionals, overrides }, io) {
    const source = oneFile(positionals, 'config');
    const config = parseTrainConfig(await readText(source), { source, overrides, note: say });
    const path = join(config.trainer.outDir, config.name);
    const resumeFrom = config.trainer.resume ? await checkpointToResume(path) : undefined;
    const { summary, stopped } = await runTraining(config, resumeFrom);
    if (stopped) say(`Stopped and saved. To go on: npm run -s webgrpo -- train ${source} ${resumeArgs(overrides)}`);
    io.text(summaryTable(summary));
    io.text(`  run folder: ${path} (open ${join(path, 'report.html')})`);
    io.result({ run: path, stopped, ...summary });
  },
};

/** One run into its folder, from the start or from a checkpoint folder; its engine is gone when it returns. */
export async function runTraining(
  config: TrainConfig,
  resumeFrom?: string,
): Promise<{ summary: RunSummary; stopped: boolean }> {
  const session = await openSession(await withWarmStart(config));
  try {
    const run = new TrainingRun(withRewardFolders(config), session, join(config.trainer.outDir, config.name));
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
  /** Every line of metrics.jsonl, those before a resume included. */
  #history: Metrics[] = [];
  #savedStep = -1;
  readonly #phases = new PhaseClock();

  constructor(config: TrainConfig, session: Session, path: string) {
    this.#config = config;
    this.#session = session;
    this.#path = path;
    this.#folder = RunFolder.open(path);
    this.#trainer = new GrpoTrainer({
      config,
      task: session.task,
      engine: session.engine,
      onPhase: (phase, step) => {
        this.#phases.mark(phase);
        sayPassing(`step ${step}: ${phase}`);
      },
      onStep: (metrics, samples) => this.#onStep(metrics, samples),
      onCheckpoint: (checkpoint) => this.#save(checkpoint),
    });
  }

  /** Makes the run folder, or goes on in the one that is there. */
  async prepare(resumeFrom: string | undefined): Promise<void> {
    if (resumeFrom !== undefined) {
      const checkpoint = await loadTrainerCheckpoint(resumeFrom);
      await this.#trainer.restore(checkpoint);
      this.#folder = await RunFolder.reopen(this.#path, checkpoint.state.step, this.#config);
      this.#history = await this.#folder.metrics();
      say(`resuming after step ${checkpoint.state.step}, from ${resumeFrom}`);
      const startOver = checkpoint.state.carried?.length ?? 0;
      if (startOver > 0) say(`${startOver} groups were under way (rollout.partialRollout); they start over`);
      return;
    }
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
      const { stopped } = await this.#trainer.fit();
      if (this.#savedStep !== this.#trainer.state.step) await this.#save(await this.#trainer.checkpoint());
      return { stopped, summary: summarizeRun(this.#history) };
    } finally {
      removeHandler();
      // Also after a failure: what was measured until then can be read.
      await writeRunReport(this.#folder);
    }
  }

  async #onStep(metrics: Metrics, samples: Sample[]): Promise<void> {
    const { totalTrainingSteps, logRollouts, profile } = this.#config.trainer;
    const phases = this.#phases.take();
    this.#history.push(metrics);
    await this.#folder.appendMetrics(metrics);
    const step = metrics['training/global_step'];
    await this.#folder.writeRollouts(step, loggedRollouts(samples, step, logRollouts));
    if (profile && samples.length > 0) await this.#folder.writeProfile(stepProfile(step, samples, phases));
    const lastPass = this.#history.map(passAt1).findLast((value) => value !== undefined);
    say(stepLine(metrics, totalTrainingSteps, lastPass, timeLeft(this.#history, totalTrainingSteps)));
    const explained = step === 1 ? explainLoss(metrics) : undefined;
    if (explained) say(explained);
  }

  async #save(checkpoint: Checkpoint): Promise<void> {
    const { step } = checkpoint.state;
    const { model, lora } = this.#session;
    const { config, tokenizerJson, tokenizerConfigJson } = model;
    const folder = this.#folder.checkpoint(step);
    const { weights } = checkpoint;
    if (lora) await saveAdapterCheckpoint(folder, { lora, tensors: weights, baseModel: model.base }, model, checkpoint);
    else await saveModel(folder, { config, weights, tokenizerJson, tokenizerConfigJson }, checkpoint);
    this.#savedStep = step;
  }
}

async function checkpointToResume(path: string): Promise<string> {
  const newest = await newestCheckpoint(path);
  if (newest && existsSync(join(newest, 'trainer_state.json'))) return newest;
  throw new InputError(
    `There is nothing to resume in ${path}: it has no checkpoint of a training run. Leave out trainer.resume to start one.`,
  );
}

function resumeArgs(overrides: readonly string[]): string {
  return [...overrides.filter((word) => !word.startsWith('trainer.resume=')), 'trainer.resume=true'].join(' ');
}

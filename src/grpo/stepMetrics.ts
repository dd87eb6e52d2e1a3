/** Report of a step: its phases, their durations in seconds, and its metrics. */

import type { TrainConfig } from './config/types.ts';
import type { GeneratedStep } from './generate/samples.ts';
import { dataMetrics, type Metrics, throughput, timingMetrics } from './metrics.ts';
import type { Phase } from './types.ts';
import { wholeTrajectories } from './update/rows.ts';
import type { StepTokens } from './update/stepTokens.ts';
import type { UpdateResult } from './update/updater.ts';

/** Timed stages of a step, by verl's names (`timing_s/<stage>`), each with the phase that it starts. */
const STAGES = {
  gen: 'generate',
  ref: undefined,
  old_log_prob: 'log-probs',
  update_actor: 'update',
  sync: 'sync',
} as const;

/** Times the stages of one step and reports the start of each phase. */
export class StepTimer {
  /** Seconds by stage; 0 for a skipped stage. `step` is from the timer's creation to the end of the last stage. */
  readonly seconds = { gen: 0, tools: 0, reward: 0, ref: 0, old_log_prob: 0, update_actor: 0, sync: 0, step: 0 };
  readonly #started = performance.now();
  readonly #onPhase: (phase: Phase) => void;

  constructor(onPhase: (phase: Phase) => void) {
    this.#onPhase = onPhase;
  }

  /** Runs the work of a stage and times it. */
  async time<T>(stage: keyof typeof STAGES, work: () => Promise<T> | T): Promise<T> {
    const phase = STAGES[stage];
    if (phase) this.#onPhase(phase);
    const started = performance.now();
    const result = await work();
    const ended = performance.now();
    this.seconds[stage] = (ended - started) / 1000;
    this.seconds.step = (ended - this.#started) / 1000;
    return result;
  }
}

interface StepReport {
  config: TrainConfig;
  step: number;
  generated: GeneratedStep;
  tokens: StepTokens;
  update: UpdateResult;
  timer: StepTimer;
}

/** Returns every metric of a step, under verl's name if verl has one. */
export function stepMetrics({ config, step, generated, tokens, update, timer }: StepReport): Metrics {
  const rows = generated.drawn ?? generated.samples;
  const drawn = wholeTrajectories(rows);
  const trajectories = drawn.map(({ trajectory }) => trajectory);
  const seconds = { ...timer.seconds, ...generated.seconds };
  return {
    'training/global_step': step,
    ...dataMetrics({
      trajectories,
      rows: rows.map(({ trajectory }) => trajectory),
      rewards: drawn.map(({ reward }) => reward),
      ...(generated.drawn ? {} : { finalRewards: tokens.rewards }), // of the samples that are trained on
      groups: drawn.map(({ group }) => group),
      advantages: tokens.advantages,
      masks: tokens.masks,
      maxResponseLength: config.data.maxResponseLength,
      maxPromptLength: config.data.maxPromptLength,
    }),
    ...tokens.metrics,
    ...update.metrics,
    ...generated.metrics,
    ...timingMetrics(seconds, trajectories),
    ...throughput(generated.stats, update.trainedTokens, { ...seconds, gen: generated.genSeconds ?? seconds.gen }),
  };
}

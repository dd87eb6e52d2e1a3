/** Estimates how long a run takes on this machine: recorded times, scaled by the measured speed of this adapter. The speed is stored. */

import { computed, signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { plural } from '../../src/ui/format.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { adapter } from './notices.ts';
import { recipeOf } from './recipes.ts';
import { RECORDED, type Recorded } from './recordedRecipes.ts';

const KEY = 'webgrpo-speed';
const measured = signal<Readonly<Record<string, number>>>(readKept());

/** Seconds that this adapter takes for one second of the recorded machine's work; undefined if not measured. */
export const speed = computed(() => (adapter.value ? measured.value[adapter.value.name] : undefined));

/**
 * Stores `factor` as the speed of the adapter. Called in effects. It reads signals without subscribing, so that its own writes do not start
 * the effect again.
 */
export function keepSpeed(factor: number): void {
  const [name, before] = [adapter.peek()?.name, measured.peek()];
  if (name === undefined || !(factor > 0 && Number.isFinite(factor))) return;
  measured.value = { ...before, [name]: factor };
  try {
    localStorage.setItem(KEY, JSON.stringify(measured.peek()));
  } catch {
    // A browser without storage measures again at each visit.
  }
}

/** First step whose time counts. The step before it compiles kernels. */
export const TIMED_FROM_STEP = 2;

/** Stores the adapter's speed, measured by a step that it has just trained. */
export function keepStepTime(config: TrainConfig, metrics: Metrics): void {
  const factor = metrics['training/global_step'] < TIMED_FROM_STEP ? undefined : factorOf(config, metrics);
  if (factor !== undefined) keepSpeed(factor);
}

function readKept(): Record<string, number> {
  try {
    const kept = Object.entries(JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, unknown>);
    return Object.fromEntries(kept.filter((entry): entry is [string, number] => Number(entry[1]) > 0));
  } catch {
    return {};
  }
}

/** Returns the seconds of an unchanged recipe on the recorded machine. */
export const recipeSeconds = ({ seconds, steps, evaluations }: Recorded): number =>
  seconds.warmStart + steps * seconds.step + evaluations * seconds.evaluation;

/** Returns the recorded run of the config's recipe; undefined if another model, task or length of answers makes its figures wrong. */
function recordedOf({ name, data, model, task }: TrainConfig): Recorded | undefined {
  const recorded = RECORDED[name];
  if (!recorded || task.module !== undefined || data.maxResponseLength !== recorded.tokens) return undefined;
  const path = recorded.seconds.warmStart > 0 ? `configs/${name}-sft.yaml` : `checkpoints/${name}`;
  return model.path === path ? recorded : undefined;
}

/** Returns the seconds of a run on the recorded machine; undefined if no similar run was recorded. */
export function recordedSeconds(config: TrainConfig): number | undefined {
  const recorded = recordedOf(config);
  if (!recorded) return undefined;
  const { data, rollout, trainer } = config;
  const { seconds, tries, evaluated } = recorded;
  const { testFreq, totalTrainingSteps: steps, valBeforeTrain } = trainer;
  const between = testFreq > 0 ? Math.floor((steps - 1) / testFreq) : 0;
  return recipeSeconds({
    ...recorded,
    steps,
    evaluations: Number(valBeforeTrain) + between + 1,
    seconds: {
      ...seconds,
      step: (seconds.step * data.trainBatchSize * rollout.n) / tries,
      evaluation: (seconds.evaluation * data.valMaxSamples) / evaluated,
    },
  });
}

/** Returns the adapter's speed, measured by the newest step of a run; undefined if the run's sizes differ from the recorded run's. */
export function factorOf(config: TrainConfig, { 'timing_s/step': took }: Metrics): number | undefined {
  const recorded = recordedOf(config);
  if (!recorded || took === undefined || !fillsBatch(config, recorded)) return undefined;
  return (took * recorded.tries) / (recorded.seconds.step * config.data.trainBatchSize * config.rollout.n);
}

/**
 * Returns the number of problems for a step that measures an unknown adapter; undefined if the adapter's speed is known, or the run's sizes
 * differ from the recorded run's.
 */
export function problemsToTime(config: TrainConfig): number | undefined {
  const recorded = recordedOf(config);
  if (speed.peek() !== undefined || !recorded || !fillsBatch(config, recorded)) return undefined;
  return Math.min(config.data.trainBatchSize, Math.ceil(recorded.tries / 2 / config.rollout.n));
}

/** Stores the adapter's speed, measured before any run by a step of `problems` problems. */
export function keepTimed(config: TrainConfig, problems: number, seconds: number): void {
  const timed = { ...config, data: { ...config.data, trainBatchSize: problems } };
  const factor = factorOf(timed, { 'timing_s/step': seconds });
  if (factor !== undefined) keepSpeed(factor);
}

/** True if a step has enough tries to measure the adapter. Fewer tries do not fill a decode batch. */
const fillsBatch = ({ data, rollout }: TrainConfig, { tries }: Recorded): boolean =>
  data.trainBatchSize * rollout.n >= tries / 2;

/** Formats a time as "about 3 min". */
export function inWords(seconds: number): string {
  if (seconds < 55) return `about ${Math.max(5, Math.round(seconds / 5) * 5)} s`;
  const minutes = seconds / 60;
  if (minutes < 90) return `about ${minutes < 3 ? Math.max(1, Math.round(minutes * 2) / 2) : Math.round(minutes)} min`;
  return `about ${Math.round(minutes / 60)} h`;
}

/** Formats a time as "about 3 min here", or without a measurement as a time on the recorded machine. */
export function timeInWords(seconds: number): string {
  return speed.value ? `${inWords(seconds * speed.value)} here` : `${inWords(seconds)} on two CPU cores`;
}

/** Formats the GPU memory of the memory plan, given in MiB. */
export const memoryInWords = (mib: number): string =>
  mib >= 1024 ? `${(mib / 1024).toFixed(1)} GB` : `${Math.round(mib)} MB`;

/**
 * Describes the next run in a line: its size, its time, its memory.
 * @param own the unchanged recipe; for other sizes the memory is unknown
 */
export function costOf(config: TrainConfig, own: TrainConfig): string {
  const { data, rollout, trainer, name } = config;
  const [seconds, recorded] = [recordedSeconds(config), recordedOf(config)];
  const isOwnSize = JSON.stringify(engineSizes(config)) === JSON.stringify(engineSizes(own));
  const cost = [
    seconds === undefined ? 'time known after a few steps' : timeInWords(seconds),
    ...(recorded && isOwnSize ? [`${memoryInWords(recorded.memoryMib)} of GPU memory`] : []),
  ];
  return (
    `${data.trainBatchSize} ${recipeOf(name)?.problems ?? 'problems'} \u00d7 ${rollout.n} tries, ` +
    `${plural(trainer.totalTrainingSteps, 'step')}: ${cost.join(', ')}.`
  );
}

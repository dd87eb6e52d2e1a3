/** What a run will take on this machine: times recorded once, scaled by how fast this adapter is, which is measured and kept. */

import { computed, effect, signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { plural } from '../../src/ui/format.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { adapter } from './notices.ts';
import { active, config, history } from './page.ts';
import { recipeOf } from './recipes.ts';
import { RECORDED, type Recorded } from './recordedRecipes.ts';

const KEY = 'webgrpo-speed';
const measured = signal<Readonly<Record<string, number>>>(readKept());

/** This adapter's seconds for one of the recorded machine; undefined = nothing was measured on it. */
export const speed = computed(() => (adapter.value ? measured.value[adapter.value.name] : undefined));

/** Kept by the adapter's name. Effects call it, and must not run again by what it writes. */
export function keepSpeed(factor: number): void {
  const [name, before] = [adapter.peek()?.name, measured.peek()];
  if (name === undefined || !(factor > 0 && Number.isFinite(factor))) return;
  measured.value = { ...before, [name]: factor };
  try {
    localStorage.setItem(KEY, JSON.stringify(measured.peek()));
  } catch {
    // A browser that keeps nothing measures again at each visit.
  }
}

/** The first steps compile kernels. */
const TIMED_FROM_STEP = 2;

/** Keeps the adapter's speed by the steps of every run. */
export function watchSpeed(): void {
  effect(() => {
    const [of, last] = [config.value, history.value.at(-1)];
    if (!active.value || !of || !last || last['training/global_step'] < TIMED_FROM_STEP) return;
    const factor = factorOf(of, last);
    if (factor !== undefined) keepSpeed(factor);
  });
}

function readKept(): Record<string, number> {
  try {
    const kept = Object.entries(JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, unknown>);
    return Object.fromEntries(kept.filter((entry): entry is [string, number] => Number(entry[1]) > 0));
  } catch {
    return {};
  }
}

/** Seconds of a recipe as it is, on the recorded machine. */
export const recipeSeconds = ({ seconds, steps, evaluations }: Recorded): number =>
  seconds.warmStart + steps * seconds.step + evaluations * seconds.evaluation;

/** Seconds of a run on the recorded machine; undefined if nothing like it was recorded. */
export function recordedSeconds({ name, data, rollout, trainer }: TrainConfig): number | undefined {
  const recorded = RECORDED[name];
  if (!recorded) return undefined;
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

/** How fast the adapter is by the newest step of a run; undefined if the run is of other sizes than the recorded one. */
export function factorOf(config: TrainConfig, { 'timing_s/step': took }: Metrics): number | undefined {
  const recorded = RECORDED[config.name];
  if (!recorded || took === undefined || !isAsRecorded(config, recorded)) return undefined;
  return (took * recorded.tries) / (recorded.seconds.step * config.data.trainBatchSize * config.rollout.n);
}

/** Problems of a step that tells how fast an unknown adapter is; undefined if it is known, or the run is of other sizes. */
export function problemsToTime(config: TrainConfig): number | undefined {
  const recorded = RECORDED[config.name];
  if (speed.peek() !== undefined || !recorded || !isAsRecorded(config, recorded)) return undefined;
  return Math.min(config.data.trainBatchSize, Math.ceil(recorded.tries / 2 / config.rollout.n));
}

/** Keeps how fast the adapter is by a step of so many problems, before any run. */
export function keepTimed(config: TrainConfig, problems: number, seconds: number): void {
  const timed = { ...config, data: { ...config.data, trainBatchSize: problems } };
  const factor = factorOf(timed, { 'timing_s/step': seconds });
  if (factor !== undefined) keepSpeed(factor);
}

/** Few tries do not fill a pass, and shorter answers take less. */
function isAsRecorded({ data, rollout }: TrainConfig, { tries, tokens }: Recorded): boolean {
  return data.trainBatchSize * rollout.n >= tries / 2 && data.maxResponseLength === tokens;
}

/** "about 3 min". */
export function inWords(seconds: number): string {
  if (seconds < 55) return `about ${Math.max(5, Math.round(seconds / 5) * 5)} s`;
  const minutes = seconds / 60;
  if (minutes < 90) return `about ${minutes < 3 ? Math.max(1, Math.round(minutes * 2) / 2) : Math.round(minutes)} min`;
  return `about ${Math.round(minutes / 60)} h`;
}

/** "about 3 min here", or where nothing was measured yet, of the machine that was. */
export function timeInWords(seconds: number): string {
  return speed.value ? `${inWords(seconds * speed.value)} here` : `${inWords(seconds)} on two CPU cores`;
}

/** Bytes of the plan, as people say them. */
export const memoryInWords = (mib: number): string =>
  mib >= 1024 ? `${(mib / 1024).toFixed(1)} GB` : `${Math.round(mib)} MB`;

/**
 * The next run in a line: how much of what, how long, how much memory.
 * @param own the recipe as it is: of other sizes the memory is not known
 */
export function costOf(config: TrainConfig, own: TrainConfig): string {
  const { data, rollout, trainer, name } = config;
  const [seconds, recorded] = [recordedSeconds(config), RECORDED[name]];
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

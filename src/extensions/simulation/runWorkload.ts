/** Derives the work of a profiled run: tokens and waits of its samples, and the cost of a device pass. */

import { InputError } from '../../errors.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { EventSpan, SampleProfile, StepProfile } from '../../runs/profileLog.ts';
import type { DecodeCost, SampleWork, Workload } from './workload.ts';

/** Kinds of event during which a sample is in the passes of the device. */
const IN_PASSES = ['prefill', 'decode', 'sample'];

/** Metrics whose sum is the training time of a step. */
const TRAINING = ['timing_s/old_log_prob', 'timing_s/ref', 'timing_s/update_actor'];

/**
 * Returns the work of the steps that have a profile. Tokens per turn are not logged, so a sample's tokens are split in proportion
 * to the time of its turns. Throws InputError if no step has both profile and metrics.
 */
export function runWorkload(profiles: readonly StepProfile[], history: readonly Metrics[]): Workload {
  const byStep = new Map(history.map((metrics) => [metrics['training/global_step'], metrics]));
  const known = profiles.flatMap((profile) => {
    const metrics = byStep.get(profile.step);
    return metrics && profile.samples.length > 0 ? [{ profile, metrics }] : [];
  });
  if (known.length === 0)
    throw new InputError(
      'No step of the run has both a profile and metrics. Train with trainer.profile on (the default).',
    );
  // Programs compile in the first step, so costs are read from the others.
  const warm = known.length > 1 ? known.slice(1) : known;
  const mean = (of: (metrics: Metrics) => number) =>
    warm.reduce((sum, { metrics }) => sum + of(metrics), 0) / warm.length;
  const trained = (metrics: Metrics) => TRAINING.reduce((sum, name) => sum + (metrics[name] ?? 0), 0);
  return {
    steps: known.map(({ profile }) => profile.samples.map(workOf)),
    decode: decodeCost(warm.map(({ profile }) => profile)),
    trainSeconds: known.map((step) => (warm.includes(step) ? trained(step.metrics) : mean(trained))),
    syncSeconds: mean((metrics) => metrics['timing_s/sync'] ?? 0),
    promptTokens: mean((metrics) => metrics['prompt_length/mean'] ?? 0),
  };
}

/** Returns the events in passes of the device; engines that do not separate them report 'generate' instead. */
function passesOf({ events }: SampleProfile): EventSpan[] {
  const parts = events.filter(([kind]) => IN_PASSES.includes(kind));
  return parts.length > 0 ? parts : events.filter(([kind]) => kind === 'generate');
}

function workOf(sample: SampleProfile): SampleWork {
  const passes = passesOf(sample);
  const milliseconds = (events: readonly EventSpan[]) => events.reduce((sum, [, , start, end]) => sum + end - start, 0);
  const [all, last] = [milliseconds(passes), Math.max(0, ...passes.map(([, turn]) => turn))];
  const turns = Array.from({ length: last + 1 }, (_, turn) => {
    const own = passes.filter((event) => event[1] === turn);
    const waits = sample.events.filter(([kind, at]) => ['tool', 'reward'].includes(kind) && at === turn + 1);
    const share = all > 0 ? milliseconds(own) / all : 1 / (last + 1);
    return { tokens: sample.tokens * share, toolSeconds: lengthOf(waits) / 1000 };
  });
  return { group: Number(sample.id.split('.')[0]), turns };
}

/** Returns the milliseconds from the first start to the last end, because tools of one turn overlap. */
const lengthOf = (events: readonly EventSpan[]): number =>
  events.length === 0
    ? 0
    : Math.max(...events.map(([, , , end]) => end)) - Math.min(...events.map(([, , start]) => start));

/** Seconds of a sample in passes, by the number of sequences in them. */
interface Decoded {
  tokens: number;
  seconds: Map<number, number>;
}

/**
 * Fits the decode cost: among L sequences, a sequence gains a token in perPass + perRow x L seconds. For each ratio of the two, a
 * sample's time equals a number of passes of a sequence alone. The chosen ratio makes these most nearly proportional to its tokens.
 */
function decodeCost(steps: readonly StepProfile[]): DecodeCost {
  const samples = steps.flatMap(decodedSamples);
  const fits = RATIOS.map((ratio) => fitOf(samples, ratio));
  return fits.reduce((best, fit) => (fit.error < best.error ? fit : best));
}

/** Candidates of perRow / perPass: 0, then from a thousandth to a thousand. */
const RATIOS = [0, ...Array.from({ length: 601 }, (_, i) => 10 ** (i / 100 - 3))];

function fitOf(samples: readonly Decoded[], ratio: number): DecodeCost & { error: number } {
  let [xx, xt, tt] = [0, 0, 0];
  for (const { tokens, seconds } of samples) {
    let alone = 0;
    for (const [live, time] of seconds) alone += time / (1 + ratio * live);
    [xx, xt, tt] = [xx + alone * alone, xt + alone * tokens, tt + tokens * tokens];
  }
  const perPass = tt > 0 ? xt / tt : 0;
  // The angle between times and tokens, because residuals of small times are small for any ratio.
  return { perPass, perRow: ratio * perPass, error: 1 - (xt * xt) / (xx * tt) };
}

function decodedSamples({ samples }: StepProfile): Decoded[] {
  const changes = samples.flatMap(passesOf).flatMap(([, , start, end]) => [
    { at: start, by: 1 },
    { at: end, by: -1 },
  ]);
  changes.sort((a, b) => a.at - b.at);
  const live: number[] = [];
  for (const { by } of changes) live.push((live.at(-1) ?? 0) + by);
  return samples
    .filter(({ tokens }) => tokens > 0)
    .map((sample) => {
      const seconds = new Map<number, number>();
      for (const [, , start, end] of passesOf(sample))
        for (let i = changes.findIndex(({ at }) => at >= start); i + 1 < changes.length && changes[i].at < end; i++)
          seconds.set(live[i], (seconds.get(live[i]) ?? 0) + (changes[i + 1].at - changes[i].at) / 1000);
      return { tokens: sample.tokens, seconds };
    });
}

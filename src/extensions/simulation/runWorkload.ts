/** Derives the input of a simulation from a profiled run: tokens and tool times of its samples, and the cost of a decoding pass. */

import { InputError } from '../../errors.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { EventSpan, SampleProfile, StepProfile } from '../../runs/profileLog.ts';
import type { DecodeCost, SampleWork, Workload } from './workload.ts';

/** Kinds of profile events in which a sample is part of a pass on the device. */
const IN_PASSES = ['prefill', 'decode', 'sample'];

/** Metrics whose sum is the training time of a step. */
const TRAINING = ['timing_s/old_log_prob', 'timing_s/ref', 'timing_s/update_actor'];

/**
 * Returns the workload of the steps that have a profile. The profile does not have the number of tokens per turn, so the tokens of a sample
 * are distributed over its turns in proportion to their times. Throws InputError if no step has both a profile and metrics.
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
  // The first step includes the compilation of kernels, so times are taken from the other steps.
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

/** Returns the events in which the sample was part of a pass. Engines that do not report single passes have only 'generate' events. */
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

/**
 * Returns the milliseconds from the first start to the last end of the events. Their durations are not added up, because tool calls of one
 * turn overlap.
 */
const lengthOf = (events: readonly EventSpan[]): number =>
  events.length === 0
    ? 0
    : Math.max(...events.map(([, , , end]) => end)) - Math.min(...events.map(([, , start]) => start));

/** Number of tokens of a sample, and its seconds in passes, by the number of sequences in a pass. */
interface Decoded {
  tokens: number;
  seconds: Map<number, number>;
}

/**
 * Fits the cost of decoding: in a pass with L sequences, each gains one token in perPass + perRow x L seconds. For each candidate of the
 * ratio perRow / perPass, the time of a sample is converted to the time of a sequence alone. The ratio is chosen at which these times are
 * most nearly proportional to the samples' numbers of tokens.
 */
function decodeCost(steps: readonly StepProfile[]): DecodeCost {
  const samples = steps.flatMap(decodedSamples);
  const fits = RATIOS.map((ratio) => fitOf(samples, ratio));
  return fits.reduce((best, fit) => (fit.error < best.error ? fit : best));
}

/** Candidates for perRow / perPass: 0, and values from 0.001 to 1000. */
const RATIOS = [0, ...Array.from({ length: 601 }, (_, i) => 10 ** (i / 100 - 3))];

function fitOf(samples: readonly Decoded[], ratio: number): DecodeCost & { error: number } {
  let [xx, xt, tt] = [0, 0, 0];
  for (const { tokens, seconds } of samples) {
    let alone = 0;
    for (const [live, time] of seconds) alone += time / (1 + ratio * live);
    [xx, xt, tt] = [xx + alone * alone, xt + alone * tokens, tt + tokens * tokens];
  }
  const perPass = tt > 0 ? xt / tt : 0;
  // Times and numbers of tokens, one entry per sample, are two vectors. The error is the squared sine of the angle between them: residuals
  // would favour ratios that make all times small.
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

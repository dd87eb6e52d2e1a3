/** Statistics of a run's events: how time was spent, how long the slowest samples took, and which settings to change. */

import type { EventKind } from '../../rollout/agent/events.ts';
import type { EventSpan, SampleProfile, StepProfile } from '../../runs/profileLog.ts';

/** Event kinds in the order in which they are drawn. 'generate' occurs only if the engine does not report the parts of it. */
export const KINDS: EventKind[] = [
  'start',
  'queue',
  'prefill',
  'decode',
  'sample',
  'generate',
  'parse',
  'tool',
  'reward',
  'wait',
];

/** Fraction of a step's samples, the slowest, that counts as the tail. */
const TAIL = 0.2;

/** Returns the milliseconds from the start of the step until the sample was scored; 0 if the sample has no events. */
export const endOf = ({ events }: SampleProfile): number =>
  events.reduce((last, [, , , end]) => Math.max(last, end), 0);

/** Returns a sample's events, and its wait for the step's other samples as a last event. Omits 'generate' if the parts of it are known. */
export function timeline(sample: SampleProfile, stepEnd: number): EventSpan[] {
  const parts = sample.events.some(([kind]) => kind === 'decode');
  const events = parts ? sample.events.filter(([kind]) => kind !== 'generate') : sample.events;
  const end = endOf(sample);
  return end < stepEnd ? [...events, ['wait', sample.turns, end, stepEnd]] : events;
}

/** Returns the times at which the samples of a step ended, in order, for the curve of finished samples. */
export const completions = ({ samples }: StepProfile): number[] => samples.map(endOf).sort((a, b) => a - b);

/**
 * Returns the fraction of the samples' time that each event kind took; their sum is 1. Of overlapping tool calls in one turn, each counts
 * in full.
 */
export function timeShares(steps: readonly StepProfile[]): Partial<Record<EventKind, number>> {
  const sums: Partial<Record<EventKind, number>> = {};
  for (const step of steps) {
    const last = completions(step).at(-1) ?? 0;
    for (const sample of step.samples)
      for (const [kind, , start, end] of timeline(sample, last)) sums[kind] = (sums[kind] ?? 0) + end - start;
  }
  const total = Object.values(sums).reduce((a, b) => a + b, 0);
  return Object.fromEntries(Object.entries(sums).map(([kind, ms]) => [kind, total > 0 ? ms / total : 0]));
}

export interface TailReport {
  /** Fraction of generation time that was left when 80% of the samples had finished. */
  share: number;
  /** Milliseconds of generation that were left when 80% of the samples had finished. */
  tailMs: number;
  generationMs: number;
  /** Mean per sample (tokens, turns): of the slowest fifth of the samples, and of all others. */
  tokens: { tail: number; others: number };
  turns: { tail: number; others: number };
  /** Number of samples in the slowest fifth, by stop reason. */
  stops: Record<string, number>;
}

/** Returns statistics of the slowest fifth of a step's samples; undefined if the step has too few samples. */
export function tailReport({ samples }: StepProfile): TailReport | undefined {
  if (samples.length < 5) return undefined;
  const byEnd = [...samples].sort((a, b) => endOf(a) - endOf(b));
  const cut = Math.floor(byEnd.length * (1 - TAIL));
  const [others, tail] = [byEnd.slice(0, cut), byEnd.slice(cut)];
  const generationMs = endOf(byEnd[byEnd.length - 1]);
  const tailMs = generationMs - endOf(others[others.length - 1]);
  const means = (of: (sample: SampleProfile) => number) => ({ tail: mean(tail.map(of)), others: mean(others.map(of)) });
  return {
    share: generationMs > 0 ? tailMs / generationMs : 0,
    tailMs,
    generationMs,
    tokens: means(({ tokens }) => tokens),
    turns: means(({ turns }) => turns),
    stops: countBy(tail.map(({ stop }) => stop)),
  };
}

/** Settings of a run that the advice refers to. */
export interface ProfiledSettings {
  maxResponseLength: number;
  maxNumSeqs: number;
  toolTimeoutS: number;
}

/** Returns sentences that advise which settings to change; empty if nothing is conspicuous. */
export function advice(steps: readonly StepProfile[], settings: ProfiledSettings): string[] {
  const samples = steps.flatMap((step) => step.samples);
  if (samples.length === 0) return [];
  const shares = timeShares(steps);
  return [
    ...lengthAdvice(samples, settings.maxResponseLength),
    ...tailAdvice(steps),
    ...queueAdvice(samples.length / steps.length, shares.queue ?? 0, settings.maxNumSeqs),
    ...toolAdvice(samples, shares.tool ?? 0, settings.toolTimeoutS),
  ];
}

function lengthAdvice(samples: SampleProfile[], limit: number): string[] {
  const completed = samples.filter(({ stop }) => stop === 'completed').map(({ tokens }) => tokens);
  const cut = samples.filter(({ stop }) => stop === 'max_tokens').length / samples.length;
  if (cut > 0.1)
    return [`${percent(cut)} of the samples were cut at data.maxResponseLength ${limit}: raise it, or mask them.`];
  const p99 = nearestRank(completed, 0.99);
  const enough = Math.ceil((1.25 * p99) / 16) * 16;
  if (completed.length < 20 || enough >= 0.75 * limit) return [];
  return [
    `99% of completed samples have at most ${p99} tokens: data.maxResponseLength ${enough} instead of ${limit} would do.`,
  ];
}

function tailAdvice(steps: readonly StepProfile[]): string[] {
  const reports = steps.flatMap((step) => tailReport(step) ?? []);
  const share = mean(reports.map((report) => report.share));
  if (reports.length === 0 || share < 0.35) return [];
  const [tail, others] = [mean(reports.map((r) => r.tokens.tail)), mean(reports.map((r) => r.tokens.others))];
  const said = `The last fifth of the samples took ${percent(share)} of generation`;
  if (tail > 1.5 * others)
    return [
      `${said}, with ${tail.toFixed(0)} tokens against ${others.toFixed(0)}: a lower data.maxResponseLength shortens it.`,
    ];
  return [`${said}, though they are hardly longer: look at the tools and the queue in the timelines below.`];
}

function queueAdvice(samplesAStep: number, share: number, maxNumSeqs: number): string[] {
  if (share < 0.2 || maxNumSeqs >= samplesAStep) return [];
  return [
    `${percent(share)} of the samples' time was waiting for a slot: raise rollout.maxNumSeqs above ${maxNumSeqs}.`,
  ];
}

function toolAdvice(samples: SampleProfile[], share: number, timeoutS: number): string[] {
  if (share < 0.3) return [];
  const ms = samples.flatMap(({ events }) =>
    events.flatMap(([kind, , start, end]) => (kind === 'tool' ? [end - start] : [])),
  );
  const p95 = nearestRank(ms, 0.95) / 1000;
  const limit =
    p95 * 2 < timeoutS ? `; rollout.multiTurn.toolTimeoutS ${(2 * p95).toPrecision(2)} would cut only outliers` : '';
  return [`${percent(share)} of the samples' time was tools (95% answered within ${p95.toPrecision(2)} s)${limit}.`];
}

/** Returns how often each value occurs. */
export function countBy<T extends string | number>(values: readonly T[]): Record<T, number> {
  const counts = {} as Record<T, number>;
  for (const value of values) counts[value] = (counts[value] ?? 0) + 1;
  return counts;
}

/** Returns the nearest-rank quantile; NaN without values. At least a fraction `q` of the values is not above it. */
export function nearestRank(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? NaN;
}

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / Math.max(1, values.length);
const percent = (share: number) => `${(100 * share).toFixed(0)}%`;

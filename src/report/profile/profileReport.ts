/** Content of profile.html: how a run spent its time, in a few selected steps and in the complete run. */

import type { EventKind } from '../../rollout/agent/events.ts';
import type { EventSpan, SampleProfile, StepProfile } from '../../runs/profileLog.ts';
import {
  advice,
  completions,
  countBy,
  endOf,
  type ProfiledSettings,
  type TailReport,
  tailReport,
  timeline,
  timeShares,
} from './profileStats.ts';
import { spreadOut } from '../../runs/rollouts.ts';

export interface ProfileReport {
  kind: 'profile';
  title: string;
  steps: number;
  samples: number;
  /** Sentences that advise which settings to change. */
  advice: string[];
  /** Times at which the samples of a step were finished, in order: milliseconds since the start of the step. */
  completions: { step: number; times: number[] }[];
  /** Share of the rollout time of all samples that each kind of event took: in a few selected steps, and in the complete run. */
  shares: { label: string; shares: Partial<Record<EventKind, number>> }[];
  /** True if sampling tokens is a separate event, not part of 'decode'. */
  samplingTimed: boolean;
  /** Milliseconds by phase. */
  phases: { step: number; spent: Record<string, number> }[];
  tails: (TailReport & { step: number })[];
  tokens: Histogram;
  turns: Histogram;
  /** Samples by stop reason. */
  stops: Record<string, number>;
  slowest: SlowSample[];
}

/** Number of values in each bin of a histogram. Bin b covers `low + b * width` to `low + (b + 1) * width - 1`. */
export interface Histogram {
  low: number;
  width: number;
  counts: number[];
}

export interface SlowSample extends Pick<SampleProfile, 'id' | 'tokens' | 'turns' | 'stop'> {
  step: number;
  /** Milliseconds from the start of the step to the end of the sample. */
  end: number;
  events: EventSpan[];
}

/** Number of steps that are shown, including the first and the last. */
const STEPS_SHOWN = 6;
const SLOWEST = 12;
const MOST_BINS = 40;

/** Returns the content of profile.html. */
export function profileReport(title: string, steps: readonly StepProfile[], settings: ProfiledSettings): ProfileReport {
  const samples = steps.flatMap((step) => step.samples);
  const shown = spreadOut(steps, STEPS_SHOWN);
  const shares = shown.map((step) => ({ label: `step ${step.step}`, shares: timeShares([step]) }));
  return {
    kind: 'profile',
    title,
    steps: steps.length,
    samples: samples.length,
    advice: advice(steps, settings),
    completions: shown.map((step) => ({ step: step.step, times: completions(step) })),
    shares: steps.length > 1 ? [...shares, { label: 'all', shares: timeShares(steps) }] : shares,
    samplingTimed: samples.some(({ events }) => events.some(([kind]) => kind === 'sample')),
    phases: shown.map((step) => ({ step: step.step, spent: phaseTimes(step) })),
    tails: shown.flatMap((step) => {
      const tail = tailReport(step);
      return tail ? [{ step: step.step, ...tail }] : [];
    }),
    tokens: histogram(samples.map(({ tokens }) => tokens)),
    turns: histogram(samples.map(({ turns }) => turns)),
    stops: countBy(samples.map(({ stop }) => stop)),
    slowest: slowest(steps),
  };
}

/** Returns the milliseconds of each phase of a step, in the order of their start. */
function phaseTimes({ phases }: StepProfile): Record<string, number> {
  const spent: Record<string, number> = {};
  for (const [name, start, end] of phases) spent[name] = (spent[name] ?? 0) + end - start;
  return spent;
}

/** Returns a histogram with bins of equal integer width. Without values it is empty. */
export function histogram(values: readonly number[]): Histogram {
  if (values.length === 0) return { low: 0, width: 1, counts: [] };
  const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const width = Math.max(1, Math.ceil((high - low + 1) / MOST_BINS));
  const counts = new Array<number>(Math.floor((high - low) / width) + 1).fill(0);
  for (const value of values) counts[Math.floor((value - low) / width)]++;
  return { low, width, counts };
}

/** Returns the slowest samples of all steps, each with its events on the time axis of its step. */
function slowest(steps: readonly StepProfile[]): SlowSample[] {
  const all = steps.flatMap(({ step, samples }) => samples.map((sample) => ({ step, sample, end: endOf(sample) })));
  return all
    .sort((a, b) => b.end - a.end)
    .slice(0, SLOWEST)
    .map(({ step, sample, end }) => {
      const { id, tokens, turns, stop } = sample;
      return { step, id, tokens, turns, stop, end, events: timeline(sample, end) };
    });
}

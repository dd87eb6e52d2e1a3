/**
 * A replaced reward, and what the visitor expected of it: the effect is measured by evaluations of few problems while the reward is
 * replaced.
 */

import { computed, signal } from '@preact/signals';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { passAt1 } from '../../src/report/metricOf.ts';
import { quickOf } from './measured.ts';
import { history } from './page.ts';
import { inForceSince } from './rules.ts';

export type Guess = 'up' | 'same' | 'down';

/** The visitor's newest guess about a replaced reward; undefined = no guess since another run was shown. */
export const bet = signal<{ name: string; guess: Guess } | undefined>(undefined);

/** First step that was scored with the replaced reward; undefined if no step used it yet, or if the reward is the task's own. */
export const rewardSince = computed(() => inForceSince('reward'));

/** Largest change of the share solved that counts as no change, in evaluations of 32 problems. */
const SAME = 0.05;

interface Measured {
  step: number;
  value: number;
}

/** Returns the evaluations in a history, of any number of problems, oldest first. */
const evaluations = (lines: readonly Metrics[]): Measured[] =>
  lines.flatMap((line) => {
    const value = passAt1(line) ?? quickOf(line)?.value;
    return value === undefined ? [] : [{ step: line['training/global_step'], value }];
  });

/**
 * Share of problems solved in the last evaluation before the reward was replaced, and in the newest one since; undefined if one is missing.
 */
export const fall = computed((): { from: Measured; to: Measured } | undefined => {
  const since = rewardSince.value;
  if (since === undefined) return undefined;
  const all = evaluations(history.value);
  const from = all.findLast(({ step }) => step < since);
  const to = all.findLast(({ step }) => step >= since);
  return from && to && { from, to };
});

/** Returns what happened as a sentence: "It fell from 0.88 to 0.05 by step 20." */
export function fallInWords({ from, to }: NonNullable<typeof fall.value>): string {
  const by = to.value - from.value;
  const values = `${from.value.toFixed(2)} to ${to.value.toFixed(2)}`;
  const moved = Math.abs(by) < SAME ? `It hardly moved: ${values}` : `It ${by > 0 ? 'rose' : 'fell'} from ${values}`;
  return `${moved} by step ${to.step}.`;
}

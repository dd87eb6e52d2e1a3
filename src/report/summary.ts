/** Summarises a run in a dozen numbers. The table is printed at the end of the run and shown at the top of its report. */

import type { Metrics } from '../grpo/metrics.ts';
import { fixed, greedyAcc, passAt1 } from './metricOf.ts';
import { plural } from '../ui/format.ts';

export interface RunSummary {
  steps: number;
  /** Accuracy in the evaluation before training, and in the one of the last step. Null if that evaluation was not done. */
  passAt1: { before: number | null; after: number | null };
  greedy: { before: number | null; after: number | null };
  meanReward: { first: number | null; last: number | null };
  toolCallsPerSample: { first: number | null; last: number | null };
  responseLength: { first: number | null; last: number | null };
  tokensGenerated: number;
  tokensTrained: number;
  /** Seconds of each phase, summed over steps. */
  seconds: Record<string, number>;
  /** Largest difference |p(rollout) - p(trainer)| of a token before an update. */
  rolloutProbsDiffMax: number | null;
}

/** Metric of each phase, by the phase's name in the table. The `timing_s/` names are verl's. */
const PHASES: Record<string, string> = {
  generate: 'timing_s/gen',
  tools: 'timing_s/tools',
  reward: 'timing_s/reward',
  'log-probs': 'timing_s/old_log_prob',
  reference: 'timing_s/ref',
  update: 'timing_s/update_actor',
  sync: 'timing_s/sync',
  evaluate: 'timing_s/testing',
};

/** Phases that overlap generation. */
const WITHIN: readonly string[] = ['tools', 'reward'];

/** Returns the summary of a run. */
export function summarizeRun(history: readonly Metrics[]): RunSummary {
  const steps = history.filter((line) => line['timing_s/step'] !== undefined);
  const before = history.find((line) => line['training/global_step'] === 0) ?? {};
  const beforeAfter = (read: (line: Metrics) => number | undefined) => ({
    before: read(before) ?? null,
    after: read(steps.at(-1) ?? {}) ?? null,
  });
  // Single steps differ by chance, so these are means over the first and the last tenth of the steps.
  const firstLast = (name: string) => {
    const values = steps.map((line) => line[name]).filter((value) => value !== undefined);
    const tenth = Math.ceil(values.length / 10);
    const mean = (of: number[]) => (of.length > 0 ? of.reduce((sum, value) => sum + value, 0) / of.length : null);
    return { first: mean(values.slice(0, tenth)), last: mean(values.slice(-tenth)) };
  };
  const total = (name: string) => history.reduce((sum, line) => sum + (line[name] ?? 0), 0);
  const diffs = steps.map((line) => line['training/rollout_probs_diff_max']).filter((value) => value !== undefined);
  return {
    steps: steps.length,
    passAt1: beforeAfter(passAt1),
    greedy: beforeAfter(greedyAcc),
    meanReward: firstLast('critic/score/mean'),
    toolCallsPerSample: firstLast('tool_call_counts/mean'),
    responseLength: firstLast('response_length/mean'),
    tokensGenerated: total('perf/generated_tokens'),
    tokensTrained: total('perf/trained_tokens'),
    seconds: Object.fromEntries(Object.entries(PHASES).map(([phase, name]) => [phase, total(name)])),
    rolloutProbsDiffMax: diffs.length > 0 ? diffs.reduce((a, b) => Math.max(a, b), 0) : null,
  };
}

/** Returns the table that is printed at the end of a run. */
export function summaryTable(summary: RunSummary): string {
  const row = (name: string, a: number | null, b: number | null, digits: number) =>
    `  ${name.padEnd(22)}${show(a, digits).padStart(10)}${show(b, digits).padStart(10)}`;
  const { passAt1: pass, greedy, meanReward, toolCallsPerSample, responseLength, seconds } = summary;
  const spent = (phases: readonly (readonly [string, number])[]) =>
    phases.filter(([, s]) => s > 0).map(([phase, s]) => `${phase} ${s < 10 ? s.toFixed(1) : s.toFixed(0)}`);
  const within = spent(WITHIN.map((phase) => [phase, seconds[phase]]));
  const phases = spent(Object.entries(seconds).filter(([phase]) => !WITHIN.includes(phase))).map((text) =>
    text.startsWith('generate') && within.length > 0 ? `${text} (${within.join(', ')} of it)` : text,
  );
  return [
    `  ${`after ${plural(summary.steps, 'step')}`.padEnd(22)}${'before'.padStart(10)}${'after'.padStart(10)}`,
    row('pass@1', pass.before, pass.after, 3),
    row('pass@1 greedy', greedy.before, greedy.after, 3),
    row('mean reward', meanReward.first, meanReward.last, 3),
    row('tool calls per sample', toolCallsPerSample.first, toolCallsPerSample.last, 2),
    row('response length', responseLength.first, responseLength.last, 1),
    `  tokens: ${summary.tokensGenerated} generated, ${summary.tokensTrained} trained`,
    `  seconds: ${phases.join(', ')}`,
  ].join('\n');
}

const show = (value: number | null, digits: number) => (value === null ? '-' : fixed(value, digits));

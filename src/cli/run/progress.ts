/** What a run says while it goes: one line a step on standard error, and the table at its end. */

import type { TrainConfig } from '../../grpo/config/resolve.ts';
import type { FitResult } from '../../grpo/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';

/** A line that the next one overwrites on a terminal, and that is left out elsewhere. */
export function sayPassing(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

export function say(text: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\x1b[K${text}\n` : `${text}\n`);
}

/** `val-core/<task>/acc/mean@k` of a line of metrics; k is whatever valKwargs.n says. */
export function passAt1(metrics: Metrics): number | undefined {
  const key = Object.keys(metrics).find((name) => /^val-core\/.*\/acc\/mean@\d+$/.test(name));
  return key === undefined ? undefined : metrics[key];
}

export function greedyAcc(metrics: Metrics): number | undefined {
  const key = Object.keys(metrics).find((name) => /^val-core\/.*\/acc\/greedy$/.test(name));
  return key === undefined ? undefined : metrics[key];
}

/** What the algorithm's name and the config's own keys come to, in a line. Terms that are off are left out. */
export function resolvedAlgorithm({ actor, algorithm }: TrainConfig): string {
  const { clipRatioLow, clipRatioHigh, clipRatioC, entropyCoeff, klLossCoef, klLossType } = actor;
  return [
    algorithm.name,
    `loss ${actor.lossMode} (clip ${clipRatioLow} / ${clipRatioHigh}, c ${clipRatioC})`,
    `advantage ${algorithm.advEstimator} (scale ${algorithm.scaleRewards})`,
    actor.lossAggMode,
    actor.useKlLoss ? `KL loss ${klLossType} x ${klLossCoef}` : '',
    algorithm.useKlInReward ? `KL in reward ${algorithm.klPenalty} x ${algorithm.klCtrl.klCoef}` : '',
    entropyCoeff > 0 ? `entropy bonus ${entropyCoeff}` : '',
    algorithm.filterGroups.enable ? `dynamic sampling on ${algorithm.filterGroups.metric}` : '',
    algorithm.maskTruncated ? 'truncated samples masked' : '',
  ]
    .filter(Boolean)
    .join(', ');
}

/** One step of a GRPO run. `secondsLeft` is a guess from the steps so far. */
export function stepLine(
  metrics: Metrics,
  total: number,
  lastPassAt1: number | undefined,
  secondsLeft: number,
): string {
  const parts = [
    `step ${metrics['training/global_step']}/${total}`,
    field('reward', metrics['critic/score/mean'], 3),
    field('pass@1', passAt1(metrics) ?? lastPassAt1, 3),
    field('kl', metrics['actor/kl_loss'] ?? metrics['actor/ppo_kl'], 4),
    field('entropy', metrics['actor/entropy'], 3),
    field('tokens/s', metrics['perf/throughput'], 0),
    Number.isFinite(secondsLeft) ? `left ${clock(secondsLeft)}` : '',
  ];
  return parts.filter((part) => part !== '').join('  ');
}

/** Seconds the rest of a run takes: mean of its steps, evaluations included. */
export function timeLeft(history: readonly Metrics[], total: number): number {
  const steps = history.filter((line) => line['timing_s/step'] !== undefined);
  if (steps.length === 0) return NaN;
  const seconds = steps.reduce((sum, line) => sum + line['timing_s/step'] + (line['timing_s/testing'] ?? 0), 0);
  return (seconds / steps.length) * (total - steps.length);
}

export interface RunSummary {
  steps: number;
  passAt1: { before: number | null; after: number | null };
  greedy: { before: number | null; after: number | null };
  meanReward: { first: number | null; last: number | null };
  toolCallsPerSample: { first: number | null; last: number | null };
  responseLength: { first: number | null; last: number | null };
  tokensGenerated: number;
  tokensTrained: number;
  /** Seconds by phase, summed over steps. */
  seconds: Record<string, number>;
  /** Largest |p(rollout) - p(trainer)| before an update. */
  rolloutProbsDiffMax: number | null;
}

/** Phases as the table names them; `timing_s/` keys are verl's. */
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

export function summarize({ history }: Pick<FitResult, 'history'>): RunSummary {
  const steps = history.filter((line) => line['timing_s/step'] !== undefined);
  const ends = (read: (line: Metrics) => number | undefined, lines: readonly Metrics[]) => {
    const values = lines.map(read).filter((value) => value !== undefined);
    return [values[0] ?? null, values.at(-1) ?? null] as const;
  };
  const before = history.filter((line) => line['training/global_step'] === 0);
  const beforeAfter = (read: (line: Metrics) => number | undefined) => ({
    before: ends(read, before)[0],
    after: ends(read, steps)[1],
  });
  const firstLast = (name: string) => {
    const [first, last] = ends((line) => line[name], steps);
    return { first, last };
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

/** The table a run ends with. */
export function summaryTable(summary: RunSummary): string {
  const row = (name: string, a: number | null, b: number | null, digits: number) =>
    `  ${name.padEnd(22)}${show(a, digits).padStart(10)}${show(b, digits).padStart(10)}`;
  const { passAt1: pass, greedy, meanReward, toolCallsPerSample, responseLength, seconds } = summary;
  const phases = Object.entries(seconds)
    .filter(([, spent]) => spent > 0)
    .map(([phase, spent]) => `${phase} ${spent < 10 ? spent.toFixed(1) : spent.toFixed(0)}`);
  return [
    `  ${`after ${summary.steps} steps`.padEnd(22)}${'before'.padStart(10)}${'after'.padStart(10)}`,
    row('pass@1', pass.before, pass.after, 3),
    row('pass@1 greedy', greedy.before, greedy.after, 3),
    row('mean reward', meanReward.first, meanReward.last, 3),
    row('tool calls a sample', toolCallsPerSample.first, toolCallsPerSample.last, 2),
    row('response length', responseLength.first, responseLength.last, 1),
    `  tokens: ${summary.tokensGenerated} generated, ${summary.tokensTrained} trained`,
    `  seconds: ${phases.join(', ')}`,
  ].join('\n');
}

const show = (value: number | null, digits: number) => (value === null ? '-' : value.toFixed(digits));

const field = (name: string, value: number | undefined, digits: number) =>
  value === undefined ? '' : `${name} ${value.toFixed(digits)}`;

function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}

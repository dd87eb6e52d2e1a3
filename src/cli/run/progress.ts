/** Prints the progress of a run: one line per step on standard error. */

import type { TrainConfig } from '../../grpo/config/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { fixed, passAt1 } from '../../report/metricOf.ts';
import { currentIo, type Io } from '../process/io.ts';
import { plural } from '../../ui/format.ts';

/** Prints a temporary line, which the next line overwrites. Prints nothing unless standard error is a terminal. */
export function sayPassing(text: string): void {
  const { stderr } = currentIo();
  if (stderr.isTTY) stderr.write(`\r\x1b[K${text}`);
}

/** Prints a permanent line on standard error. */
export function say(text: string): void {
  const io = currentIo();
  const { stderr } = io;
  saidAt.set(io, performance.now());
  stderr.write(stderr.isTTY ? `\r\x1b[K${text}\n` : `${text}\n`);
}

/** Time of the last permanent line, from `performance.now()`. */
const saidAt = new WeakMap<Io, number>();
const QUIET_MS = 30_000;

/**
 * Prints the progress of a step or an evaluation: on a terminal as a temporary line, otherwise only if no line was printed for 30 s. Does not
 * print an empty text.
 */
export function sayProgress(text: string): void {
  const io = currentIo();
  if (text === '') return;
  if (io.stderr.isTTY) sayPassing(text);
  else if (performance.now() - (saidAt.get(io) ?? 0) >= QUIET_MS) say(text);
}

/** Name of the work between the memory plan and the line about the adapter. */
export const LOADING = 'loading weights and compiling kernels';

const BEAT_MS = 5000;

/**
 * Prints the progress again every 30 s while no part of a long task ends. Returns a function that stops this. Prints nothing on a terminal,
 * where the last temporary line stays visible.
 */
export function repeatProgress(text: () => string): () => void {
  if (currentIo().stderr.isTTY) return () => {};
  const timer = setInterval(() => sayProgress(text()), BEAT_MS).unref();
  return () => clearInterval(timer);
}

/** Runs a task that prints nothing of its own: its name is on the terminal, or every 30 s in the log. `text` replaces the name. */
export async function whileWorking<T>(name: string, work: (show: (text: string) => void) => Promise<T>): Promise<T> {
  const progress = new Progress();
  let text: string | undefined;
  sayPassing(name);
  const stop = repeatProgress(() => text ?? progress.phase(name));
  const show = (next: string) => sayProgress((text = next));
  try {
    return await work(show);
  } finally {
    stop();
  }
}

/** Runs an evaluation and shows its progress. The argument of `evaluate` is the trainer's event `onEvaluating`. */
export const whileEvaluating = <T>(
  evaluate: (onEvaluating: (done: number, total: number, step: number, tokens: number) => void) => Promise<T>,
): Promise<T> =>
  whileWorking('evaluating', (show) => {
    const progress = new Progress();
    return evaluate((done, total, _, tokens) => show(`evaluating: ${progress.text(done, total, 'problems', tokens)}`));
  });

/** Formats the progress of a task with many parts, and estimates the remaining time from the mean duration of the finished parts. */
export class Progress {
  readonly #started = performance.now();

  /** Returns for example "12 of 48 problems, 960 tokens, 1:30 left"; before the first part has ended, the elapsed time instead. */
  text(done: number, total: number, unit: string, tokens = 0): string {
    const counts = [`${done} of ${total} ${unit}`, ...(tokens > 0 ? [plural(tokens, 'token')] : [])];
    const left = (this.seconds / done) * (total - done);
    return [
      ...counts,
      ...(done > 0 && done < total ? [`${clock(left)} left`] : []),
      ...(done === 0 ? this.#soFar : []),
    ].join(', ');
  }

  /** Returns the name of a phase whose parts cannot be counted, with the elapsed time. */
  phase(name: string): string {
    return [name, ...this.#soFar].join(', ');
  }

  get seconds(): number {
    return (performance.now() - this.#started) / 1000;
  }

  get #soFar(): string[] {
    return this.seconds * 1000 < QUIET_MS ? [] : [`${clock(this.seconds)} so far`];
  }
}

/**
 * Returns one line with the loss, advantage and other settings of the algorithm: those of the named recipe, except where the config sets
 * its own. Omits terms that are off.
 */
export function resolvedAlgorithm({ actor, algorithm }: TrainConfig): string {
  const { clipRatioLow, clipRatioHigh, clipRatioC, entropyCoeff, klLossCoef, klLossType } = actor;
  return [
    algorithm.name,
    `loss ${actor.policyLoss.lossMode} (clip ${clipRatioLow} / ${clipRatioHigh}, c ${clipRatioC})`,
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

/**
 * Returns the line that is printed for a GRPO step.
 * @param secondsLeft estimated seconds until the run ends
 */
export function stepLine(metrics: Metrics, total: number, secondsLeft: number): string {
  const parts = [
    `step ${metrics['training/global_step']}/${total}`,
    field('reward', metrics['critic/score/mean'], 3),
    field('pass@1', passAt1(metrics), 3),
    field('kl', metrics['actor/kl_loss'] ?? metrics['actor/ppo_kl'], 4),
    field('entropy', metrics['actor/entropy'], 3),
    field('tools cut', metrics['tools/cut_share'] || undefined, 2),
    field('tokens/s', metrics['perf/throughput'], 0),
    Number.isFinite(secondsLeft) ? `left ${clock(secondsLeft)}` : '',
  ];
  return parts.filter((part) => part !== '').join('  ');
}

/** Estimates the seconds until the run ends from the mean duration of the steps so far, evaluations included. */
export function timeLeft(history: readonly Metrics[], total: number): number {
  const steps = history.filter((line) => line['timing_s/step'] !== undefined);
  if (steps.length === 0) return NaN;
  const seconds = steps.reduce((sum, line) => sum + line['timing_s/step'] + (line['timing_s/testing'] ?? 0), 0);
  return (seconds / steps.length) * (total - steps.at(-1)!['training/global_step']);
}

const field = (name: string, value: number | undefined, digits: number) =>
  value === undefined ? '' : `${name} ${fixed(value, digits)}`;

/** Formats seconds as m:ss. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}

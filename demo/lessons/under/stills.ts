/** Data of the appendix, the numbers in its text, and its pictures for readers without JavaScript. */

import { line, picture, round, text } from '../kit/plot.ts';
import { EPS } from './judge.ts';
import data from './recorded.json' with { type: 'json' };
import type { Scored } from './sentence.ts';

interface Recorded extends Scored {
  command: string;
  commit: string;
  adapter: string;
  date: string;
  problem: string;
  text: string;
  /** Gradient of output 1 of ROW by the library's kernel. */
  kernel: number[];
}

export const RECORDED: Recorded = data;
export const SOURCE = `Recorded: ${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}, ${RECORDED.date}.`;

/** Numbers of threads in figure A.1. */
export const THREADS = [1, 2, 4, 8, 16];

/** Adds numbers in 32 bits as a workgroup does: each thread adds every `threads`-th number, then the sums are added in order. */
export function sumBy(values: readonly number[], threads: number): number {
  const sums = new Float32Array(threads);
  values.forEach((value, i) => (sums[i % threads] += value));
  return sums.reduce((total, sum) => Math.fround(total + sum), 0);
}

const exact = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);

/** Distance between a number of 32 bits and the next one. */
const gap = (value: number): number => 2 ** (Math.floor(Math.log2(Math.abs(value))) - 23);

/** Returns a sum of 32 bits with all the digits that tell it from its neighbours. */
export const digits = (sum: number): string => sum.toPrecision(9).replace('-', '\u2212');

/** Returns a number with seven decimals. */
export const small = (value: number): string => value.toFixed(7).replace('-', '\u2212');

/** The recorded log-probs, added by each number of threads. `gaps`: distance to the first sum, in neighbouring numbers of 32 bits. */
export const SUMS = THREADS.map((threads) => {
  const sum = sumBy(RECORDED.whole, threads);
  return { threads, sum, gaps: Math.round((sum - sumBy(RECORDED.whole, 1)) / gap(sum)) };
});

export const sumsInWords = (threads: number): string => {
  const { sum, gaps } = SUMS.find((one) => one.threads === threads)!;
  const same =
    gaps === 0
      ? 'the same number as'
      : `${Math.abs(gaps)} ${Math.abs(gaps) === 1 ? 'step' : 'steps'} of the last bit from the sum`;
  const compared = threads === 1 ? '' : `, ${same} by 1 thread`;
  return `Added by ${threads} ${threads === 1 ? 'thread' : 'threads'}: ${digits(sum)}${compared}. With 64 bits: ${exact(RECORDED.whole).toPrecision(12).replace('-', '\u2212')}.`;
};

/** Number of tokens whose two log-probs have the same bits. */
export const equalBits = ({ cached, whole }: Scored): number =>
  whole.filter((value, t) => Object.is(value, cached[t])).length;

export const scoredInWords = (scored: Scored): string => {
  const [count, equal] = [scored.tokens.length, equalBits(scored)];
  const most = Math.max(...scored.whole.map((value, t) => Math.abs(value - scored.cached[t])));
  const found =
    equal === count
      ? `all ${count} log-probs are equal, bit for bit`
      : `${equal} log-probs are equal bit for bit, and the others differ by at most ${most.toExponential(1)}`;
  return `${count} tokens: ${found}. Together the text has log-prob ${exact(scored.whole).toFixed(2).replace('-', '\u2212')}.`;
};

/** The row of figure A.3: the first eight recorded log-probs. The loss is output 1, so only its own gradient is 1. */
export const ROW = RECORDED.whole.slice(0, 8);
export const WEIGHT = ROW.map(() => 1);
export const DY = ROW.map((_, k) => (k === 0 ? 1 : 0));

const mean = (values: readonly number[]): number => exact(values) / values.length;

/** Returns the gradient of RMSNorm's input. */
export function byHand(x: readonly number[], weight: readonly number[], dy: readonly number[], eps: number): number[] {
  const rstd = 1 / Math.sqrt(mean(x.map((value) => value * value)) + eps);
  const common = mean(x.map((value, k) => weight[k] * dy[k] * value)) * rstd ** 2;
  return x.map((value, k) => rstd * (weight[k] * dy[k] - value * common));
}

export type Bits = 32 | 64;

/** Returns output 1 of RMSNorm. With 32 bits every result is rounded. */
function firstOutput(x: readonly number[], bits: Bits): number {
  const r = bits === 32 ? Math.fround : (value: number) => value;
  const sum = x.reduce((total, value) => r(total + r(r(value) * r(value))), 0);
  return r(r(x[0]) * r(1 / r(Math.sqrt(r(r(sum / x.length) + EPS)))));
}

/** Returns the gradient by finite differences: each input is moved by `h` to both sides. */
export const byDifference = (h: number, bits: Bits): number[] =>
  ROW.map((_, k) => {
    const moved = (by: number) =>
      firstOutput(
        ROW.map((value, i) => (i === k ? value + by : value)),
        bits,
      );
    return (moved(h) - moved(-h)) / (2 * h);
  });

export const GRADIENT = byHand(ROW, WEIGHT, DY, EPS);

/** Largest difference between a gradient and the one by hand. */
export const errorOf = (gradient: readonly number[]): number =>
  Math.max(...gradient.map((value, k) => Math.abs(value - GRADIENT[k])));

/** Negative exponents of the steps in figure A.3, from 10 to 1e-12. */
const [LEAST, MOST] = [-1, 12];
export const EXPONENTS = Array.from({ length: 2 * (MOST - LEAST) + 1 }, (_, i) => LEAST + i / 2);
const errors = (bits: Bits) =>
  EXPONENTS.map((exponent) => Math.max(errorOf(byDifference(10 ** -exponent, bits)), 1e-13));
const CURVES = { 32: errors(32), 64: errors(64) };

const errorAt = (exponent: number, bits: Bits): number => CURVES[bits][EXPONENTS.indexOf(exponent)];

export const inPowers = (value: number): string => value.toExponential(0).replace('e-', 'e\u2212').replace('e+', 'e');

const best = (bits: Bits) => {
  const least = Math.min(...CURVES[bits]);
  return { error: least, h: 10 ** -EXPONENTS[CURVES[bits].indexOf(least)] };
};

export const gradientInWords = (exponent: number, bits: Bits, kernel: readonly number[]): string =>
  `With a step of ${inPowers(10 ** -exponent)} and ${bits} bits the finite difference is wrong by up to ${inPowers(errorOf(byDifference(10 ** -exponent, bits)))}, the kernel by ${inPowers(errorOf(kernel))}.`;

const SIZE = { width: 360, height: 230, left: 44, right: 10, top: 20, bottom: 44 };

/** Draws the error of the finite difference over its step, for 32 and 64 bits, and a line for the kernel's. */
export function errorPlot(exponent: number, kernel: readonly number[], label: string): string {
  const { width, height, left, right, top, bottom } = SIZE;
  const x = (of: number) => left + ((of - LEAST) / (MOST - LEAST)) * (width - left - right);
  const y = (error: number) => top + (-Math.max(-13, Math.min(0, Math.log10(error))) / 13) * (height - top - bottom);
  const curve = (bits: Bits) => EXPONENTS.map((of, i) => `${round(x(of))},${round(y(CURVES[bits][i]))}`).join(' ');
  const content = [
    ...[0, 4, 8, 12].flatMap((of) => [
      line('grid', left, y(10 ** -of), width - right, y(10 ** -of)),
      text('tick end', left - 6, y(10 ** -of) + 4, of === 0 ? '1' : `1e\u2212${of}`),
    ]),
    ...[0, 4, 8, 12].map((of) =>
      text(`tick ${of === MOST ? 'end' : 'middle'}`, x(of), height - bottom + 16, of === 0 ? '1' : `1e\u2212${of}`),
    ),
    line('mean', x(exponent), top, x(exponent), height - bottom),
    line('axis', left, y(errorOf(kernel)), width - right, y(errorOf(kernel))),
    text('tick end', width - right, y(errorOf(kernel)) + 14, 'kernel'),
    `<polyline class="curve curve-a" points="${curve(32)}"/>`,
    `<polyline class="curve curve-b" points="${curve(64)}"/>`,
    text('tick end', x(9), y(errorAt(9, 32)) - 8, '32 bits'),
    text('tick', x(8), y(errorAt(8, 64)) + 18, '64 bits'),
    text('tick', 0, 11, 'largest error'),
    text('tick middle', (left + width - right) / 2, height - 6, 'step of the finite difference'),
  ];
  return picture('plot', width, height, label, content.join(''));
}

const escaped = (value: string): string => value.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
const table = (caption: string, head: readonly string[], rows: readonly (readonly string[])[]): string => {
  const cells = (tag: string, row: readonly string[]) =>
    `<tr>${row.map((cell) => `<${tag}>${cell}</${tag}>`).join('')}</tr>`;
  return `<table><caption>${caption}</caption><thead>${cells('th', head)}</thead><tbody>${rows.map((row) => cells('td', row)).join('')}</tbody></table>`;
};

/** Numbers in the appendix's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  tokens: `${RECORDED.tokens.length}`,
  'sum-1': digits(SUMS[0].sum),
  'sum-16': digits(SUMS.at(-1)!.sum),
  equal: `${equalBits(RECORDED)}`,
  same: SUMS.filter(({ threads, gaps }) => threads > 1 && gaps === 0)
    .map(({ threads }) => threads)
    .join(', '),
  'best-32': inPowers(best(32).error),
  'step-32': `${best(32).h}`,
  kernel: inPowers(errorOf(RECORDED.kernel)),
};

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  'A.1': table(
    `Sum of ${RECORDED.whole.length} log-probs`,
    ['threads', 'sum'],
    SUMS.map(({ threads, sum }) => [`${threads}`, digits(sum)]),
  ),
  'A.2': table(
    'Log-probs of a text',
    ['token', 'with the cache', 'in one pass'],
    RECORDED.tokens.map((token, t) => [escaped(token), small(RECORDED.cached[t]), small(RECORDED.whole[t])]),
  ),
  'A.3': errorPlot(3, RECORDED.kernel, gradientInWords(3, 32, RECORDED.kernel)),
};

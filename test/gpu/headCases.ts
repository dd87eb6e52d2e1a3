/** Inputs of the kernels of the LM head, and their results in the float64 reference. */
import { head, headBwd, type HeadEntries } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { f64, U } from './check.ts';

export interface HeadCase {
  R: number;
  V: number;
  temperature: number;
  /** Standard deviation of the logits. */
  scale: number;
}

/** Cases: one token; vocabularies around a software adapter's row (4) and a workgroup (64); one row; logits far apart. */
export const HEAD_CASES: HeadCase[] = [
  { R: 1, V: 1, temperature: 1, scale: 1 },
  { R: 7, V: 3, temperature: 0.7, scale: 2 },
  { R: 3, V: 63, temperature: 1, scale: 3 },
  { R: 64, V: 64, temperature: 1.3, scale: 3 },
  { R: 3, V: 65, temperature: 1, scale: 3 },
  { R: 2, V: 513, temperature: 0.9, scale: 1 },
  { R: 5, V: 61, temperature: 0.5, scale: 60 },
];

export const describeHead = ({ R, V, temperature, scale }: HeadCase): string =>
  `R=${R} V=${V} T=${temperature} x${scale}`;

/** Returns inputs with up to three entries (tokens to score) per row. Some rows have none. */
export function headInputs({ R, V, scale }: HeadCase) {
  const r = rng(R * 31 + V);
  const logits = r.normals(R * V, scale);
  const entries: number[][] = [];
  for (let row = 0; row < R; row++) {
    const count = (row + 1) % 4;
    for (let i = 0; i < count; i++) entries.push([row, i === 0 ? V - 1 : Math.floor(r.uniform() * V)]);
  }
  const shuffled = entries.map((e) => ({ e, key: r.uniform() })).sort((a, b) => a.key - b.key);
  const entryRow = Uint32Array.from(shuffled, ({ e }) => e[0]);
  const targets = Uint32Array.from(shuffled, ({ e }) => e[1]);
  const rowStart = new Uint32Array(R + 1);
  for (const row of entryRow) rowStart[row + 1]++;
  for (let row = 0; row < R; row++) rowStart[row + 1] += rowStart[row];
  const rowEntries = Uint32Array.from(entryRow.keys()).sort((a, b) => entryRow[a] - entryRow[b] || a - b);
  return { logits, entryRow, targets, rowStart, rowEntries };
}

/** The reference's head multiplies by a weight matrix. With the identity matrix, its input is the logits themselves. */
export function identity(V: number): Float64Array {
  const eye = new Float64Array(V * V);
  for (let i = 0; i < V; i++) eye[i * V + i] = 1;
  return eye;
}

export const headReference = (logits: Float32Array, V: number, entries: HeadEntries, temperature: number) =>
  head(f64(logits), identity(V), V, entries, temperature);

export function dLogitsReference(
  d: { dLogProbs: Float32Array; dEntropy: Float32Array },
  forward: { logits: Float32Array; lse: Float64Array; rowEntropy: Float64Array },
  V: number,
  entries: HeadEntries,
  temperature: number,
): Float64Array {
  const { logits, lse, rowEntropy } = forward;
  return headBwd(d, { x: f64(logits), weight: identity(V), lse, rowEntropy }, V, entries, temperature).dx;
}

/**
 * Absolute error of the log-sum-exp, and relative error of a p, where z = logits / T lies within [-Z, Z]: z is off by
 * 3 U Z, exp(x) by 3 + 2 |x| ulp of 2 U with |x| <= 2 Z, the sum by a block of 512, V / WG / 512 blocks and 8 additions, log by
 * 2^-21 or 3 ulp.
 */
export function statsError(V: number, WG: number, Z: number): number {
  const additions = Math.min(V / WG, 512) + Math.floor(V / WG / 512) + 8;
  return U * (6 * Z + 2 * (3 + 4 * Z) + additions + 8) + 2 ** -21 + 6 * U * (Z + Math.log(V));
}

export const largest = (x: ArrayLike<number>): number =>
  Array.from(x).reduce((max, v) => Math.max(max, Math.abs(v)), 0);

/** Returns a bound on the sum of p |log p|. The rounding errors of an entropy are relative to this sum. */
export const entropySize = (V: number, Z: number): number => Math.log(V) + 2 * Z + 1;

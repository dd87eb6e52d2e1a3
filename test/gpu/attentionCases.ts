/** Inputs of the attention kernels, and error bounds of their results. */
import type { AttentionForm } from '../../src/gpu/ops/attention.ts';
import { packGroups } from '../../src/model/packing.ts';
import { rng } from '../random.ts';
import { U } from './check.ts';
import { isFull } from './full.ts';
import { testGpu } from './gpu.ts';

const { adapter } = await testGpu();

export interface AttentionCase {
  N: number;
  H: number;
  K: number;
  D: number;
  /** Standard deviation of the elements of q and k. Scores grow with its square. */
  scale: number;
  /** Prompt length and sample lengths of each group, packed end to end as in training. */
  groups: { prompt: number; samples: number[] }[];
}

const group = (prompt: number, ...samples: number[]) => ({ prompt, samples });
const make = (H: number, K: number, D: number, scale: number, ...groups: AttentionCase['groups']): AttentionCase => {
  // The last token of a sample has no row: a sample of n tokens has n - 1.
  const N = groups.reduce((sum, g) => g.samples.reduce((rows, n) => rows + n - 1, sum + g.prompt), 0);
  return { N, H, K, D, scale, groups };
};

/**
 * Cases for one head dim: one row; heads that share keys; tiles of rows that cross sequences; row counts around a workgroup; scores beyond
 * +-80, where exp overflows unless the largest score is subtracted first.
 */
export const attentionCases = (D: number): AttentionCase[] => [
  make(1, 1, D, 1, group(1, 1)),
  make(3, 1, D, 1, group(1, 4), group(2, 1, 3)),
  make(4, 2, D, 0.7, group(7, 5, 9, 1), group(3, 11, 6)),
  make(7, 1, D, 0.5, group(17, 16, 17, 18)),
  make(2, 1, D, 6 * (8 / D) ** 0.25, group(9, 20, 20), group(65, 2)),
];

/** A case with at least three workgroups of every kernel, so that a grid with two workgroups per row has several rows. */
export const foldCase = (D: number): AttentionCase => make(4, 4, D, 0.7, group(33, 30, 34));

/**
 * Head dims whose kernels are tested: the smallest, one of several vectors, the smallest of one row per thread, and in --full others, whose
 * kernels differ in their sizes only. SwiftShader takes 11 s to compile those of 128. Every day the stored curves run those of 16 and 24.
 */
export const PRINTED_HEAD_DIMS = [4, 12, 64, ...(isFull ? [16, 20, 24, 32, 36, 48, 80, 96, 128] : [])];

/** True if a test tries the form for a head dim. The forms for hardware compile slowly on a software adapter: every day one head dim. */
export const isTested = (form: AttentionForm, D: number): boolean =>
  isFull || !form.startsWith('block') || !adapter.isSoftware || D === 12;

/** Head dims for which only the generic kernel exists: odd, not a multiple of four, small, and the largest. */
export const GENERIC_CASES: AttentionCase[] = [
  ...attentionCases(6),
  make(3, 1, 7, 1, group(1, 4), group(2, 1, 3)),
  make(1, 1, 2, 1, group(1, 1)),
  make(2, 2, 42, 1, group(33, 1)),
  make(4, 1, 21, 1, group(31, 33)),
  make(2, 1, 127, 0.5, group(5, 61)),
];

export const describeCase = ({ N, H, K, D, scale }: AttentionCase): string => `N=${N} H=${H} K=${K} D=${D} x${scale}`;

export function attentionInputs({ N, H, K, D, scale, groups }: AttentionCase) {
  const r = rng(N * 31 + D);
  const sequence = (n: number) => ({ tokens: new Uint32Array(n), mask: new Uint8Array(n).fill(1) });
  const packed = packGroups(
    groups.map(({ prompt, samples }) => ({ prompt: new Uint32Array(prompt), samples: samples.map(sequence) })),
    1 << 20,
  );
  const { ranges, queryEnd } = packed[0].batch;
  const [q, k] = [r.normals(N * H * D, scale), r.normals(N * K * D, scale)];
  return { q, k, v: r.normals(N * K * D), dout: r.normals(N * H * D), ranges, queryEnd };
}

/** Joins k [rows, K * D] and v to [rows, 2 * K * D], as attention.wgsl reads them. */
export function joinKv(k: Float32Array, v: Float32Array, width: number): Float32Array {
  const kv = new Float32Array(k.length * 2);
  for (let row = 0; row * width < k.length; row++) {
    kv.set(k.subarray(row * width, (row + 1) * width), row * 2 * width);
    kv.set(v.subarray(row * width, (row + 1) * width), (row * 2 + 1) * width);
  }
  return kv;
}

/**
 * Returns a bound on the relative error of one softmax weight. S bounds |score|. A score of D products has an error of (D + 3) U S; exp(x)
 * of 3 + 2 |x| ulp of 2 U, |x| <= 2 S. The online softmax multiplies by one such factor for every new maximum.
 */
export function weightError(keys: number, D: number, S: number): number {
  return ((D + 3) * S + 2 * (3 * keys + 4 * S) + 16) * U;
}

/** Returns the largest sum_d |q_d k_d| / sqrt(D) over all pairs of a query and a key: a bound on |score|. */
export function scoreBound(q: Float32Array, k: Float32Array, D: number): number {
  const largest = (x: Float32Array) => {
    let most = 0;
    for (let at = 0; at < x.length; at += D) most = Math.max(most, Math.hypot(...x.subarray(at, at + D)));
    return most;
  };
  return (largest(q) * largest(k)) / Math.sqrt(D);
}

/** Returns the sums of attentionBwd in src/extensions/verify/reference/ops.ts with every term positive. Rounding errors are relative to these. */
export function backwardSizes(
  { H, K, D }: AttentionCase,
  x: { q: Float32Array; k: Float32Array; v: Float32Array; dout: Float32Array; ranges: Uint32Array },
  out: Float64Array,
  lse: Float64Array,
): { dq: Float64Array; dk: Float64Array; dv: Float64Array; delta: Float64Array } {
  const [dq, dk, dv] = [x.q, x.k, x.v].map((a) => new Float64Array(a.length));
  const delta = new Float64Array(lse.length);
  const scale = 1 / Math.sqrt(D);
  for (let row = 0; row < lse.length; row++) {
    const [n, h] = [Math.floor(row / H), row % H];
    const query = row * D;
    for (let d = 0; d < D; d++) delta[row] += Math.abs(x.dout[query + d] * out[query + d]);
    for (let part = 0; part < 2; part++)
      for (let j = x.ranges[4 * n + 2 * part]; j < x.ranges[4 * n + 2 * part + 1]; j++) {
        const key = j * K * D + Math.floor((h * K) / H) * D;
        let [score, dp] = [0, 0];
        for (let d = 0; d < D; d++) {
          score += x.q[query + d] * x.k[key + d];
          dp += Math.abs(x.dout[query + d] * x.v[key + d]);
        }
        const p = Math.exp(score * scale - lse[row]);
        const ds = p * (dp + delta[row]) * scale;
        for (let d = 0; d < D; d++) {
          dq[query + d] += ds * Math.abs(x.k[key + d]);
          dk[key + d] += ds * Math.abs(x.q[query + d]);
          dv[key + d] += p * Math.abs(x.dout[query + d]);
        }
      }
  }
  return { dq, dk, dv, delta };
}

import code from '../../../kernels/attention.wgsl?raw';
import codeBwdKv from '../../../kernels/attention_bwd_kv.wgsl?raw';
import codeBwdQ from '../../../kernels/attention_bwd_q.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel, type Kernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';
import { groupsOf } from './grid.ts';
import type { Heads } from './rope_kv.ts';

const params = { N: 'u32', H: 'u32', K: 'u32', D: 'u32', scale: 'f32' } as const;

/** Kernels with a head dim of their own, everything in registers; printed by scripts/gen-attention.mjs. */
const printed = import.meta.glob<string>('../../../kernels/attention*_d*.wgsl', {
  query: '?raw',
  import: 'default',
  eager: true,
});

export const attentionKernel = defineKernel({
  name: 'attention',
  code,
  read: ['q', 'kv', 'ranges'],
  write: ['out', 'lse'],
  params,
});

export const attentionBwdQKernel = defineKernel({
  name: 'attention_bwd_q',
  code: codeBwdQ,
  read: ['q', 'kv', 'out', 'dout', 'lse', 'ranges'],
  write: ['dq', 'delta'],
  params,
});

export const attentionBwdKvKernel = defineKernel({
  name: 'attention_bwd_kv',
  code: codeBwdKv,
  read: ['q', 'kv', 'dout', 'lse', 'delta', 'queryEnd'],
  write: ['dkv'],
  params,
});

/** Head dims that have printed kernels. */
export const HEAD_DIMS = [16, 24, 32, 64];

/** A kernel's printed form for a head dim, and the rows a thread of it handles. */
function forHeadDim<R extends string, W extends string>(generic: Kernel<R, W, keyof typeof params>, alone = false) {
  const byDim = new Map<number, { kernel: Kernel<R, W, keyof typeof params>; rows: number }>();
  for (const D of HEAD_DIMS) {
    const rows = D > 32 ? 1 : 2;
    const name = `${generic.name}${alone && rows > 1 ? '_alone' : ''}_d${D}`;
    const kernel = defineKernel({ ...generic, name, code: printed[`../../../kernels/${name}.wgsl`] });
    byDim.set(D, { kernel, rows: alone ? 1 : rows });
  }
  return (D: number) => byDim.get(D) ?? { kernel: generic, rows: 1 };
}

const forward = forHeadDim(attentionKernel);
const forwardAlone = forHeadDim(attentionKernel, true);
const backwardQ = forHeadDim(attentionBwdQKernel);
const backwardKv = forHeadDim(attentionBwdKvKernel);

/** Forward, for rows of a sequence and for lone ones, and both backward kernels for a head dim. */
export const attentionKernels = (D: number): Kernel[] =>
  [...new Set([forward(D).kernel, forwardAlone(D).kernel, backwardQ(D).kernel, backwardKv(D).kernel])].map(
    (kernel) => kernel as Kernel,
  );

export interface AttentionArgs extends Heads {
  /** [N, H * D] */
  q: View;
  /** [rows, 2 * K * D] */
  kv: View;
  /** [N, 4] */
  ranges: View;
  /** [N, H * D] out */
  out: View;
  /** [N, H] out */
  lse: View;
  /** Every row is of another sequence, as in a decode step: a thread takes one. The same bits. */
  alone?: boolean | undefined;
}

/** Records attention over [shared prefix | own sequence]. */
export function attention(gpu: Gpu, { q, kv, ranges, out, lse, N, H, K, D, alone }: AttentionArgs): void {
  if (D > 128) throw new RangeError(`attention: head_dim is ${D}; at most 128 is supported.`);
  expectElements('attention q [N, H * D]', q, N * H * D);
  expectElements('attention ranges [N, 4]', ranges, N * 4);
  expectElements('attention lse [N, H]', lse, N * H);
  const sizes = { N, H, K, D, scale: 1 / Math.sqrt(D) };
  const { kernel, rows } = (alone ? forwardAlone : forward)(D);
  gpu.dispatch(kernel, { q, kv, ranges, out, lse }, sizes, groupsOf(Math.ceil(N / rows) * H));
}

export interface AttentionBwdArgs extends AttentionArgs {
  /** [N, H * D] */
  dout: View;
  /** [N] */
  queryEnd: View;
  /** [N, H * D] out */
  dq: View;
  /** [N, 2 * K * D] out */
  dkv: View;
  /** [N, H] out: dout . out */
  delta: View;
}

/** Records dq and dkv; training rows only, where kv row n is row n. */
export function attentionBwd(gpu: Gpu, args: AttentionBwdArgs): void {
  const { q, kv, ranges, out, lse, dout, queryEnd, dq, dkv, delta, N, H, K, D } = args;
  expectElements('attention_bwd dkv [N, 2 * K * D]', dkv, N * 2 * K * D);
  const sizes = { N, H, K, D, scale: 1 / Math.sqrt(D) };
  const [forQ, forKv] = [backwardQ(D), backwardKv(D)];
  const groups = (rows: number, heads: number) => groupsOf(Math.ceil(N / rows) * heads);
  gpu.dispatch(forQ.kernel, { q, kv, out, dout, lse, ranges, dq, delta }, sizes, groups(forQ.rows, H));
  gpu.dispatch(forKv.kernel, { q, kv, dout, lse, delta, queryEnd, dkv }, sizes, groups(forKv.rows, K));
}

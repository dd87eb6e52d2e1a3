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

/**
 * How rows are shared out; all give the same bits. `tiled`: a thread takes two rows. `shared`: so does a lane, and the lanes
 * of a subgroup load each key together. `alone`: a thread takes one row, since neighbours are of different sequences.
 */
export type AttentionForm = 'tiled' | 'shared' | 'alone';

type AttentionKernel<R extends string, W extends string> = Kernel<R, W, keyof typeof params>;
interface Form<R extends string, W extends string> {
  kernel: AttentionKernel<R, W>;
  /** Rows a workgroup covers, for one head. */
  groups: (rows: number, heads: number) => number;
}

/** A kernel's printed form for a head dim. */
function forHeadDim<R extends string, W extends string>(generic: AttentionKernel<R, W>) {
  const made = new Map<string, Form<R, W>>();
  const make = (D: number, form: AttentionForm, lanes: number): Form<R, W> => {
    const tile = form === 'alone' || D > 32 || !HEAD_DIMS.includes(D) ? 1 : 2;
    const suffix = form === 'shared' ? `_shared${lanes}` : form === 'alone' && D <= 32 ? '_alone' : '';
    const name = `${generic.name}${suffix}_d${D}`;
    const file = printed[`../../../kernels/${name}.wgsl`];
    const kernel = file === undefined ? generic : defineKernel({ ...generic, name, code: file });
    const groups = (rows: number, heads: number) =>
      form === 'shared' ? Math.ceil(rows / (lanes * tile)) * heads : groupsOf(Math.ceil(rows / tile) * heads);
    return { kernel, groups };
  };
  return (D: number, form: AttentionForm, lanes: number): Form<R, W> => {
    const key = `${D} ${form} ${lanes}`;
    const known = made.get(key) ?? make(D, form, lanes);
    made.set(key, known);
    return known;
  };
}

const forward = forHeadDim(attentionKernel);
const backwardQ = forHeadDim(attentionBwdQKernel);
const backwardKv = forHeadDim(attentionBwdKvKernel);

/** Lanes that can load together: those of a subgroup, where all are of 4 or of 8, as software adapters' are. */
function sharingLanes({ adapter }: Gpu): number {
  const { subgroupSize, subgroupMaxSize } = adapter;
  return subgroupSize === subgroupMaxSize && (subgroupSize === 4 || subgroupSize === 8) ? subgroupSize : 0;
}

/** Forms that this adapter runs for a head dim, the preferred one first; rows of one sequence. */
export function attentionForms(gpu: Gpu, D: number): AttentionForm[] {
  return sharingLanes(gpu) > 0 && HEAD_DIMS.includes(D) ? ['shared', 'tiled'] : ['tiled'];
}

/** Forward for a head dim: for rows of a sequence, and for lone ones. */
export function attentionForwardKernels(gpu: Gpu, D: number): Kernel[] {
  const [form, lanes] = [attentionForms(gpu, D)[0], sharingLanes(gpu)];
  const kernels = [forward(D, form, lanes), forward(D, 'alone', 0)];
  return [...new Set(kernels.map(({ kernel }) => kernel as Kernel))];
}

/** And both backward kernels. */
export function attentionKernels(gpu: Gpu, D: number): Kernel[] {
  const [form, lanes] = [attentionForms(gpu, D)[0], sharingLanes(gpu)];
  const backward = [backwardQ(D, form, lanes), backwardKv(D, form, lanes)].map(({ kernel }) => kernel as Kernel);
  return [...attentionForwardKernels(gpu, D), ...backward];
}

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
  /** `alone` in a decode step; absent = the best of `attentionForms`. */
  form?: AttentionForm | undefined;
}

/** Records attention over [shared prefix | own sequence]. */
export function attention(gpu: Gpu, { q, kv, ranges, out, lse, N, H, K, D, form }: AttentionArgs): void {
  if (D > 128) throw new RangeError(`attention: head_dim is ${D}; at most 128 is supported.`);
  expectElements('attention q [N, H * D]', q, N * H * D);
  expectElements('attention ranges [N, 4]', ranges, N * 4);
  expectElements('attention lse [N, H]', lse, N * H);
  const sizes = { N, H, K, D, scale: 1 / Math.sqrt(D) };
  const { kernel, groups } = forward(D, form ?? attentionForms(gpu, D)[0], sharingLanes(gpu));
  gpu.dispatch(kernel, { q, kv, ranges, out, lse }, sizes, groups(N, H));
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
  const [form, lanes] = [args.form ?? attentionForms(gpu, D)[0], sharingLanes(gpu)];
  const [forQ, forKv] = [backwardQ(D, form, lanes), backwardKv(D, form, lanes)];
  gpu.dispatch(forQ.kernel, { q, kv, out, dout, lse, ranges, dq, delta }, sizes, forQ.groups(N, H));
  gpu.dispatch(forKv.kernel, { q, kv, dout, lse, delta, queryEnd, dkv }, sizes, forKv.groups(N, K));
}

import code from '../../../kernels/attention.wgsl?raw';
import codeBwdKv from '../../../kernels/attention_bwd_kv.wgsl?raw';
import codeBwdQ from '../../../kernels/attention_bwd_q.wgsl?raw';
import { printAttention, printAttentionBwdKv, printAttentionBwdQ } from '../../../kernels/attention.ts';
import type { AttentionTile } from '../../../kernels/attentionShared.ts';
import { sharingLanes } from '../adapterFamily.ts';
import type { Gpu, View } from '../device.ts';
import { defineKernel, type Kernel, kernelFamily } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';
import type { Heads } from './rope_kv.ts';

const params = { N: 'u32', H: 'u32', K: 'u32', D: 'u32', scale: 'f32' } as const;

const attentionKernel = defineKernel({
  name: 'attention',
  code,
  read: ['q', 'kv', 'ranges'],
  write: ['out', 'lse'],
  params,
});

const attentionBwdQKernel = defineKernel({
  name: 'attention_bwd_q',
  code: codeBwdQ,
  read: ['q', 'kv', 'out', 'dout', 'lse', 'ranges'],
  write: ['dq', 'delta'],
  params,
});

const attentionBwdKvKernel = defineKernel({
  name: 'attention_bwd_kv',
  code: codeBwdKv,
  read: ['q', 'kv', 'dout', 'lse', 'delta', 'queryEnd'],
  write: ['dkv'],
  params,
});

/** True if a kernel that holds everything in registers can be generated for the head dim. */
const isPrinted = (D: number): boolean => D % 4 === 0;

/**
 * Assignment of rows to threads; all forms compute the same bits. `tiled`: a thread computes two rows. `shared`: a lane
 * computes two rows, and the lanes of a subgroup load each key together. `alone`: a thread computes one row, because
 * neighbouring rows are of different sequences. `block`: a workgroup computes a few rows. `block1`: a workgroup
 * computes one row.
 */
export type AttentionForm = 'tiled' | 'shared' | 'alone' | 'block' | 'block1';

/** Rows per workgroup of the form `block`. */
const BLOCK_ROWS = 4;

/**
 * Number of rows per thread if neighbouring rows share keys. 4 rows are 10 to 20% faster than 2 on SwiftShader, but take seconds to
 * compile.
 */
const rowsPerThread = (D: number): number => (D > 32 ? 1 : 2);

type AttentionKernel<R extends string, W extends string> = Kernel<R, W, keyof typeof params>;

/** Returns a function that finds a kernel's variant for a head dim and a form, and its number of workgroups. */
function forHeadDim<R extends string, W extends string>(
  generic: AttentionKernel<R, W>,
  print: (tile: AttentionTile) => string,
) {
  const suffix = ({ D, rows, lanes, block }: AttentionTile) =>
    block ? `_block${rows}` : lanes ? `_shared${lanes}` : rows < rowsPerThread(D) ? '_alone' : '';
  const printed = kernelFamily(generic, (tile: AttentionTile) => `${generic.name}${suffix(tile)}_d${tile.D}`, print);
  return ({ adapter }: Gpu, D: number, form: AttentionForm) => {
    const block = form.startsWith('block') && isPrinted(D);
    const rows = block ? (form === 'block' ? BLOCK_ROWS : 1) : form === 'alone' || !isPrinted(D) ? 1 : rowsPerThread(D);
    const lanes = form === 'shared' ? sharingLanes(adapter) : 0;
    const kernel = isPrinted(D) ? printed({ D, rows, lanes, block }) : generic;
    const groups = (N: number, heads: number) => {
      const tiles = Math.ceil(N / (lanes || 1) / rows) * heads;
      return block || lanes ? tiles : groupsOf(tiles);
    };
    return { kernel, groups };
  };
}

const forward = forHeadDim(attentionKernel, printAttention);
const backwardQ = forHeadDim(attentionBwdQKernel, printAttentionBwdQ);
const backwardKv = forHeadDim(attentionBwdKvKernel, printAttentionBwdKv);

/** Returns the forms that this adapter supports for a head dim, the fastest first, for rows of one sequence. */
export function attentionForms({ adapter }: Gpu, D: number): AttentionForm[] {
  if (!isPrinted(D)) return ['tiled'];
  if (!adapter.isSoftware) return ['block', 'block1', 'tiled'];
  return sharingLanes(adapter) > 0 ? ['shared', 'tiled', 'block', 'block1'] : ['tiled', 'block', 'block1'];
}

/** Returns the fastest form for rows of different sequences, as in a decode step. */
export function decodeForm(gpu: Gpu, D: number): AttentionForm {
  const [form] = attentionForms(gpu, D);
  return form === 'block' ? 'block1' : 'alone';
}

/** Returns the forward kernels for a head dim: one for rows of one sequence, one for single rows. */
export function attentionForwardKernels(gpu: Gpu, D: number): Kernel[] {
  const forms = [attentionForms(gpu, D)[0], decodeForm(gpu, D)];
  return [...new Set<Kernel>(forms.map((form) => forward(gpu, D, form).kernel))];
}

/** Returns the forward kernels and both backward kernels for a head dim. */
export function attentionKernels(gpu: Gpu, D: number): Kernel[] {
  const [form] = attentionForms(gpu, D);
  return [...attentionForwardKernels(gpu, D), backwardQ(gpu, D, form).kernel, backwardKv(gpu, D, form).kernel];
}

interface AttentionArgs extends Heads {
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
  /** Assignment of rows to threads; `decodeForm` in a decode step. Default: the first of `attentionForms`, which is the fastest. */
  form?: AttentionForm | undefined;
}

/** Records attention over two ranges of keys: [shared prefix | own sequence]. */
export function attention(gpu: Gpu, { q, kv, ranges, out, lse, N, H, K, D, form }: AttentionArgs): void {
  if (D > 128) throw new RangeError(`attention: head_dim is ${D}. At most 128 is supported.`);
  expectElements('attention q [N, H * D]', q, N * H * D);
  expectElements('attention ranges [N, 4]', ranges, N * 4);
  expectElements('attention lse [N, H]', lse, N * H);
  const sizes = { N, H, K, D, scale: 1 / Math.sqrt(D) };
  const { kernel, groups } = forward(gpu, D, form ?? attentionForms(gpu, D)[0]);
  gpu.dispatch(kernel, { q, kv, ranges, out, lse }, sizes, groups(N, H));
}

interface AttentionBwdArgs extends AttentionArgs {
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

/** Records dq and dkv. Only for training, where token n has row n of kv. */
export function attentionBwd(gpu: Gpu, args: AttentionBwdArgs): void {
  const { q, kv, ranges, out, lse, dout, queryEnd, dq, dkv, delta, N, H, K, D } = args;
  expectElements('attention_bwd dkv [N, 2 * K * D]', dkv, N * 2 * K * D);
  const sizes = { N, H, K, D, scale: 1 / Math.sqrt(D) };
  const form = args.form ?? attentionForms(gpu, D)[0];
  const [forQ, forKv] = [backwardQ(gpu, D, form), backwardKv(gpu, D, form)];
  gpu.dispatch(forQ.kernel, { q, kv, out, dout, lse, ranges, dq, delta }, sizes, forQ.groups(N, H));
  gpu.dispatch(forKv.kernel, { q, kv, dout, lse, delta, queryEnd, dkv }, sizes, forKv.groups(N, K));
}

import code from '../../../kernels/lora_up.wgsl?raw';
import codeBwdB from '../../../kernels/lora_up_bwd_b.wgsl?raw';
import codeBwdT from '../../../kernels/lora_up_bwd_t.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const params = {
  N: 'u32',
  R: 'u32',
  T: 'u32',
  J: 'u32',
  Y: 'u32',
  end0: 'u32',
  end1: 'u32',
  gap0: 'u32',
  gap1: 'u32',
  gap2: 'u32',
  scale: 'f32',
} as const;

const loraUpKernel = defineKernel({ name: 'lora_up', code, read: ['t', 'b'], write: ['y'], params });

const loraUpBwdTKernel = defineKernel({
  name: 'lora_up_bwd_t',
  code: codeBwdT,
  read: ['dy', 'b'],
  write: ['dt'],
  params,
});

const loraUpBwdBKernel = defineKernel({
  name: 'lora_up_bwd_b',
  code: codeBwdB,
  read: ['t', 'dy'],
  write: ['db'],
  params,
});

/** Columns of one adapted module in y: the first column and their number. At most three modules (q, k, v) share a matrix. */
export interface LoraSpan {
  column: number;
  width: number;
}

interface LoraUpShape {
  N: number;
  /** LoRA rank */
  R: number;
  /** Columns of y. */
  Y: number;
  /** Column ranges of the adapted modules, in ascending order. T = spans.length * R, J = the sum of their widths. */
  spans: readonly LoraSpan[];
  scale: number;
}

/** Records y += scale * t B. t [N, T], b [R, J], y [N, Y] in and out. */
export function loraUp(gpu: Gpu, { t, b, y, ...shape }: LoraUpShape & { t: View; b: View; y: View }): void {
  const sizes = paramsOf(shape);
  expectElements('lora_up t [N, T]', t, sizes.N * sizes.T);
  expectElements('lora_up b [R, J]', b, sizes.R * sizes.J);
  expectElements('lora_up y [N, Y]', y, sizes.N * sizes.Y);
  gpu.dispatch(loraUpKernel, { t, b, y }, sizes, groupsOf(Math.ceil(sizes.N / 4) * sizes.J));
}

/** Records dt = scale * dy B^T. dy [N, Y], b [R, J], dt [N, T] out. */
export function loraUpBwdT(gpu: Gpu, { dy, b, dt, ...shape }: LoraUpShape & { dy: View; b: View; dt: View }): void {
  const sizes = paramsOf(shape);
  expectElements('lora_up_bwd_t dy [N, Y]', dy, sizes.N * sizes.Y);
  expectElements('lora_up_bwd_t dt [N, T]', dt, sizes.N * sizes.T);
  gpu.dispatch(loraUpBwdTKernel, { dy, b, dt }, sizes, ...sharedSums(gpu, Math.ceil(sizes.N / 4) * sizes.T));
}

/** Records db += scale * t^T dy. t [N, T], dy [N, Y], db [R, J] accumulates. */
export function loraUpBwdB(gpu: Gpu, { t, dy, db, ...shape }: LoraUpShape & { t: View; dy: View; db: View }): void {
  const sizes = paramsOf(shape);
  expectElements('lora_up_bwd_b t [N, T]', t, sizes.N * sizes.T);
  expectElements('lora_up_bwd_b db [R, J]', db, sizes.R * sizes.J);
  gpu.dispatch(loraUpBwdBKernel, { t, dy, db }, sizes, ...sharedSums(gpu, Math.ceil(sizes.R / 4) * sizes.J));
}

/** Threads per sum on hardware, where an adapter has too few outputs for all threads. One is fastest on a software adapter. */
const HARDWARE = { WG: 256, LANES: 16 };
const SOFTWARE = { WG: 64, LANES: 1 };

/** Returns the number of workgroups for `outputs` sums, and the kernel's overrides. */
function sharedSums({ adapter }: Gpu, outputs: number): [groups: number, overrides: typeof HARDWARE] {
  const grid = adapter.isSoftware ? SOFTWARE : HARDWARE;
  return [Math.ceil((outputs * grid.LANES) / grid.WG), grid];
}

function paramsOf({ N, R, Y, spans, scale }: LoraUpShape): Record<keyof typeof params, number> {
  const starts = spans.map((_, s) => spans.slice(0, s).reduce((sum, { width }) => sum + width, 0));
  const J = spans.reduce((sum, { width }) => sum + width, 0);
  const [gap0, gap1 = 0, gap2 = 0] = spans.map(({ column }, s) => column - starts[s]);
  const sizes = { N, R, T: spans.length * R, J, Y };
  return { ...sizes, end0: starts[1] ?? J, end1: starts[2] ?? J, gap0, gap1, gap2, scale };
}

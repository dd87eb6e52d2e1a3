/** GPU work of the appendix: runs the reader's kernel and the library's own. Loaded at the first press of a button. */

import { findAdapter } from '../../engine/adapter.ts';
import { describe } from '../../../src/errors.ts';
import { Gpu } from '../../../src/gpu/device.ts';
import { defineKernel } from '../../../src/gpu/kernel.ts';
import { rmsnorm, rmsnormBwd } from '../../../src/gpu/ops/rmsnorm.ts';
import { mulberry32 } from '../../../src/model/random.ts';
import { LoopError } from '../kit/runLoop.ts';
import { EPS, exactNorm, type KernelFacts, SHAPES, withoutComments } from './judge.ts';

let opened: Promise<Gpu> | undefined;

/** Calls `use` with the page's device. After an error the next call opens another one. */
export async function onGpu<T>(use: (gpu: Gpu) => Promise<T>): Promise<T> {
  opened ??= findAdapter().then(() => Gpu.create()); // findAdapter says what to do without a GPU
  try {
    return await use(await opened);
  } catch (error) {
    opened?.then((gpu) => gpu.destroy()).catch(() => {});
    opened = undefined;
    throw error;
  }
}

/** Compiles a kernel with the bindings of rmsnorm.wgsl. Throws LoopError for a text that does not compile or has other bindings. */
async function compile(gpu: Gpu, code: string) {
  gpu.device.pushErrorScope('validation');
  const { messages } = await gpu.device.createShaderModule({ code }).getCompilationInfo();
  await gpu.device.popErrorScope();
  const error = messages.find(({ type }) => type === 'error');
  if (error) throw new LoopError(`Line ${error.lineNum}: ${error.message}`, error.lineNum);
  const names = { read: ['x', 'weight'], write: ['y'], params: { C: 'u32' } } as const;
  try {
    return defineKernel({ name: 'exercise', code, ...names });
  } catch (mismatch) {
    throw new LoopError(describe(mismatch));
  }
}

/** Runs a kernel with one workgroup per row, and returns y. Elements that the kernel does not write are NaN. */
async function runKernel(
  gpu: Gpu,
  kernel: Awaited<ReturnType<typeof compile>>,
  { x, weight }: { x: Float32Array; weight: Float32Array },
): Promise<Float32Array> {
  const views = {
    x: gpu.buffer('x', x),
    weight: gpu.buffer('weight', weight),
    y: gpu.buffer('y', new Float32Array(x.length).fill(NaN)),
  };
  try {
    gpu.dispatch(kernel, views, { C: weight.length }, x.length / weight.length);
    return await gpu.readF32(views.y);
  } finally {
    for (const view of Object.values(views)) gpu.free(view);
  }
}

/** Returns `count` numbers from -scale to scale, the same for the same seed. */
function numbers(count: number, scale: number, seed: number): Float32Array {
  const uniform = mulberry32(seed);
  return Float32Array.from({ length: count }, () => scale * (2 * uniform() - 1));
}

/** Runs the reader's kernel on all shapes, and compares it with float64. */
export async function measureKernel(gpu: Gpu, code: string): Promise<KernelFacts> {
  const kernel = await compile(gpu, code);
  await gpu.prepare(kernel);
  const shapes = [];
  for (const [i, { N, C, scale }] of SHAPES.entries()) {
    const [x, weight] = [numbers(N * C, scale, 2 * i), numbers(C, 1, 2 * i + 1)];
    const y = await runKernel(gpu, kernel, { x, weight });
    const want = exactNorm(x, weight);
    const errors = Array.from(y, (value, k) => {
      const error = Math.abs(value - want[k]) / Math.max(1, Math.abs(want[k]));
      return Number.isNaN(error) ? Infinity : error;
    });
    const at = errors.indexOf(Math.max(...errors));
    // A sum of squares that is too small makes the result too large.
    const grown = Array.from(y, (value, k) => (want[k] === 0 ? 1 : value / want[k]));
    shapes.push({
      ...{ error: errors[at], at, got: y[at], want: want[at] },
      isTooLarge: grown.every((times) => times > 1 - 1e-5) && grown.some((times) => times > 1 + 1e-5),
    });
  }
  const plain = withoutComments(code);
  return { shapes, sharesWithoutBarrier: /var<workgroup>/.test(plain) && !plain.includes('workgroupBarrier') };
}

/** Returns the gradient of the input of RMSNorm, by the library's kernels, for one row. `dy`: the gradient of its output. */
export async function libraryGradient(
  gpu: Gpu,
  { x, weight, dy }: Record<'x' | 'weight' | 'dy', Float32Array>,
): Promise<Float32Array> {
  const C = x.length;
  const [given, y, rstd, dx, partial] = [
    { x: gpu.buffer('x', x), weight: gpu.buffer('weight', weight), dy: gpu.buffer('dy', dy) },
    ...[C, 1, C, C].map((length) => gpu.buffer('result', 4 * length)),
  ] as const;
  try {
    rmsnorm(gpu, { x: given.x, weight: given.weight, y, rstd, N: 1, C, eps: EPS });
    rmsnormBwd(gpu, { ...given, rstd, dx, partial, N: 1, C });
    return await gpu.readF32(dx);
  } finally {
    for (const view of [...Object.values(given), y, rstd, dx, partial]) gpu.free(view);
  }
}

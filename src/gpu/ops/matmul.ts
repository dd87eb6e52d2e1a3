import codeNn from '../../../kernels/matmul_nn.wgsl?raw';
import codeNt from '../../../kernels/matmul_nt.wgsl?raw';
import codeTn from '../../../kernels/matmul_tn.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';
import { groupsOf } from './grid.ts';

const params = { M: 'u32', N: 'u32', K: 'u32' } as const;
const product = { read: ['x', 'b', 'r'], write: ['y'], params } as const;

export const matmulNnKernel = defineKernel({ name: 'matmul_nn', code: codeNn, ...product });
export const matmulNtKernel = defineKernel({ name: 'matmul_nt', code: codeNt, ...product });
export const matmulTnKernel = defineKernel({ name: 'matmul_tn', code: codeTn, read: ['a', 'b'], write: ['y'], params });

export interface MatmulArgs {
  /** [M, K] */
  x: View;
  /** [K, N], or [N, K] for matmulNt */
  b: View;
  /** [M, N] added to the product; must not overlap y */
  add?: View;
  /** [M, N] out */
  y: View;
  M: number;
  N: number;
  K: number;
}

/** Records y = x b (+ add). */
export function matmulNn(gpu: Gpu, { x, b, add, y, M, N, K }: MatmulArgs): void {
  expectElements('matmul_nn x [M, K]', x, M * K);
  expectElements('matmul_nn b [K, N]', b, K * N);
  expectElements('matmul_nn y [M, N]', y, M * N);
  gpu.dispatch(matmulNnKernel, { x, b, r: add ?? x, y }, { M, N, K }, groupsOf(M * N), add ? ADD : NO_ADD);
}

/** Records y = x b^T (+ add). */
export function matmulNt(gpu: Gpu, { x, b, add, y, M, N, K }: MatmulArgs): void {
  expectElements('matmul_nt x [M, K]', x, M * K);
  expectElements('matmul_nt b [N, K]', b, N * K);
  expectElements('matmul_nt y [M, N]', y, M * N);
  gpu.dispatch(matmulNtKernel, { x, b, r: add ?? x, y }, { M, N, K }, groupsOf(M * N), add ? ADD : NO_ADD);
}
const ADD = { ADD: 1 };
const NO_ADD = { ADD: 0 };

/** Records y += a^T b. a [K, M], b [K, N], y [M, N] accumulates. */
export function matmulTn(gpu: Gpu, args: { a: View; b: View; y: View; M: number; N: number; K: number }): void {
  const { a, b, y, M, N, K } = args;
  expectElements('matmul_tn a [K, M]', a, K * M);
  expectElements('matmul_tn b [K, N]', b, K * N);
  expectElements('matmul_tn y [M, N]', y, M * N);
  gpu.dispatch(matmulTnKernel, { a, b, y }, { M, N, K }, groupsOf(M * N));
}

/**
 * Measures the cost of single operations: a loop with 48 of them minus one with 16, in one subgroup on one core, which cancels everything
 * else. Runs only on request. docs/lab/log.md explains the shapes of matmul tiles by these costs.
 */

import type { Gpu } from '../src/gpu/device.ts';
import { defineKernel } from '../src/gpu/kernel.ts';
import type { Report } from './report.ts';
import { type Effort, secondsOf } from '../src/extensions/limits/index.ts';

const [FEW, MANY] = [16, 48];
const ROUNDS = 4096;
/** The two loops run alternately, this many times. The best time of each counts. */
const TURNS = 6;

interface Operation {
  /**
   * Returns the WGSL line of the j-th operation in a loop iteration. The line can use the sums r0 to r3, and `at`, which differs in each
   * iteration.
   */
  line: (j: number) => string;
  needs?: 'subgroups';
}

const OPERATIONS: Record<string, Operation> = {
  'load from a storage buffer, and an addition': { line: (j) => `r${j & 3} += y[at + ${j}u];` },
  'load from workgroup memory, and an addition': { line: (j) => `r${j & 3} += shared_[at + ${j}u];` },
  'multiply and add': { line: (j) => `r${j & 3} = r${j & 3} * a + b;` },
  'broadcast, and an addition': {
    line: (j) => `r${j & 3} += subgroupBroadcast(r${(j + 1) & 3}, ${j & 3}u);`,
    needs: 'subgroups',
  },
  'quad swap, and an addition': { line: (j) => `r${j & 3} += quadSwapX(r${(j + 1) & 3});`, needs: 'subgroups' },
  'exp, and a multiplication': { line: (j) => `r${j & 3} = exp(r${j & 3} * a);` },
};

/** Returns the nanoseconds of one operation for a complete subgroup (four threads without subgroups). */
export async function benchMicro(gpu: Gpu, effort: Effort): Promise<NonNullable<Report['micro']>> {
  const y = gpu.buffer(
    'bench.micro',
    Float32Array.from({ length: 256 }, (_, i) => 0.5 + (i % 7) / 100),
  );
  const costs: Record<string, number> = {};
  const seconds = (line: Operation['line'], count: number, groups = 1, rounds = ROUNDS) => {
    const kernel = loopKernel(gpu, line, count);
    return secondsOf(gpu, () => gpu.dispatch(kernel, { y }, { rounds }, groups), effort);
  };
  const empty = await seconds(() => '', 0);
  costs['iteration of an empty loop'] = (empty / ROUNDS) * 1e9;
  for (const [name, { line, needs }] of Object.entries(OPERATIONS)) {
    if (needs && !gpu.adapter.features.includes(needs)) continue;
    const best = { few: Infinity, many: Infinity };
    for (let turn = 0; turn < TURNS; turn++) {
      best.few = Math.min(best.few, await seconds(line, FEW));
      best.many = Math.min(best.many, await seconds(line, MANY));
    }
    // If the noise of other programs was larger than the operation's cost, the result has no entry for the operation.
    if (best.many > best.few) costs[name] = ((best.many - best.few) / (MANY - FEW) / ROUNDS) * 1e9;
  }
  const few = await seconds(() => '', 0, 64, 0);
  costs['workgroup that does nothing'] = (((await seconds(() => '', 0, 64 * 64, 0)) - few) / (64 * 63)) * 1e9;
  gpu.free(y);
  return costs;
}

function loopKernel(gpu: Gpu, line: Operation['line'], count: number) {
  const lanes = Math.max(4, gpu.adapter.subgroupMaxSize);
  const code = `${gpu.adapter.features.includes('subgroups') ? 'enable subgroups;' : ''}
struct Params { rounds: u32 }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> params: Params;
var<workgroup> shared_: array<f32, 128>;
@compute @workgroup_size(${lanes})
fn main(@builtin(local_invocation_index) tid: u32) {
  let a = y[200];
  let b = y[201];
  shared_[tid] = a;
  var at = tid & 1u;
  var r0 = y[tid]; var r1 = r0 + 1.0; var r2 = r0 + 2.0; var r3 = r0 + 3.0;
  let limit = params.rounds; // a variable, because otherwise Dawn adds its own counter to the loop
  for (var i = 0u; i < limit; i++) {
    ${Array.from({ length: count }, (_, j) => line(j)).join('\n    ')}
    at = (at + 1u) & 63u;
  }
  if (r0 + r1 + r2 + r3 == 0.123) { y[tid] = r0; }
}`;
  return defineKernel({ name: 'bench_micro', code, read: [], write: ['y'], params: { rounds: 'u32' } });
}

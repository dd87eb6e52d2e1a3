/** Measures which kernels a step spends its time in: records its dispatches, then runs each kind of kernel again on its own. */

import type { Gpu } from '../src/gpu/device.ts';
import { type Effort, secondsOf } from '../src/extensions/limits/index.ts';

type Dispatch = Gpu['dispatch'];

/**
 * Returns times by kernel name, summed over one `step`. Replays overwrite or add to outputs, which does not affect times.
 * @param withSizes true to list products of different sizes separately
 */
export async function kernelTimes(
  gpu: Gpu,
  step: () => Promise<void>,
  effort: Effort,
  withSizes = false,
): Promise<Record<string, { calls: number; ms: number }>> {
  const calls = await dispatchesOf(gpu, step);
  const kinds = new Map<string, Parameters<Dispatch>[]>();
  for (const call of calls) {
    const [kernel, , params, groups, overrides] = call;
    const key = JSON.stringify([kernel.name, params, groups, overrides]);
    kinds.set(key, [...(kinds.get(key) ?? []), call]);
  }
  const times: Record<string, { calls: number; ms: number }> = {};
  for (const same of kinds.values()) {
    const [{ name }, , { M, N, K }] = same[0];
    const entry = (times[withSizes && M ? `${name} ${M} x ${N} x ${K}` : name] ??= { calls: 0, ms: 0 });
    const seconds = await secondsOf(gpu, () => gpu.dispatch(...same[0]), effort);
    entry.calls += same.length;
    entry.ms += same.length * seconds * 1000;
  }
  return times;
}

/** Returns the share of all kernels' time that is spent in kernels other than matrix products and attention. */
export function outsideProducts(times: Record<string, { ms: number }>): number {
  let [all, outside] = [0, 0];
  for (const [name, { ms }] of Object.entries(times)) {
    all += ms;
    if (!/^(matmul|attention)/.test(name)) outside += ms;
  }
  return outside / all;
}

async function dispatchesOf(gpu: Gpu, step: () => Promise<void>): Promise<Parameters<Dispatch>[]> {
  const calls: Parameters<Dispatch>[] = [];
  const dispatch: Dispatch = gpu.dispatch.bind(gpu);
  gpu.dispatch = (...call: Parameters<Dispatch>) => {
    calls.push(call);
    dispatch(...call);
  };
  try {
    await step();
  } finally {
    gpu.dispatch = dispatch;
  }
  return calls;
}

/** Timing of recorded GPU work. Everything is the best of some rounds: neighbours on a shared machine only ever add. */

import type { Gpu, View } from '../src/gpu/device.ts';

const probes = new WeakMap<Gpu, View>();

/** Waits until everything recorded has run, by a read-back of four bytes: what real steps wait for too. */
export async function settle(gpu: Gpu): Promise<void> {
  let probe = probes.get(gpu);
  if (!probe) probes.set(gpu, (probe = gpu.buffer('bench.probe', 4)));
  await gpu.read(probe);
}

export interface Effort {
  rounds: number;
  /** Seconds that one round should last, so that its read-back does not show. */
  roundS: number;
}

/** Best seconds of what `record` records, encoding excluded. */
export async function secondsOf(gpu: Gpu, record: () => void, { rounds, roundS }: Effort): Promise<number> {
  const run = async (times: number) => {
    for (let i = 0; i < times; i++) record();
    const started = performance.now();
    await settle(gpu);
    return (performance.now() - started) / 1000 / times;
  };
  await settle(gpu);
  await run(1); // compiles
  const once = await run(1);
  const times = Math.max(1, Math.min(200, Math.round(roundS / once)));
  let best = once;
  for (let i = 0; i < rounds; i++) best = Math.min(best, await run(times));
  return best;
}

/** Best seconds of an asynchronous step, after `warmUps` that do not count. */
export async function bestSeconds(step: () => Promise<void>, rounds: number, warmUps = 1): Promise<number> {
  for (let i = 0; i < warmUps; i++) await step();
  let best = Infinity;
  for (let i = 0; i < rounds; i++) {
    const started = performance.now();
    await step();
    best = Math.min(best, (performance.now() - started) / 1000);
  }
  return best;
}

/**
 * Timing of recorded GPU work. Every figure is the best of several rounds, because other programs on a shared machine only ever add time.
 */

import type { Gpu, View } from '../../gpu/device.ts';

const probes = new WeakMap<Gpu, View>();

/** Waits until all recorded GPU work has run, with a read-back of four bytes, as real steps do. */
export async function settle(gpu: Gpu): Promise<void> {
  let probe = probes.get(gpu);
  if (!probe) probes.set(gpu, (probe = gpu.buffer('bench.probe', 4)));
  await gpu.read(probe);
}

export interface Effort {
  rounds: number;
  /** Seconds of one round, long enough for its read-back not to matter. */
  roundS: number;
}

const MOST_TIMES = 256;

/** Returns the best seconds of the work that `record` records. Encoding and the read-back that ends a round are subtracted. */
export async function secondsOf(gpu: Gpu, record: () => void, { rounds, roundS }: Effort): Promise<number> {
  const run = async (times: number) => {
    for (let i = 0; i < times; i++) record();
    return elapsed(() => settle(gpu));
  };
  await run(1); // compiles kernels
  let readBack = Infinity;
  for (let i = 0; i < 3; i++) readBack = Math.min(readBack, await elapsed(() => settle(gpu)));
  const best = async (times: number) => {
    let seconds = Infinity;
    for (let i = 0; i < rounds; i++) seconds = Math.min(seconds, await run(times));
    return seconds;
  };
  let times = 1;
  while ((await run(times)) - readBack < roundS && times < MOST_TIMES) times *= 2;
  // If another program slows down a run of the loop above, `times` stays too small, and most of the measured time is the read-back.
  let seconds = await best(times);
  while (seconds - readBack < roundS / 2 && times < MOST_TIMES) seconds = await best((times *= 2));
  // The time of a read-back varies. Subtracting more than half would leave mostly its noise.
  return Math.max(seconds - readBack, seconds / 2) / times;
}

/** Returns the seconds of asynchronous work. */
export async function elapsed(work: () => Promise<void>): Promise<number> {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1000;
}

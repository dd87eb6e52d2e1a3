/** Timing of steps. Every figure is the best of several rounds, because other programs on a shared machine only ever add time. */

import { elapsed } from '../src/extensions/limits/index.ts';

/** Seconds after which a slow step is not measured again, because a peer has five minutes in total. */
const LONG_S = 30;

/** Returns the best seconds of an asynchronous step, after `warmUps` steps that do not count. */
export async function bestSeconds(step: () => Promise<void>, rounds: number, warmUps = 1): Promise<number> {
  for (let i = 0; i < warmUps; i++) await step();
  let best = Infinity;
  for (let i = 0; i < rounds && (i === 0 || best < LONG_S); i++) best = Math.min(best, await elapsed(step));
  return best;
}

export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return (low + high) / 2;
}

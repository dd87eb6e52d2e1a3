/**
 * Compares rollout.asyncScheduling on, off and auto on the default recipe: `on` starts a decode pass before the tokens of the previous pass
 * were read back. The same steps run in turn in one process and sample the same tokens, so only times differ.
 */

import type { Gpu } from '../src/gpu/device.ts';
import type { GrpoTrainer } from '../src/grpo/trainer.ts';
import type { AsyncScheduling } from '../src/rollout/server/server.ts';
import { busySeconds } from './busy.ts';
import type { Report } from './report.ts';
import { recipeTrainer, type StepInputs } from './step.ts';
import { median } from './timing.ts';

const KINDS: AsyncScheduling[] = ['off', 'on', 'auto'];

type Result = NonNullable<Report['asyncScheduling']>;

export async function benchAsyncScheduling(gpu: Gpu, inputs: StepInputs, rounds: number): Promise<Result> {
  const trainers = new Map<AsyncScheduling, GrpoTrainer>();
  for (const asyncScheduling of KINDS)
    trainers.set(asyncScheduling, await recipeTrainer(gpu, inputs, { asyncScheduling }));
  for (const trainer of trainers.values()) await trainer.step(); // compiles kernels and grows buffers
  const runs = Object.fromEntries(KINDS.map((kind) => [kind, [] as { genS: number; idleShare?: number }[]]));
  for (let round = 0; round < rounds; round++)
    for (const kind of round % 2 ? [...KINDS].reverse() : KINDS) {
      let [genS, stepS] = [0, 0];
      const busy = await busySeconds(gpu, async () => {
        const { metrics } = await trainers.get(kind)!.step();
        [genS, stepS] = [metrics['timing_s/gen'], metrics['timing_s/step']];
      });
      runs[kind].push({ genS, ...(busy !== undefined && { idleShare: Math.max(0, 1 - busy / stepS) }) });
    }
  const results = KINDS.map((kind) => {
    const idle = runs[kind].flatMap(({ idleShare }) => (idleShare === undefined ? [] : [idleShare]));
    const genS = runs[kind].reduce((sum, run) => sum + run.genS, 0);
    return [kind, { genS, ...(idle.length > 0 && { idleShare: median(idle) }) }] as const;
  });
  return Object.fromEntries(results) as Result;
}

/**
 * Runs steps of the default recipe with and without `actor.skipZeroAdvantages`, in turn in one process. The shares of groups with equal
 * rewards are those of early, middle and late steps of the recipe, which has 80. The learning rate is tiny and both variants sample the
 * same tokens, so only times differ.
 */

import type { Gpu } from '../src/gpu/device.ts';
import type { Task } from '../src/tasks/task.ts';
import type { Report } from './report.ts';
import { recipeTrainer, type StepInputs } from './step.ts';
import { median } from './timing.ts';

/** Shares `frac_reward_zero_std` of the recipe in steps 1 to 10, 21 to 30 and 41 to 50. */
const SHARES = [0.1, 0.59, 0.83];

type Result = NonNullable<Report['skip']>[number];

export async function benchSkip(gpu: Gpu, inputs: StepInputs, rounds: number): Promise<Result[]> {
  let share = 0;
  const task = withEqualGroups(inputs.task, () => share);
  const trainerOf = (skipZeroAdvantages: boolean) => {
    const { config } = inputs;
    const actor = { ...config.actor, skipZeroAdvantages, optim: { ...config.actor.optim, lr: 1e-12 } };
    return recipeTrainer(gpu, { ...inputs, task, config: { ...config, actor } });
  };
  const trainers = { on: await trainerOf(true), off: await trainerOf(false) };
  for (const trainer of Object.values(trainers)) await trainer.step(); // compiles kernels and grows buffers
  const results: Result[] = [];
  for (share of SHARES) {
    const none = (): { update: number[]; step: number[] } => ({ update: [], step: [] });
    const seconds = { on: none(), off: none() };
    for (let round = 0; round < rounds; round++)
      for (const setting of round % 2 ? (['off', 'on'] as const) : (['on', 'off'] as const)) {
        const { metrics } = await trainers[setting].step();
        seconds[setting].update.push(metrics['timing_s/update_actor']);
        seconds[setting].step.push(metrics['timing_s/step']);
      }
    const middle = ({ update, step }: ReturnType<typeof none>) => ({ updateS: median(update), stepS: median(step) });
    results.push({ equalGroups: share, on: middle(seconds.on), off: middle(seconds.off) });
  }
  return results;
}

/** Returns the task with rewards that are all 1 in an evenly spread `share` of the groups, and alternately 0 and 1 in the others. */
function withEqualGroups(task: Task, share: () => number): Task {
  const indices = new Map<string, number>();
  const tries = new Map<string, number>();
  return {
    ...task,
    train: async (index, seed) => {
      const problem = await task.train(index, seed);
      indices.set(problem.id, index);
      return problem;
    },
    reward: async ({ problem }) => {
      const [index, n] = [indices.get(problem.id) ?? 0, tries.get(problem.id) ?? 0];
      tries.set(problem.id, n + 1);
      const equal = Math.floor((index + 1) * share()) > Math.floor(index * share());
      return { score: equal ? 1 : n % 2, acc: 0 };
    },
  };
}

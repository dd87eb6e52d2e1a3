/** Live work of figure 6.1: evaluates the shipped model with new tries. */

import { GrpoTrainer } from '../../../src/grpo/trainer.ts';
import { live } from '../kit/live.ts';

/** Number of problems, and of tries per problem. */
export const PROBLEMS = 64;
export const TRIES = 8;

interface EvaluationEvents {
  onProgress: (done: number) => void;
  signal: AbortSignal;
}

/** Number of evaluations so far. Each one samples its tries with another seed. */
let evaluations = 0;

/** Evaluates the shipped model with new tries, and returns the outcomes by problem; undefined if `signal` aborted. */
export async function evaluateHere({ onProgress, signal }: EvaluationEvents): Promise<number[][] | undefined> {
  const seed = 2 + evaluations++;
  return live(async ({ config: recipe, engine, task }) => {
    const config = {
      ...recipe,
      seed,
      data: { ...recipe.data, valMaxSamples: PROBLEMS },
      rollout: { ...recipe.rollout, valKwargs: { ...recipe.rollout.valKwargs, n: TRIES } },
    };
    const byProblem = new Map<number, number[]>();
    let drawn = 0;
    const trainer = new GrpoTrainer({ config, engine, task });
    try {
      await trainer.validate({
        signal,
        onSample: ({ group, reward }) => {
          byProblem.set(group, [...(byProblem.get(group) ?? []), reward.acc]);
          if (++drawn % TRIES === 0) onProgress(drawn / TRIES);
        },
      });
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    }
    return [...byProblem.values()];
  }, signal);
}

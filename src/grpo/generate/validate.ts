/** Evaluation on held-out problems. */

import type { SamplingParams } from '../../rollout/types.ts';
import type { Task } from '../../tasks/task.ts';
import { mean } from '../advantages/index.ts';
import { type Metrics, validationMetrics } from '../metrics.ts';
import type { Sample } from '../update/batch.ts';
import { type GenerationContext, generateOptions, GREEDY } from './options.ts';
import { generateSamples } from './samples.ts';

export interface ValidateOptions {
  /** Answers every problem greedily as well. */
  greedy?: boolean;
  /** The step that it follows, for the reward function. */
  globalStep?: number;
  /** Sees every sampled conversation as it ends, not the greedy ones. */
  onSample?: (sample: Sample) => void;
}

const VALIDATION_BATCH = 0xffffffff; // no training step has this number

/** Held-out accuracy: sampled as `rollout.valKwargs` says, and greedy as well when asked. Uses the outcome, not shaping. */
export async function validate(
  generation: GenerationContext,
  { greedy = false, globalStep, onSample }: ValidateOptions = {},
): Promise<Metrics> {
  const { config, task } = generation;
  const started = performance.now();
  const problems = task.heldOut(config.data.valSize);
  /** [P][n] accuracy of each answer. */
  const accuracies = async (n: number, override: Partial<SamplingParams>, listen?: ValidateOptions['onSample']) => {
    const { sampling, ...options } = generateOptions({ ...generation, task: withOutcome(task) }, VALIDATION_BATCH, n);
    const { samples } = await generateSamples(problems, {
      ...options,
      sampling: { ...sampling, ...override },
      ...(globalStep !== undefined && { globalStep }),
      ...(listen && { onSample: listen }),
    });
    return problems.map((_, p) => samples.slice(p * n, (p + 1) * n).map(({ reward }) => reward.acc));
  };
  const { n, ...sampling } = config.rollout.valKwargs;
  const metrics = validationMetrics(task.name, await accuracies(n, sampling, onSample));
  if (greedy) {
    const known = (await accuracies(1, GREEDY)).flat().filter((acc) => !Number.isNaN(acc));
    if (known.length > 0) metrics[`val-core/${task.name}/acc/greedy`] = mean(known);
  }
  await generation.engine.rollout.takeStats(); // of an evaluation, which the next step's throughput is not to count
  return { ...metrics, 'timing_s/testing': (performance.now() - started) / 1000 };
}

/** The task with its reward's shaping taken off. */
function withOutcome(task: Task): Task {
  return {
    ...task,
    async reward(sample) {
      const reward = await task.reward(sample);
      return { ...reward, score: reward.acc };
    },
  };
}

/** Evaluation on held-out problems. */

import type { Task } from '../../tasks/task.ts';
import { mean } from '../advantages/index.ts';
import { type Metrics, validationMetrics } from '../metrics.ts';
import type { Sample } from '../update/batch.ts';
import { type GenerationContext, generateOptions } from './options.ts';
import { generateSamples } from './samples.ts';

export interface ValidateOptions {
  /** Answers every problem greedily as well. */
  greedy?: boolean;
  /** Sees every sampled conversation as it ends, not the greedy ones. */
  onSample?: (sample: Sample) => void;
}

const VALIDATION_BATCH = 0xffffffff; // no training step has this number

/** Held-out accuracy: sampled as `rollout.valKwargs` says, and greedy as well when asked. Uses the outcome, not shaping. */
export async function validate(
  generation: GenerationContext,
  { greedy = false, onSample }: ValidateOptions = {},
): Promise<Metrics> {
  const { config, task } = generation;
  const started = performance.now();
  const problems = task.heldOut(config.data.valSize);
  const { n, ...override } = config.rollout.valKwargs;
  const { sampling, ...options } = generateOptions({ ...generation, task: withOutcome(task) }, VALIDATION_BATCH, n);
  const { samples } = await generateSamples(problems, {
    ...options,
    sampling: { ...sampling, ...override },
    greedy,
    ...(onSample && { onSample }),
  });
  // Accuracies of each problem's answers: the n sampled ones, then the greedy one if it was asked for.
  const tries = n + (greedy ? 1 : 0);
  const accs = problems.map((_, p) => samples.slice(p * tries, (p + 1) * tries).map(({ reward }) => reward.acc));
  const sampled = accs.map((answers) => answers.slice(0, n));
  const metrics = validationMetrics(task.name, sampled);
  const known = accs.flatMap((answers) => answers.slice(n)).filter((acc) => !Number.isNaN(acc));
  if (known.length > 0) metrics[`val-core/${task.name}/acc/greedy`] = mean(known);
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

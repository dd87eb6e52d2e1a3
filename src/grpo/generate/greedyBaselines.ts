/** ReMax's baselines (arXiv:2310.10505). */

import type { Sample } from '../update/batch.ts';
import { scoreOf } from '../update/stepTokens.ts';
import { type GenerationContext, generateOptions, GREEDY } from './options.ts';
import { generateSamples } from './samples.ts';

/** Returns [N] the score of a greedy answer to the prompt of each sample, with the penalty on an overlong answer. */
export async function greedyBaselines(
  generation: GenerationContext,
  samples: Sample[],
  step: number,
): Promise<number[]> {
  const problems = new Map(samples.map(({ group, problem }) => [group, problem]));
  const { sampling, ...options } = generateOptions(generation, step, 1);
  const greedy = { ...options, globalStep: step, sampling: { ...sampling, ...GREEDY } };
  const { samples: answers } = await generateSamples([...problems.values()], greedy);
  const scores = new Map([...problems.keys()].map((group, i) => [group, scoreOf(generation.config, answers[i])]));
  return samples.map(({ group }) => scores.get(group)!);
}

/** Checks before a run: generates a group of step 1 with the untrained model, and times a step on this device. */

import { withRewardWeights } from '../../tasks/rewards/combine.ts';
import { correctionSettings } from '../../grpo/correction/settings.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { type GenerationContext, generateOptions, hasRewardModels } from '../../grpo/generate/options.ts';
import { ProblemQueue } from '../../grpo/generate/problems.ts';
import { generateSamples } from '../../grpo/generate/samples.ts';
import { rowTokens } from '../../grpo/update/rows.ts';
import { PolicyUpdater } from '../../grpo/update/updater.ts';

/**
 * Generates a group of step 1 in advance. The run will sample the same tokens again, and is not affected. Generates nothing if reward
 * models score the samples.
 * @param of.problem index of the group in step 1; default: 0
 */
export async function firstGroup(
  generation: GenerationContext,
  of: { problem?: number; onSample: (sample: Sample) => void; signal: AbortSignal },
): Promise<void> {
  const { problem = 0, onSample, signal } = of;
  const { config, engine, task } = generation;
  if (hasRewardModels(config.reward)) return;
  const problems = await new ProblemQueue(task, config, engine.tokenizer).take(problem + 1);
  const scored = { ...generation, task: withRewardWeights(task, config.reward.weights) };
  const ifWanted = (sample: Sample) => {
    if (!signal.aborted) onSample(sample);
  };
  const options = { ...generateOptions(scored, 1, config.rollout.n), globalStep: 1, onSample: ifWanted, signal };
  try {
    if (!signal.aborted) await generateSamples(problems.slice(problem), { ...options, firstGroup: problem });
  } finally {
    await engine.rollout.resetCache(0);
    await engine.rollout.takeStats();
  }
}

/** Measured seconds of a step's generation and update. */
interface TimedStep {
  generationS: number;
  updateS: number;
}

/**
 * Times the generation and the update of a step with `count` prompts, and returns both in seconds. Only the gradient of the first
 * mini-batch is timed; those of the other mini-batches and epochs are assumed to take as long. The gradients are cleared and the optimizer
 * does not run, so a run is not affected. Undefined if reward models score the samples, or if `signal` aborts (checked between samples and
 * after a mini-batch).
 */
export async function timedStep(
  { config, engine, task }: GenerationContext & { engine: TrainerEngine },
  { problems: count, signal }: { problems: number; signal: AbortSignal },
): Promise<TimedStep | undefined> {
  if (hasRewardModels(config.reward) || signal.aborted) return undefined;
  const problems = await new ProblemQueue(task, config, engine.tokenizer).take(count);
  const generation = { config, engine, task: withRewardWeights(task, config.reward.weights) };
  const updater = new PolicyUpdater(config, engine);
  /** Returns the milliseconds of the log-prob passes over all samples, and of the first mini-batch's gradient. */
  const update = async (samples: Sample[]) => {
    const start = performance.now();
    const refLogProbs = await updater.refLogProbs(samples);
    const bypass = correctionSettings(config).bypassMode;
    const oldLogProbs = bypass ? undefined : await updater.oldLogProbs(samples);
    const scored = performance.now();
    if (!signal.aborted) await updater.gradients(samples, rowTokens(config, samples, { refLogProbs, oldLogProbs }), 1);
    return { logProbsMs: scored - start, gradientMs: performance.now() - scored };
  };
  try {
    const start = performance.now();
    const options = { ...generateOptions(generation, 1, config.rollout.n), globalStep: 1, signal };
    const { samples } = await generateSamples(problems, options);
    const generated = performance.now();
    if (signal.aborted) return undefined;
    await update(samples.slice(0, config.rollout.n)); // not timed: the first pass compiles kernels
    if (signal.aborted) return undefined;
    const { logProbsMs, gradientMs } = await update(samples);
    if (signal.aborted) return undefined;
    const { ppoMiniBatchSize, ppoEpochs } = config.actor;
    const updates = Math.max(1, count / ppoMiniBatchSize) * ppoEpochs;
    return { generationS: (generated - start) / 1000, updateS: (logProbsMs + gradientMs * updates) / 1000 };
  } finally {
    await engine.model.zeroGrad();
    await engine.rollout.resetCache(0);
    await engine.rollout.takeStats();
  }
}

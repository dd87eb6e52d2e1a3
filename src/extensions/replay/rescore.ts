/** Scores the samples of a stored step with another reward, and reports the differences. */

import { InputError } from '../../errors.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { score } from '../../grpo/generate/score.ts';
import { meanTrained } from '../../grpo/metrics.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { rowTokens } from '../../grpo/update/rows.ts';
import type { KeptStep } from './keptStep.ts';

/** Result of rescoring a step. Means and shares are over the samples that both rewards score; NaN without such samples. */
export interface RescoredStep {
  step: number;
  /** Number of samples that both rewards score. */
  samples: number;
  /** Mean score by the run's own reward. `newScore` is the mean score by the new reward. */
  oldScore: number;
  newScore: number;
  /** Pearson correlation between the scores of both rewards; NaN if all scores of one reward are equal. */
  correlation: number;
  /** Share of the groups whose best sample changes: no sample has the highest score by both rewards. */
  bestChanged: number;
  /** Share of the samples whose advantage changes its sign; NaN if the estimator compares with stored scores by the old reward. */
  signFlips: number;
}

/**
 * Calls the new reward as training would: for all samples of a step concurrently, with the time limit, and with its results validated.
 * Throws UserCodeError if the reward fails, InputError if the run's advantage estimator cannot use its results.
 */
export async function rescore(step: KeptStep, config: TrainConfig, reward: Task['reward']): Promise<RescoredStep> {
  const options = { task: { reward }, globalStep: step.step, rewardTimeoutMs: config.reward.timeoutS * 1000 };
  const samples = await Promise.all(
    step.samples.map(async (sample): Promise<Sample> => {
      // Not scored again: samples whose agent loop failed, and forks, which have no score of their own.
      if (sample.trajectory.stopReason === 'error' || sample.fork) return sample;
      const { fault: _, ...ended } = sample;
      // An environment's first observation is a part of the problem that training scores.
      const problem = sample.prompt ? { ...sample.problem, messages: sample.prompt } : sample.problem;
      return { ...ended, reward: (await score(options, problem, ended)).reward };
    }),
  );
  const advantages = newAdvantages(step, config, samples);
  const both = samples.flatMap(({ reward: { score: now }, group, trajectory, fork }, s) => {
    const old = step.samples[s].reward.score;
    if (fork || Number.isNaN(old) || Number.isNaN(now)) return [];
    const before = meanTrained(step.advantages[s], trajectory.mask);
    return [{ group, old, now, flips: before * advantages[s] < 0 }];
  });
  const groups = byGroup(both);
  const { baselines, roleBaselines } = step.extras; // of remax and rae: scores by the old reward
  const [old, now] = [both.map((sample) => sample.old), both.map((sample) => sample.now)];
  return {
    step: step.step,
    samples: both.length,
    oldScore: mean(old),
    newScore: mean(now),
    correlation: correlation(old, now),
    bestChanged: mean(groups.map((group) => (sharesBest(group) ? 0 : 1))),
    signFlips: baselines || roleBaselines ? NaN : mean(both.map(({ flips }) => (flips ? 1 : 0))),
  };
}

/** Returns the mean advantage of each sample under the new scores, by the run's own estimator. */
function newAdvantages({ step, extras }: KeptStep, config: TrainConfig, samples: Sample[]): number[] {
  try {
    rowTokens(config, samples, extras);
  } catch (error) {
    if (!(error instanceof InputError) && !(error instanceof RangeError)) throw error;
    throw new InputError(`Step ${step} has no advantages by the new reward: ${error.message}`, { cause: error });
  }
  return samples.map(({ advantage }) => advantage ?? 0);
}

function sharesBest(group: { old: number; now: number }[]): boolean {
  const [old, now] = [largest(group.map((sample) => sample.old)), largest(group.map((sample) => sample.now))];
  return group.some((sample) => sample.old === old && sample.now === now);
}

const isFlat = (values: number[]): boolean => values.every((value) => value === values[0]);
const largest = (values: number[]): number => values.reduce((a, b) => Math.max(a, b), -Infinity);
const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

function correlation(a: number[], b: number[]): number {
  const [meanA, meanB] = [mean(a), mean(b)];
  const covariance = (x: number[], y: number[], mx: number, my: number) =>
    x.reduce((sum, value, i) => sum + (value - mx) * (y[i] - my), 0);
  const spread = Math.sqrt(covariance(a, a, meanA, meanA) * covariance(b, b, meanB, meanB));
  return isFlat(a) || isFlat(b) ? NaN : covariance(a, b, meanA, meanB) / spread;
}

function byGroup<T extends { group: number }>(samples: readonly T[]): T[][] {
  const groups = new Map<number, T[]>();
  for (const sample of samples) groups.set(sample.group, [...(groups.get(sample.group) ?? []), sample]);
  return [...groups.values()];
}

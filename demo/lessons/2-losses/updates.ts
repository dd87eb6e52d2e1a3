/**
 * Updates a model repeatedly on the same tries, and returns every token's log-prob after each update. The page and
 * scripts/record-losses.mjs call it.
 */

import { Learner } from '../../../src/extensions/learner/index.ts';
import { computeAdvantages } from '../../../src/grpo/advantages/index.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { firstGroup } from '../../../src/extensions/checks/index.ts';
import type { TrainerEngine } from '../../../src/grpo/types.ts';
import type { Sample } from '../../../src/grpo/update/batch.ts';
import type { Message, Task } from '../../../src/tasks/task.ts';

/** Numbers of updates after which log-probs are computed. */
export const UPDATES = [0, 1, 2, 4, 8];

/** Learning rate: ten times the recipe's, so that eight updates move ratios beyond the clip. */
export const RATE = 3e-3;

/** A try with its tokens. */
export interface TokenTry {
  reward: number;
  /** Text of each token. */
  tokens: string[];
  /** 1 = sampled by the model and trained; 0 = written by a tool or the template. */
  mask: number[];
  /** [UPDATES][tokens] natural log-probs. The first row has the log-probs at sampling time. */
  logProbs: number[][];
}

/** A problem with its tries: right tries first, shorter tries before longer ones. */
export interface TokenGroup {
  prompt: Message[];
  answer: string;
  tries: TokenTry[];
}

interface UpdateOptions {
  /** Problems of step 1. */
  problems: readonly number[];
  rate?: number;
  signal: AbortSignal;
  /** Called after each try with the number of tries so far. */
  onTry?: (tries: number) => void;
  /** Called after each update with the number of updates so far. */
  onUpdate?: (updates: number) => void;
}

/** Number of decimals of a stored log-prob. */
const DECIMALS = 5;

/**
 * Samples the groups as step 1 does, then makes updates on them with the config's loss. The initial weights are restored at the end.
 * Returns undefined if `signal` aborts.
 */
export async function updatesOn(
  generation: { config: TrainConfig; engine: TrainerEngine; task: Task },
  { problems, rate = RATE, signal, onTry, onUpdate }: UpdateOptions,
): Promise<TokenGroup[] | undefined> {
  const { config, engine } = generation;
  const learner = new Learner({ engine, config });
  const start = await learner.saveState();
  try {
    const groups: Sample[][] = [];
    let tries = 0;
    for (const problem of problems) {
      const samples: Sample[] = [];
      const onSample = (sample: Sample) => {
        samples.push(sample);
        onTry?.(++tries);
      };
      await firstGroup(generation, { problem, onSample, signal });
      groups.push(samples.sort(bestFirst));
    }
    const samples = groups.flat();
    const rows = rowsOf(samples);
    const prompts = samples.map(({ trajectory }) => trajectory.promptIds.length);
    const taken: number[][][] = [];
    const take = (logProbs: readonly ArrayLike<number>[]) =>
      taken.push(logProbs.map((values, s) => Array.from(values).slice(prompts[s]).map(rounded)));
    for (let updates = 0; updates < UPDATES.at(-1)!; updates++) {
      if (signal.aborted) return undefined;
      const { logProbs } = await learner.forwardBackward(rows);
      if (UPDATES.includes(updates)) take(logProbs);
      await learner.optimStep({ lr: rate });
      onUpdate?.(updates + 1);
    }
    take((await learner.logProbs(rows)).logProbs);
    return signal.aborted ? undefined : storedGroups(groups, taken, engine);
  } finally {
    await learner.zeroGrad();
    await learner.loadState(start);
  }
}

const rounded = (value: number): number => Number(value.toFixed(DECIMALS));

const bestFirst = (a: Sample, b: Sample): number =>
  b.reward.score - a.reward.score || b.trajectory.responseIds.length - a.trajectory.responseIds.length;

/** Returns samples as rows of a learner, with GRPO's advantages. */
function rowsOf(samples: readonly Sample[]) {
  const rewards = samples.map(({ reward }) => reward.score);
  const groups = samples.map(({ group }) => group);
  const masks = samples.map(({ trajectory }) => trajectory.mask);
  const advantages = computeAdvantages('grpo', { rewards, groups, masks });
  return samples.map(({ group, trajectory: { promptIds, responseIds, mask, logProbs } }, s) => {
    const behind = (values: ArrayLike<number>) => [...promptIds.map(() => 0), ...Array.from(values)];
    return {
      tokens: [...promptIds, ...responseIds],
      mask: behind(mask),
      promptLength: promptIds.length,
      group,
      logProbs: behind(logProbs),
      advantages: behind(advantages[s]),
    };
  });
}

function storedGroups(
  groups: readonly Sample[][],
  taken: readonly number[][][],
  { tokenizer }: TrainerEngine,
): TokenGroup[] {
  const order = groups.flat();
  return groups.map((samples) => ({
    prompt: samples[0].prompt ?? samples[0].problem.messages,
    answer: samples[0].problem.answer,
    tries: samples.map((sample) => ({
      reward: sample.reward.score,
      tokens: Array.from(sample.trajectory.responseIds, (id) => tokenizer.decode([id])),
      mask: Array.from(sample.trajectory.mask),
      logProbs: taken.map((all) => all[order.indexOf(sample)]),
    })),
  }));
}

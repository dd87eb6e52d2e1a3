/** Recorded groups of a lesson, and the advantages that the library computes for them. scripts/record-lessons.mjs writes the file. */

import { type AdvantageEstimator, computeAdvantages, type ScaleRewards } from '../../../src/grpo/advantages/index.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { Message } from '../../../src/tasks/task.ts';

/** A stored try. Fields that all tries of a group share are stored once, in the group. */
type StoredTry = Omit<LoggedRollout, 'step' | 'group' | 'problem' | 'answer' | 'promptMessages'>;

/** A recorded group. */
export interface RecordedGroup {
  problem: string;
  answer: string;
  prompt: Message[];
  tries: StoredTry[];
}

/** Content of recorded.json. */
export interface Recorded {
  command: string;
  commit: string;
  adapter: string;
  date: string;
  /** The page's recorded run. Entries: step, mean reward, share of silent groups. */
  run: { command: string; commit: string; steps: [number, number, number][] };
  groups: RecordedGroup[];
}

/** Returns the tries of a group in the format of a run's log. */
export function triesOf({ problem, answer, prompt, tries }: RecordedGroup, group: number): LoggedRollout[] {
  return tries.map(({ messages, ...one }) => ({
    step: 1,
    group,
    problem,
    answer,
    messages: [...prompt, ...messages],
    promptMessages: prompt.length,
    ...one,
  }));
}

/** Returns the text of a group's problem. */
export const questionOf = ({ prompt }: RecordedGroup): string => prompt.at(-1)?.content ?? '';

/** Advantage methods that a lesson compares. */
export const METHODS = {
  grpo: { name: 'GRPO', note: 'minus the mean, divided by the spread', estimator: 'grpo', scale: 'group' },
  drgrpo: { name: 'Dr. GRPO', note: 'minus the mean, not divided', estimator: 'grpo', scale: 'none' },
  rloo: { name: 'RLOO', note: 'minus the mean of the other tries', estimator: 'rloo', scale: 'group' },
  maxrl: { name: 'MaxRL', note: 'minus the mean, divided by the mean', estimator: 'max_rl', scale: 'group' },
  opo: { name: 'OPO', note: 'minus a mean that weighs long tries more', estimator: 'opo', scale: 'group' },
  passk: { name: 'GRPO pass@k', note: 'only the best try, by its lead', estimator: 'grpo_passk', scale: 'group' },
} as const satisfies Record<string, { name: string; note: string; estimator: AdvantageEstimator; scale: ScaleRewards }>;

export type Method = keyof typeof METHODS;

/**
 * Returns the advantage of each try of one group.
 * @param rewards NaN = no reward
 * @param tokens tokens of each try, which only OPO reads; default: all the same
 */
export function advantagesBy(method: Method, rewards: readonly number[], tokens: readonly number[] = []): number[] {
  const { estimator, scale } = METHODS[method];
  if (rewards.length === 0 || (estimator === 'grpo_passk' && rewards.length < 2)) return rewards.map(() => 0);
  const groups = rewards.map(() => 0);
  const masks = rewards.map((_, i) => new Uint8Array(Math.max(1, tokens[i] ?? 1)).fill(1));
  return computeAdvantages(estimator, { rewards, groups, masks }, { scaleRewards: scale }).map(([first]) => first);
}

/**
 * Returns GDPO's advantages for several named rewards: each reward is normalised within the group, then the sum is normalised over the
 * batch. Here the batch is one group.
 */
export function gdpoAdvantages(components: readonly (readonly number[])[], weights: readonly number[]): number[] {
  const groups = components[0].map(() => 0);
  const masks = groups.map(() => new Uint8Array(1).fill(1));
  const inputs = { rewards: components[0], groups, masks, components };
  return computeAdvantages('gdpo', inputs, { rewardWeights: weights }).map(([first]) => first);
}

/** Sampled rollouts: what a run logs of each step, and the few of them that its report shows. */

import type { Sample } from '../grpo/update/batch.ts';
import type { Message, Reward } from '../tasks/task.ts';

/** One sampled rollout, as `rollouts/step-N.jsonl` holds it a line. */
export interface LoggedRollout {
  step: number;
  group: number;
  problem: string;
  answer: string;
  /** Prompt and everything after it. */
  messages: Message[];
  /** How many of them are the prompt. */
  promptMessages: number;
  /** null = the task gave none. */
  score: number | null;
  acc: number | null;
  stopReason: string;
  numTurns: number;
  numToolCalls: number;
  responseTokens: number;
  /** Mean over its trained tokens; null = it has none. */
  advantage: number | null;
  /** Reward of each assistant turn, where the task gives them. */
  turnRewards?: number[];
  /** The reward's further values, by name, where the task gives them. */
  extra?: Reward['extra'];
}

/** The first `count` samples of a step, group by group, as they are logged. */
export function loggedRollouts(samples: readonly Sample[], step: number, count: number): LoggedRollout[] {
  return samples
    .slice(0, count)
    .map(({ problem, prompt = problem.messages, group, trajectory, messages, reward, advantage }) => ({
      step,
      group,
      problem: problem.id,
      answer: problem.answer,
      messages: [...prompt, ...messages],
      promptMessages: prompt.length,
      score: numberOrNull(reward.score),
      acc: numberOrNull(reward.acc),
      stopReason: trajectory.stopReason,
      numTurns: trajectory.numTurns,
      numToolCalls: trajectory.numToolCalls,
      responseTokens: trajectory.responseIds.length,
      advantage: numberOrNull(advantage ?? NaN),
      ...(reward.turns && { turnRewards: reward.turns }),
      ...(reward.extra && { extra: reward.extra }),
    }));
}

/** JSON has no NaN. */
const numberOrNull = (value: number): number | null => (Number.isNaN(value) ? null : value);

/** The rollouts of one step that a report shows. */
export interface ShownStep {
  step: number;
  rollouts: LoggedRollout[];
}

const STEPS_SHOWN = 6;
const ROLLOUTS_PER_STEP = 4;

/** A few rollouts of the first step, the last, and some between. */
export function shownRollouts(rollouts: readonly LoggedRollout[]): ShownStep[] {
  const steps = [...new Set(rollouts.map(({ step }) => step))];
  return spreadOut(steps, STEPS_SHOWN).map((step) => ({
    step,
    rollouts: rollouts.filter((rollout) => rollout.step === step).slice(0, ROLLOUTS_PER_STEP),
  }));
}

/** At most `count` of the items, evenly spaced, the first and the last among them. */
export function spreadOut<T>(items: readonly T[], count: number): T[] {
  if (items.length <= count) return [...items];
  if (count < 2) return items.slice(0, count);
  return Array.from({ length: count }, (_, i) => items[Math.round((i * (items.length - 1)) / (count - 1))]);
}

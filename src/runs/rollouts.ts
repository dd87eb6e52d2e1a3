/** Chooses logged rollouts: those of each step that a run logs, and those of a run that its report shows. */

import type { Sample } from '../grpo/update/batch.ts';
import type { Message, Reward } from '../tasks/task.ts';

/** A logged rollout: one line of `rollouts/step-N.jsonl`. */
export interface LoggedRollout {
  step: number;
  group: number;
  problem: string;
  answer: string;
  /** Messages of the prompt, and all messages after it. */
  messages: Message[];
  /** Number of messages that belong to the prompt. */
  promptMessages: number;
  /** Score of the sample; null if the task's reward has returned none. */
  score: number | null;
  acc: number | null;
  stopReason: string;
  numTurns: number;
  numToolCalls: number;
  responseTokens: number;
  /** Mean advantage over the tokens that are trained on; null without such tokens. */
  advantage: number | null;
  /** Reward of each assistant turn, if the task's reward has them. */
  turnRewards?: number[];
  /** Additional values of the reward, by name, if the task's reward has any. */
  extra?: Reward['extra'];
}

/** Returns the first `count` samples of a step as lines of the log, group by group. */
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

/** Replaces NaN by null, because JSON has no NaN. */
const numberOrNull = (value: number): number | null => (Number.isNaN(value) ? null : value);

/** The rollouts of one step in a report. */
export interface ShownStep {
  step: number;
  rollouts: LoggedRollout[];
}

const STEPS_SHOWN = 6;
const ROLLOUTS_PER_STEP = 4;

/** Returns rollouts of the first step, of the last step, and of some steps between them. */
export function shownRollouts(rollouts: readonly LoggedRollout[]): ShownStep[] {
  const steps = [...new Set(rollouts.map(({ step }) => step))];
  return spreadOut(steps, STEPS_SHOWN).map((step) => ({
    step,
    rollouts: rollouts.filter((rollout) => rollout.step === step).slice(0, ROLLOUTS_PER_STEP),
  }));
}

/** Returns at most `count` of the items, evenly spaced. The first and the last item are among them. */
export function spreadOut<T>(items: readonly T[], count: number): T[] {
  if (items.length <= count) return [...items];
  if (count < 2) return items.slice(0, count);
  return Array.from({ length: count }, (_, i) => items[Math.round((i * (items.length - 1)) / (count - 1))]);
}

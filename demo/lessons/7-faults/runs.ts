/** The recorded runs of lesson 7. scripts/record-lesson-faults.mjs writes their curves to recorded.json and their tries to tries.json. */

import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { Message } from '../../../src/tasks/task.ts';
import data from './recorded.json' with { type: 'json' };

/** Curves of a run: one value for each of steps 0, 1, 2, ...; null = not measured. */
type Curves = Readonly<Record<string, readonly (number | null)[]>>;

/** Content of recorded.json. */
export interface Recorded {
  /** Command of a run without its fault. It is the same for all runs. */
  command: string;
  commit: string;
  adapter: string;
  date: string;
  /** Name of the fault in twin.js, by the number of the run. */
  runs: { fault: string; curves: Curves }[];
}

export const RECORDED = data as unknown as Recorded;

/**
 * A stored try: score, share of right answers, advantage, tokens, stop reason, then its messages. The first letter of a message stands for
 * its role.
 */
type StoredTry = [score: number, acc: number, advantage: number | null, tokens: number, stop: string, ...string[]];

/** Content of tries.json: an array of runs, each an array of steps, each with two groups. */
export type StoredTries = { problem: string; answer: string; question: string; tries: StoredTry[] }[][][];

const CALL = '<tool_call>{"name":"calculator","arguments":{"expression":"';
const CALL_END = '"}}</tool_call>';

/**
 * Expands a stored text to a chat message. Its first letter says which: `c` = a call of the calculator, stored without its tags and JSON;
 * `t` = the output of a tool; `a` = another text of the model.
 */
function lengthened(text: string): Message {
  const [kind, rest] = [text[0], text.slice(1)];
  if (kind === 't') return { role: 'tool', content: rest };
  return { role: 'assistant', content: kind === 'c' ? CALL + rest + CALL_END : rest };
}

/** A recorded run with its tries. */
export interface Run {
  number: number;
  curves: Curves;
  /** Tries of two problems of each step; entry 0 is step 1. */
  tries: LoggedRollout[][];
}

/** Returns the last recorded step of a run. */
export const stepsOf = ({ curves }: { curves: Curves }): number => curves['critic/score/mean'].length - 1;

/** Last step of the longest recorded run. */
export const STEPS = Math.max(...RECORDED.runs.map(stepsOf));

/** Returns a run with its tries, taken from the stored tries of all runs. */
export function runOf(number: number, stored: StoredTries): Run {
  const tries = stored[number].map((groups, i) =>
    groups.flatMap(({ problem, answer, question, tries: own }, group) =>
      own.map(([score, acc, advantage, responseTokens, stopReason, ...texts]) => {
        const messages = texts.map(lengthened);
        const numToolCalls = messages.filter(({ role }) => role === 'tool').length;
        return {
          ...{
            step: i + 1,
            group,
            problem,
            answer,
            promptMessages: 1,
            score,
            acc,
            advantage,
            responseTokens,
            stopReason,
          },
          ...{ numToolCalls, numTurns: messages.length - numToolCalls },
          messages: [{ role: 'user' as const, content: question }, ...messages],
        };
      }),
    ),
  );
  return { number, curves: RECORDED.runs[number].curves, tries };
}

/** Charts in the order of the page, by their metric. The vertical axis reaches at least `most`. */
export const CHARTS = {
  'critic/score/mean': { name: 'reward', page: 1, most: 1 },
  'response_length/mean': { name: 'response length, in tokens', page: 1, most: 0 },
  'actor/entropy': { name: 'entropy', page: 1, most: 0 },
  'actor/pg_loss': { name: 'loss', page: 1, most: 0 },
  'critic/acc/mean': { name: 'share of right tries', page: 2, most: 1 },
  'val-core/gsm8k-tool/acc/mean@1': { name: 'pass@1, held-out problems', page: 2, most: 1 },
  frac_reward_zero_std: { name: 'share of silent groups', page: 2, most: 1 },
  'stop/max_tokens': { name: 'share of tries that were cut', page: 2, most: 1 },
  'actor/grad_norm': { name: 'gradient norm', page: 2, most: 1 },
  'actor/ppo_kl': { name: 'KL of the update', page: 2, most: 0.1 },
  'training/rollout_probs_diff_max': { name: 'probabilities: sampler against trainer', page: 2, most: 0.1 },
  'tool_call_counts/error_rate': { name: 'share of calls that failed', page: 2, most: 1 },
} as const satisfies Record<string, { name: string; page: 1 | 2; most: number }>;

export type Chart = keyof typeof CHARTS;

export const CHART_NAMES = Object.keys(CHARTS) as Chart[];

/** Returns the values of a chart at steps 1, 2, ..., without steps at which nothing was measured. */
export const known = ({ curves }: Pick<Run, 'curves'>, chart: Chart): number[] =>
  curves[chart].slice(1).filter((value) => value !== null);

const mean = (values: readonly number[]): number | undefined =>
  values.length === 0 ? undefined : values.reduce((a, b) => a + b, 0) / values.length;

/** Number of steps at the start or at the end of a run over which values are averaged. */
export const WINDOW = 5;

/** Mean of a chart's measured values over the first WINDOW steps; undefined if nothing was measured. */
export const early = ({ curves }: Pick<Run, 'curves'>, chart: Chart): number | undefined =>
  mean(curves[chart].slice(1, WINDOW + 1).filter((value) => value !== null));

/** Mean of a chart's measured values over the last WINDOW steps; undefined if nothing was measured. */
export const late = ({ curves }: Pick<Run, 'curves'>, chart: Chart): number | undefined =>
  mean(curves[chart].slice(-WINDOW).filter((value) => value !== null));

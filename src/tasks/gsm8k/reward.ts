/** verl's strict rule for the reward of a GSM8K answer, and optional reward shaping. */

import type { Reward, ScoredSample } from '../task.ts';

/** Terms that shaping adds to the score. The outcome `acc` excludes them, and evaluation reports only `acc`. */
export interface Shaping {
  /** Score of a response whose line `#### N` has a wrong number (verl's format_score). */
  formatScore: number;
  /** Score of a sample with at least one tool call, none of which failed. */
  toolCallBonus: number;
}

export const NO_SHAPING: Shaping = { formatScore: 0, toolCallBonus: 0 };

/** Number of characters at the end of a response that are searched for the answer, as in verl. */
const SEARCHED_CHARACTERS = 300;

/** Returns the last `#### N` of a text without commas, or null. Equals verl's extract_solution with method "strict". */
export function extractAnswer(text: string): string | null {
  const found = [...text.slice(-SEARCHED_CHARACTERS).matchAll(/#### (-?[0-9.,]+)/g)].at(-1);
  return found ? found[1].replaceAll(',', '') : null;
}

/**
 * Method that finds the answer: strict = the line `#### N`; flexible = the last number of the text, for models that do not write that line.
 */
export const ANSWER_PARSERS = ['strict', 'flexible'] as const;
export type AnswerParser = (typeof ANSWER_PARSERS)[number];

/**
 * Returns the last number of a text, or null. Like verl's extract_solution with method "flexible", but reads "1,000" and "18." as numbers.
 */
function lastNumber(text: string): string | null {
  const found = text
    .slice(-SEARCHED_CHARACTERS)
    .match(/-?\.?[0-9][0-9.,]*/g)
    ?.at(-1);
  return found ? found.replaceAll(',', '').replace(/\.+$/, '') : null;
}

/** Scores a sample: the answer in its last assistant message must equal the problem's answer as a text. */
export function gsm8kReward(
  sample: ScoredSample,
  shaping: Shaping = NO_SHAPING,
  parser: AnswerParser = 'strict',
): Reward {
  const answer = parser === 'strict' ? extractAnswer(sample.response) : lastNumber(sample.response);
  const acc = answer === sample.problem.answer ? 1 : 0;
  const wellFormed = sample.numToolCalls > 0 && sample.numToolErrors === 0;
  const format = answer !== null && !acc ? shaping.formatScore : 0;
  const bonus = format + (wellFormed ? shaping.toolCallBonus : 0);
  const extra = { answered: answer === null ? 0 : 1, toolCallsOk: wellFormed ? 1 : 0 };
  return { score: acc + bonus, acc, extra, ...(answer !== null && { pred: answer }) };
}

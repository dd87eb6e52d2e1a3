/** verl's strict GSM8K rule, and optional shaping on top of it. */

import type { Reward, ScoredSample } from '../task.ts';

/** Terms added to the score. The outcome `acc` excludes them, and evaluation reports `acc` only. */
export interface Shaping {
  /** Score of an answer line `#### N` with a wrong number (verl's format_score). */
  formatScore: number;
  /** Score of at least one tool call without any that failed. */
  toolCallBonus: number;
}

export const NO_SHAPING: Shaping = { formatScore: 0, toolCallBonus: 0 };

/** Only the end of a longer response is searched, as in verl, because the answer is at the end. */
const SEARCHED_CHARACTERS = 300;

/** Returns the last `#### N` of a text without commas, or null. Equals verl's extract_solution with method "strict". */
export function extractAnswer(text: string): string | null {
  const found = [...text.slice(-SEARCHED_CHARACTERS).matchAll(/#### (-?[0-9.,]+)/g)].at(-1);
  return found ? found[1].replaceAll(',', '') : null;
}

/** strict = the line `#### N`; flexible = the last number of the text, for models that do not write that line. */
export const ANSWER_PARSERS = ['strict', 'flexible'] as const;
export type AnswerParser = (typeof ANSWER_PARSERS)[number];

/** Returns the last number of a text without commas, or null. Equals verl's extract_solution with method "flexible". */
function lastNumber(text: string): string | null {
  const found = text
    .slice(-SEARCHED_CHARACTERS)
    .match(/-?[0-9][0-9.,]*/g)
    ?.at(-1);
  return found ? found.replaceAll(',', '').replace(/\.$/, '') : null;
}

/** Scores by exact string match of the answer in the last assistant message. */
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

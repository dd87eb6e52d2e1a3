/** verl's strict GSM8K rule, and optional shaping on top of it. */

import type { Reward, ScoredSample } from '../task.ts';

/** Added to the score. The outcome `acc` never sees it, and evaluation counts `acc` alone. */
export interface Shaping {
  /** For an answer line `#### N` with a wrong number (verl's format_score). */
  formatScore: number;
  /** For at least one tool call, and none that failed. */
  toolCallBonus: number;
}

export const NO_SHAPING: Shaping = { formatScore: 0, toolCallBonus: 0 };

/** As verl: longer responses are cut before the search, since the answer stands at the end. */
const SEARCHED_CHARACTERS = 300;

/** The last `#### N` of a text with commas removed, or null: verl's extract_solution with method "strict". */
export function extractAnswer(text: string): string | null {
  const found = [...text.slice(-SEARCHED_CHARACTERS).matchAll(/#### (-?[0-9.,]+)/g)].at(-1);
  return found ? found[1].replaceAll(',', '') : null;
}

/** strict = the line `#### N`; flexible = the last number of the text, for models that do not keep to the line. */
export const ANSWER_PARSERS = ['strict', 'flexible'] as const;
export type AnswerParser = (typeof ANSWER_PARSERS)[number];

/** The last number of a text with commas removed, or null: what verl's extract_solution does with method "flexible". */
function lastNumber(text: string): string | null {
  const found = text
    .slice(-SEARCHED_CHARACTERS)
    .match(/-?[0-9][0-9.,]*/g)
    ?.at(-1);
  return found ? found.replaceAll(',', '').replace(/\.$/, '') : null;
}

/** Exact string match of the answer in the last assistant message. */
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

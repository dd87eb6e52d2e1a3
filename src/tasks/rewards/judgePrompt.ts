/** The question that a judge answers about a sample. */

import type { ScoredSample } from '../task.ts';

export const JUDGE_PROMPT =
  'Question:\n{question}\n\nAnswer:\n{response}\n\nHow good is the answer, from 0 to 10? Reply with the number.';

/** {question}, {response} and {answer} (the right one) in a template; texts that hold such names stay as they are. */
export function fillJudgePrompt(template: string, sample: ScoredSample): string {
  const values = { question: question(sample), response: sample.response, answer: sample.problem.answer };
  return template.replace(/\{(question|response|answer)\}/g, (_, name: keyof typeof values) => values[name]);
}

export const question = ({ problem }: ScoredSample): string =>
  problem.messages.map(({ content }) => content).join('\n');

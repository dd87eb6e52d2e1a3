/** The question that a judge answers about a sample, and the room that it takes. */

import type { ScoredSample } from '../task.ts';

export const JUDGE_PROMPT =
  'Question:\n{question}\n\nAnswer:\n{response}\n\nHow good is the answer, from 0 to 10? Reply with the number.';

/** {question}, {response} and {answer} (the right one) in a template. */
export function fillJudgePrompt(template: string, sample: ScoredSample): string {
  const { response, problem } = sample;
  return fillTemplate(template, { question: question(sample), response, answer: problem.answer });
}

/** The values in place of their {names}; values that hold such names stay as they are. */
export const fillTemplate = (template: string, values: Readonly<Record<string, string>>): string =>
  template.replace(/\{(\w+)\}/g, (written, name: string) => (Object.hasOwn(values, name) ? values[name] : written));

export const question = ({ problem }: ScoredSample): string =>
  problem.messages.map(({ content }) => content).join('\n');

/** Rows of a pass in which a model of its own judges by a rubric, whose prompts have at most `maxPromptLength` tokens. */
export const judgeTokenLen = (maxPromptLength: number): number => Math.max(1024, maxPromptLength);

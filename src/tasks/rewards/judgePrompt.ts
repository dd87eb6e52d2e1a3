/** The question that a judge answers about a sample, and the number of rows in a pass of a judge. */

import type { ScoredSample } from '../task.ts';

export const JUDGE_PROMPT =
  'Question:\n{question}\n\nAnswer:\n{response}\n\nHow good is the answer, from 0 to 10? Reply with the number.';

/** Replaces {question}, {response} and {answer} in a template; {answer} is the right answer of the problem. */
export function fillJudgePrompt(template: string, sample: ScoredSample): string {
  const { response, problem } = sample;
  return fillTemplate(template, { question: question(sample), response, answer: problem.answer });
}

/** Replaces {name} by its value. Names in braces inside a value are not replaced. */
export const fillTemplate = (template: string, values: Readonly<Record<string, string>>): string =>
  template.replace(/\{(\w+)\}/g, (written, name: string) => (Object.hasOwn(values, name) ? values[name] : written));

/** Returns the texts of the problem's messages, joined by line breaks. */
export const question = ({ problem }: ScoredSample): string =>
  problem.messages.map(({ content }) => content).join('\n');

/** Returns the maximum number of rows in a pass of a separate rubric judge, whose prompts have at most `maxPromptLength` tokens. */
export const judgeTokenLen = (maxPromptLength: number): number => Math.max(1024, maxPromptLength);

/** A user's own question to the model of a task: its problem and its length. */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { encodePrompt } from '../../rollout/agent/prompt.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import { givenProblem } from '../../tasks/problem.ts';
import type { Message, Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';

/**
 * The question as a problem of the task, without an answer: its text stands where a problem's does, see Task.ask. With
 * `earlier` messages it continues with that conversation. Throws InputError for a task of environments, whose problems are
 * not texts.
 */
export async function questionOf(task: Task, text: string, earlier: readonly Message[] = []): Promise<Problem> {
  if (task.environments?.length)
    throw new InputError(
      `Task "${task.name}" has environments, which a question cannot set up. Answer one of its problems.`,
    );
  const example = await givenProblem(`Training problem 0 of task "${task.name}"`, () => task.train(0, 0));
  const asked = task.ask?.(text) ?? withLast(example.messages, text);
  const messages = earlier.length > 0 ? [...earlier, asked[asked.length - 1]] : asked;
  return { ...example, id: 'question', answer: '', messages };
}

function withLast(messages: readonly Message[], content: string): Message[] {
  return [...messages.slice(0, -1), { ...messages[messages.length - 1], content }];
}

/** Tokens of a problem's prompt, as `config` asks for it. */
export function questionTokens(
  { config, task, tokenizer }: { config: TrainConfig; task: Task; tokenizer: ChatTokenizer },
  problem: Problem,
): number {
  const { toolSchemasInPrompt } = config.rollout.multiTurn;
  return encodePrompt({ tokenizer, problem, tools: partsOf(task, problem).tools, toolSchemasInPrompt }).length;
}

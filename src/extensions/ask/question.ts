/** Converts a user's own question to a problem of a task, and counts the tokens of its prompt. */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { encodePrompt, writesSchemas } from '../../rollout/agent/prompt.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import { givenProblem } from '../../tasks/problem.ts';
import type { Message, Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';

/**
 * Returns the user's question as a problem of the task, without a reference answer: the task's prompt format with `text` in place of a
 * problem's text (see Task.ask). `earlier` messages are put before the question, to continue a conversation. Throws InputError for a task
 * with environments, which a question cannot set up.
 */
export async function questionOf(task: Task, text: string, earlier: readonly Message[] = []): Promise<Problem> {
  if (task.environments?.length)
    throw new InputError(
      `Task "${task.name}" has environments, which a question cannot set up. Give a problem of the task instead.`,
    );
  const example = await givenProblem(`Training problem 0 of task "${task.name}"`, () => task.train(0, 0));
  const asked = task.ask?.(text) ?? withLast(example.messages, text);
  const messages = earlier.length > 0 ? [...earlier, asked[asked.length - 1]] : asked;
  return { ...example, id: 'question', answer: '', messages };
}

function withLast(messages: readonly Message[], content: string): Message[] {
  return [...messages.slice(0, -1), { ...messages[messages.length - 1], content }];
}

/** Returns the number of tokens of a problem's prompt under `config`. */
export function questionTokens(
  { config, task, tokenizer }: { config: TrainConfig; task: Task; tokenizer: ChatTokenizer },
  problem: Problem,
): number {
  const toolSchemasInPrompt = writesSchemas(config.rollout, tokenizer, problem);
  return encodePrompt({ tokenizer, problem, tools: partsOf(task, problem).tools, toolSchemasInPrompt }).length;
}

/** The supervised warm start of any task: a tokenizer trained on its text, and its demonstrations as tokens. */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { conversationTokens, type DemonstrationTokens } from './conversationTokens.ts';
import { tokenizerOf, type TokenizerFiles } from '../gsm8k/tokenizer.ts';
import { keyedRng } from '../random.ts';
import type { Message, Problem, Task } from '../task.ts';

const TOKENIZER_PROBLEMS = 1000;

/** A tokenizer over the first training problems and their right demonstrations. */
export function taskTokenizer(task: Task, vocabSize: number): TokenizerFiles {
  const rng = keyedRng('tokenizer');
  const texts = Array.from({ length: TOKENIZER_PROBLEMS }, (_, i) => {
    const problem = task.train(i, 0);
    return [...problem.messages, ...demonstrationOf(task, problem, rng, 0)].map(({ content }) => content);
  });
  const { wordShare } = task.tokenizer ?? { wordShare: 0.9 };
  return tokenizerOf(['system\n', 'user\n', 'assistant\n', ...texts.flat()], vocabSize, wordShare);
}

/** Demonstration `index` of an endless stream. Throws InputError for a task without demonstrations. */
export function exampleOf(
  task: Task,
  tokenizer: ChatTokenizer,
  seed: number,
  index: number,
  errorRate: number,
): DemonstrationTokens {
  const problem = task.train(index, seed);
  const rng = keyedRng('sft-mistakes', seed, index);
  return conversationTokens(tokenizer, problem, demonstrationOf(task, problem, rng, errorRate));
}

function demonstrationOf(task: Task, problem: Problem, rng: ReturnType<typeof keyedRng>, errorRate: number): Message[] {
  if (!task.demonstrate)
    throw new InputError(`Task "${task.name}" has no demonstrations to imitate; start GRPO from a trained checkpoint.`);
  return task.demonstrate(problem, rng, errorRate);
}

/** What the supervised warm start of any task needs: a tokenizer trained on its text, and its demonstrations as tokens. */

import { InputError } from '../model/errors.ts';
import type { ChatTokenizer } from '../model/tokenizer.ts';
import type { DemonstrationTokens } from './demonstrations.ts';
import { tokenizerOf, type TokenizerFiles } from './gsm8kTokenizer.ts';
import { keyedRng } from './random.ts';
import type { Message, Problem, Task } from './task.ts';

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

/** Exactly the token layout that the agent loop would have produced, had the model written these messages. */
export function conversationTokens(
  tokenizer: ChatTokenizer,
  problem: Problem,
  messages: readonly Message[],
): DemonstrationTokens {
  const ids: number[] = [];
  const mask: number[] = [];
  const append = (tokens: Iterable<number>, trained: 0 | 1) => {
    for (const id of tokens) {
      ids.push(id);
      mask.push(trained);
    }
  };
  for (let i = 0; i < messages.length;) {
    const end = messages.findIndex(({ role }, j) => j >= i && role === 'assistant');
    if (end > i) append(tokenizer.encodeContinuation(messages.slice(i, end)), 0);
    append([...tokenizer.encode(messages[end].content), tokenizer.eosTokenIds[0]], 1);
    i = end + 1;
  }
  return {
    promptIds: tokenizer.encodeChat(problem.messages),
    responseIds: Uint32Array.from(ids),
    mask: Uint8Array.from(mask),
  };
}

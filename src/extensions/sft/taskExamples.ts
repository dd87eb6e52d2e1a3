/** Supervised training for any task with demonstrations: trains a tokenizer on its text, and converts demonstrations to tokens. */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { conversationTokens, type DemonstrationTokens } from './conversationTokens.ts';
import { tokenizerInPieces, type TokenizerFiles } from './tokenizer.ts';
import { withObservation } from '../../tasks/environments/environment.ts';
import { keyedRng, type Rng } from '../../tasks/random.ts';
import type { Problem, Task } from '../../tasks/task.ts';

const TOKENIZER_PROBLEMS = 1000;

/** Milliseconds after which a long loop yields to the event loop, so that a page stays responsive. */
const BUSY_MS = 10;

/** Trains a tokenizer on the first training problems and on their demonstrations without mistakes. */
export async function taskTokenizer(task: Task, vocabSize: number): Promise<TokenizerFiles> {
  const rng = keyedRng('tokenizer');
  const texts: string[][] = [];
  let since = performance.now();
  for (let i = 0; i < TOKENIZER_PROBLEMS; i++) {
    const { prompt, messages } = await demonstrationOf(task, await task.train(i, 0), rng, 0);
    texts.push([...prompt, ...messages].map(({ content }) => content));
    if (performance.now() - since < BUSY_MS) continue;
    await new Promise((resolve) => setTimeout(resolve));
    since = performance.now();
  }
  const { wordShare } = task.tokenizer ?? { wordShare: 0.9 };
  return tokenizerInPieces(['system\n', 'user\n', 'assistant\n', ...texts.flat()], vocabSize, wordShare);
}

/** Returns demonstration number `index` as tokens. Throws InputError if the task has no demonstrations. */
export async function exampleOf(
  task: Task,
  tokenizer: ChatTokenizer,
  seed: number,
  index: number,
  errorRate: number,
): Promise<DemonstrationTokens> {
  const problem = await task.train(index, seed);
  const rng = keyedRng('sft-mistakes', seed, index);
  const { prompt, messages } = await demonstrationOf(task, problem, rng, errorRate);
  return conversationTokens(tokenizer, { messages: prompt }, messages);
}

async function demonstrationOf(task: Task, problem: Problem, rng: Rng, errorRate: number) {
  if (!task.demonstrate)
    throw new InputError(`Task "${task.name}" has no demonstrations to imitate. Start GRPO from a trained checkpoint.`);
  const messages = await task.demonstrate(problem, rng, errorRate);
  if (messages[0]?.role !== 'user') return { prompt: problem.messages, messages };
  return { prompt: withObservation(problem.messages, messages[0].content), messages: messages.slice(1) };
}

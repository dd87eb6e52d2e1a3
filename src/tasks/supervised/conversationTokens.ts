/** A finished conversation as the tokens that supervised training imitates. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import type { Message, Problem } from '../task.ts';

/** [P] prompt ids, [A] ids after it, [A] mask: 1 = written by the assistant, 0 = tool output. */
export interface DemonstrationTokens {
  promptIds: Uint32Array;
  responseIds: Uint32Array;
  mask: Uint8Array;
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

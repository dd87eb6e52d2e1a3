/** Converts a finished conversation to tokens for supervised training, with a mask of the tokens to imitate. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { InputError } from '../../errors.ts';
import type { Message, Problem } from '../../tasks/task.ts';

/** [P] ids of the prompt, [A] ids after the prompt, [A] mask: 1 = written by the assistant, 0 = tool output. */
export interface DemonstrationTokens {
  promptIds: Uint32Array;
  responseIds: Uint32Array;
  mask: Uint8Array;
}

/** Returns the tokens that the agent loop would have produced if the model had written these messages. */
export function conversationTokens(
  tokenizer: ChatTokenizer,
  problem: Pick<Problem, 'messages'>,
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
    append([...tokenizer.encode(messages[end].content, { isStart: false }), tokenizer.eosTokenIds[0]], 1);
    i = end + 1;
  }
  return {
    promptIds: tokenizer.encodeChat(problem.messages),
    responseIds: Uint32Array.from(ids),
    mask: Uint8Array.from(mask),
  };
}

/**
 * Converts a conversation to an example for `trainSupervised`. The prompt is everything before the first assistant message. After the
 * prompt, the texts and end tokens of the assistant are imitated (mask 1), other messages are not. The ids equal those of a rollout with
 * the same messages. Throws InputError without a prompt or an assistant message, or if the last message is not the assistant's.
 */
export function sftExample(tokenizer: ChatTokenizer, messages: readonly Message[]): DemonstrationTokens {
  const first = messages.findIndex(({ role }) => role === 'assistant');
  if (first < 1 || messages[messages.length - 1].role !== 'assistant') {
    const roles = messages.map(({ role }) => role).join(', ') || 'none';
    throw new InputError(
      `An example needs a prompt, then turns of which the last is the assistant's. The roles of these messages are: ${roles}.`,
    );
  }
  return conversationTokens(tokenizer, { messages: messages.slice(0, first) }, messages.slice(first));
}

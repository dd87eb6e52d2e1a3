/**
 * One sequence of tokens of a trajectory: a prompt, replies that the model drew, and what was said between them. A request
 * that continues from it adds tokens at its end; nothing that is in it is encoded again.
 */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { calledTurn } from '../../rollout/agent/turnText.ts';
import { TokenLog } from '../../rollout/tokenLog.ts';
import type { Generation, Trajectory } from '../../rollout/types.ts';
import { type ChatMessage, isSame } from './api/messages.ts';
import type { SavedSequence } from './saved.ts';

/** A reply as it was given, and where it ends. */
export interface Reply {
  /** Number of the reply among those of its episode, in the order of the answers; missing in older checkpoints. */
  call?: number;
  /** Messages up to it, and with it. */
  messages: number;
  /** Tokens after the prompt, with those of the reply. */
  tokens: number;
  /** What the template made of the messages before it, with the header of the reply. */
  rendered: string;
  /** The reply's text without its calls, as the template has to write it again. */
  content: string;
  calls: { id: string; name: string }[];
  /** It ended without an end token, which is still to be written. */
  isOpen: boolean;
  /** The stop token that it ended with. */
  endToken?: number | undefined;
  stopReason: Generation['stopReason'];
}

/** What writes messages between two replies. */
interface TurnTemplate {
  tokenizer: ChatTokenizer;
  /** The control token after a turn's calls, where the format has one. */
  stopToken: string | undefined;
}

export class Sequence extends TokenLog {
  readonly promptIds: Uint32Array;
  /** Key of the tools that its replies can call. */
  readonly toolsKey: string;
  readonly messages: ChatMessage[] = [];
  readonly replies: Reply[] = [];
  /** Part of the random key. No two sequences of a trajectory have the same. */
  number = 0;
  /** A call is in flight, which its next tokens belong to. */
  isBusy = false;
  /** Replies that were drawn in another sequence. */
  #shared = 0;

  private constructor(promptIds: Uint32Array, after: ArrayLike<number>, toolsKey: string) {
    super();
    this.promptIds = promptIds;
    this.toolsKey = toolsKey;
    this.push({ responseIds: after });
  }

  /** Starts with a conversation's tokens; those beyond `maxPromptLength` are context in the response. */
  static start(ids: Uint32Array, maxPromptLength: number, toolsKey: string): Sequence {
    return new Sequence(ids.slice(0, maxPromptLength), ids.subarray(maxPromptLength), toolsKey);
  }

  /** Restores what `save` returned. */
  static restore({ promptIds, toolsKey, drawn, ...saved }: SavedSequence & { number: number }): Sequence {
    const sequence = new Sequence(promptIds, [], toolsKey);
    sequence.number = saved.number;
    sequence.messages.push(...saved.messages);
    sequence.replies.push(...saved.replies);
    sequence.#shared = saved.shared;
    sequence.push({ ...drawn, responseIds: drawn.tokenIds, mask: Array.from(drawn.mask, Number) });
    return sequence;
  }

  /** All up to the last reply: a call in flight is left out. Undefined if no reply is its own. */
  save(): SavedSequence | undefined {
    const { number, toolsKey, messages, replies } = this;
    const promptIds = Uint32Array.from(this.promptIds);
    if (replies.length === this.#shared) return undefined;
    const { responseIds: tokenIds, mask, ...values } = this.slice(replies.at(-1)!.tokens);
    const drawn = { tokenIds, mask: mask.join(''), ...values };
    const said = { messages: [...messages], replies: [...replies] };
    return { number, promptIds, toolsKey, ...said, shared: this.#shared, drawn };
  }

  /** Shares the tokens up to the end of reply `index`, all of them as context: they are trained where they were drawn. */
  branch(index: number): Sequence {
    const reply = this.replies[index];
    const branch = new Sequence(this.promptIds, this.slice(reply.tokens).responseIds, this.toolsKey);
    branch.messages.push(...this.messages.slice(0, reply.messages));
    branch.replies.push(...this.replies.slice(0, index + 1));
    branch.#shared = index + 1;
    return branch;
  }

  /** Number of the last reply up to which `messages` say the same and continue; -1 where there is none. */
  matches(messages: readonly ChatMessage[], toolsKey: string): number {
    if (toolsKey !== this.toolsKey) return -1;
    let same = 0;
    while (same < Math.min(messages.length, this.messages.length) && isSame(messages[same], this.messages[same]))
      same++;
    return this.replies.findLastIndex((reply) => reply.messages <= same && reply.messages < messages.length);
  }

  /** Replies that were drawn in this sequence. */
  get ownReplies(): Reply[] {
    return this.replies.slice(this.#shared);
  }

  get contextIds(): Uint32Array {
    return this.contextAfter(this.promptIds);
  }

  /** Tokens that say `messages` after the last reply, and open the next; undefined if the template cannot. */
  continuation(messages: readonly ChatMessage[], template: TurnTemplate): Uint32Array | undefined {
    try {
      return this.#continuation(messages, template);
    } catch (error) {
      if (error instanceof InputError) return undefined;
      throw error;
    }
  }

  #continuation(messages: readonly ChatMessage[], { tokenizer, stopToken }: TurnTemplate): Uint32Array {
    const { calls, endToken, isOpen } = this.replies.at(-1)!;
    const plain = messages.map(({ role, content, name }) => ({ role, content, ...(name !== undefined && { name }) }));
    if (stopToken !== undefined && calls.length > 0) {
      const answered = messages.map(({ toolCallId }) => calls.find(({ id }) => id === toolCallId)!);
      const called = answered.map(({ id, name }) => ({ id, name, args: {} }));
      return tokenizer.encodeContinuation(plain, calledTurn(called, { stopToken, endToken, before: 0 }));
    }
    const rest = tokenizer.encodeContinuation(plain);
    // The template continues after an end token. One that the model did not draw stays out of the loss, as all of this.
    return isOpen ? Uint32Array.of(tokenizer.eosTokenIds[0], ...rest) : rest;
  }

  trajectory(): Trajectory {
    const own = this.replies.slice(this.#shared);
    return {
      promptIds: this.promptIds,
      ...this.slice(this.drawnLength),
      stopReason: own.at(-1)?.stopReason === 'length' ? 'max_tokens' : 'completed',
      numTurns: own.length,
      numToolCalls: own.reduce((count, { calls }) => count + calls.length, 0),
      numToolErrors: 0,
    };
  }
}

/** Returns the least number that no sequence has. After a call failed, that is the number of its sequence: the call can be made again. */
export function freeNumber(sequences: readonly Sequence[]): number {
  const taken = sequences.map(({ number }) => number);
  let number = 0;
  while (taken.includes(number)) number++;
  return number;
}

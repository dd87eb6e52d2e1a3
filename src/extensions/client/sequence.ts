/**
 * One token sequence of a trajectory: a prompt, the replies sampled after it, and the messages between them. A request whose messages
 * extend the sequence appends tokens; tokens already in the sequence are never re-encoded.
 */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { calledTurn } from '../../rollout/agent/turnText.ts';
import { TokenLog } from '../../rollout/tokenLog.ts';
import type { Generation, Trajectory } from '../../rollout/types.ts';
import { type ChatMessage, isSame } from './api/messages.ts';
import type { SavedSequence } from './saved.ts';

/** A reply, and where it ends in the sequence. */
export interface Reply {
  /** Index of the reply among all replies of the episode, in the order in which they ended. Missing in older checkpoints. */
  call?: number;
  /** Number of messages up to and including the reply. */
  messages: number;
  /** Number of tokens after the prompt, up to and including the reply. */
  tokens: number;
  /** Text that the chat template rendered for everything before the reply, including the header of the reply's turn. */
  rendered: string;
  /** Text of the reply without its tool calls. A later rendering of the conversation must contain the same text. */
  content: string;
  calls: { id: string; name: string }[];
  /**
   * True if the reply has no end token, for example because it reached the token limit. The next turn then starts with an added end token.
   */
  isOpen: boolean;
  /** The end token with which the reply ended; undefined if it has none. */
  endToken?: number | undefined;
  stopReason: Generation['stopReason'];
}

/** Data needed to encode the messages between two replies. */
interface TurnTemplate {
  tokenizer: ChatTokenizer;
  /** Control token that ends a turn with tool calls; undefined if the call format has none. */
  stopToken: string | undefined;
}

/** A token sequence with the replies that were sampled in it. */
export class Sequence extends TokenLog {
  readonly promptIds: Uint32Array;
  /** Identifies the tools that were offered with the sequence's requests: equal for equal tools. */
  readonly toolsKey: string;
  readonly messages: ChatMessage[] = [];
  readonly replies: Reply[] = [];
  /** Part of the random key; unique among the sequences of a trajectory. */
  number = 0;
  /** True while a call in flight extends this sequence. */
  isBusy = false;
  /** Number of leading replies that were sampled in the sequence from which this one was forked. */
  #shared = 0;

  private constructor(promptIds: Uint32Array, after: ArrayLike<number>, toolsKey: string) {
    super();
    this.promptIds = promptIds;
    this.toolsKey = toolsKey;
    this.push({ responseIds: after });
  }

  /**
   * Creates a sequence from the tokens of a conversation. Tokens beyond `maxPromptLength` are put into the response, excluded from the
   * loss.
   */
  static start(ids: Uint32Array, maxPromptLength: number, toolsKey: string): Sequence {
    return new Sequence(ids.slice(0, maxPromptLength), ids.subarray(maxPromptLength), toolsKey);
  }

  /** Creates a sequence from the result of `save`. */
  static restore({ promptIds, toolsKey, drawn, ...saved }: SavedSequence & { number: number }): Sequence {
    const sequence = new Sequence(promptIds, [], toolsKey);
    sequence.number = saved.number;
    sequence.messages.push(...saved.messages);
    sequence.replies.push(...saved.replies);
    sequence.#shared = saved.shared;
    sequence.push({ ...drawn, responseIds: drawn.tokenIds, mask: Array.from(drawn.mask, Number) });
    return sequence;
  }

  /** Returns the state up to the last reply, without the tokens of a call in flight. Undefined if no reply was sampled in this sequence. */
  save(): SavedSequence | undefined {
    const { number, toolsKey, messages, replies } = this;
    const promptIds = Uint32Array.from(this.promptIds);
    if (replies.length === this.#shared) return undefined;
    const { responseIds: tokenIds, mask, ...values } = this.slice(replies.at(-1)!.tokens);
    const drawn = { tokenIds, mask: mask.join(''), ...values };
    const said = { messages: [...messages], replies: [...replies] };
    return { number, promptIds, toolsKey, ...said, shared: this.#shared, drawn };
  }

  /**
   * Returns a new sequence (a fork) with the tokens up to the end of reply `index`. These are excluded from the fork's loss, because the
   * original sequence already trains on them.
   */
  branch(index: number): Sequence {
    const reply = this.replies[index];
    const branch = new Sequence(this.promptIds, this.slice(reply.tokens).responseIds, this.toolsKey);
    branch.messages.push(...this.messages.slice(0, reply.messages));
    branch.replies.push(...this.replies.slice(0, index + 1));
    branch.#shared = index + 1;
    return branch;
  }

  /** Returns the index of the last reply up to which all messages equal the beginning of `messages`; -1 without such a reply. */
  matches(messages: readonly ChatMessage[], toolsKey: string): number {
    if (toolsKey !== this.toolsKey) return -1;
    let same = 0;
    while (same < Math.min(messages.length, this.messages.length) && isSame(messages[same], this.messages[same]))
      same++;
    return this.replies.findLastIndex((reply) => reply.messages <= same && reply.messages < messages.length);
  }

  /** Replies that were sampled in this sequence. */
  get ownReplies(): Reply[] {
    return this.replies.slice(this.#shared);
  }

  get contextIds(): Uint32Array {
    return this.contextAfter(this.promptIds);
  }

  /**
   * Returns the tokens that append `messages` after the last reply, including the header of the next reply. Undefined if the chat template
   * cannot append these messages.
   */
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
    // The template's text continues after an end token. If the model has sampled none, one is added here; like all tokens of this function
    // it is excluded from the loss.
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

/**
 * Returns the lowest number that no sequence has. A failed call removes its sequence, so a retry gets the same number and samples the same
 * tokens.
 */
export function freeNumber(sequences: readonly Sequence[]): number {
  const taken = sequences.map(({ number }) => number);
  let number = 0;
  while (taken.includes(number)) number++;
  return number;
}

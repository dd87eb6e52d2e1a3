/** A chat with a model, printed token by token. Each turn reuses the KV cache of the earlier turns. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { cutAtStop, heldBack } from '../../rollout/decode/stopStrings.ts';
import type { Generation, TurnEngine, SamplingParams, StopReason } from '../../rollout/types.ts';

export interface Answer {
  text: string;
  tokenIds: number[];
  stopReason: Generation['stopReason'] | StopReason;
  /** Seconds from the question to the last token, including prefill of the question. */
  seconds: number;
  tokensPerSecond: number;
}

interface ConversationOptions {
  engine: TurnEngine;
  tokenizer: ChatTokenizer;
  promptIds: Uint32Array;
  /** Maximum number of tokens of the whole conversation, prompt included: the length of the engine's KV cache slot. */
  contextLength: number;
  key: readonly [number, number];
  sampling: SamplingParams;
  /** Called with each new piece of the answer's text. */
  onText: (text: string) => void;
}

const ID = 'conversation';

/** A conversation that keeps one KV cache slot of an engine. */
export class Conversation {
  readonly #options: ConversationOptions;
  #ids: number[];
  /** True if the last answer has no end token, for example because it reached the limit of tokens. */
  #open = false;

  constructor(options: ConversationOptions) {
    this.#options = options;
    this.#ids = [...options.promptIds];
  }

  /** Number of tokens that still fit into the context. */
  get room(): number {
    return this.#options.contextLength - this.#ids.length;
  }

  /** Appends the user's next message. Returns false and changes nothing if the message does not fit into the context. */
  say(content: string): boolean {
    const { tokenizer } = this.#options;
    const end = this.#open ? [tokenizer.eosTokenIds[0]] : [];
    const next = [...end, ...tokenizer.encodeContinuation([{ role: 'user', content }])];
    if (next.length >= this.room) return false;
    this.#ids.push(...next);
    return true;
  }

  async answer(): Promise<Answer> {
    const { engine, tokenizer, promptIds, key, sampling } = this.#options;
    const screen = new Screen(tokenizer, sampling, this.#options.onText);
    const started = performance.now();
    const generation = await engine.generate({
      requestId: ID,
      contextIds: Uint32Array.from(this.#ids),
      promptLength: promptIds.length,
      key,
      sampling: { ...sampling, maxNewTokens: Math.min(sampling.maxNewTokens, this.room) },
      onTokens: (ids) => screen.push(ids),
    });
    const seconds = (performance.now() - started) / 1000;
    const { stopReason, stopString } = generation;
    const tokenIds = [...generation.tokenIds];
    this.#ids.push(...tokenIds);
    this.#open = stopReason !== 'stop';
    const text = screen.end(tokenIds, stopString);
    return { text, tokenIds, stopReason, seconds, tokensPerSecond: tokenIds.length / seconds };
  }

  close(): void {
    this.#options.engine.release(ID);
  }
}

type Stops = Pick<SamplingParams, 'stop' | 'includeStopStrInOutput'>;

/** Prints an answer token by token. Holds back the end of the text while it can still become part of a character or of a stop string. */
export class Screen {
  readonly #tokenizer: ChatTokenizer;
  readonly #sampling: Stops;
  readonly #onText: (text: string) => void;
  readonly #ids: number[] = [];
  #shown = '';

  constructor(tokenizer: ChatTokenizer, sampling: Stops, onText: (text: string) => void) {
    this.#tokenizer = tokenizer;
    this.#sampling = sampling;
    this.#onText = onText;
  }

  push(ids: readonly number[]): void {
    this.#ids.push(...ids);
    const text = this.#decode(this.#ids).replace(/\uFFFD+$/, '');
    this.show(text.slice(0, text.length - heldBack(text, this.#sampling.stop ?? [])));
  }

  /** Prints the text that was held back, except for a stop string. Returns the complete text. */
  end(ids: number[], stopString: string | undefined): string {
    const include = this.#sampling.includeStopStrInOutput ?? false;
    const whole = this.#decode(ids);
    const text =
      stopString === undefined ? whole : cutAtStop(whole, this.#decode(ids.slice(0, -1)), stopString, include);
    this.show(text);
    return text;
  }

  /** Prints the part of `text` that was not printed before. */
  show(text: string): void {
    if (!text.startsWith(this.#shown)) return; // the rest is held back until a later token
    this.#onText(text.slice(this.#shown.length));
    this.#shown = text;
  }

  #decode(ids: readonly number[]): string {
    return this.#tokenizer.decode(ids, { skipSpecialTokens: true });
  }
}

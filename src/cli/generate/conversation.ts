/** A conversation with a model, streamed: every turn continues from what the engine has in its cache. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { cutAtStop, heldBack } from '../../rollout/decode/stopStrings.ts';
import type { Generation, TurnEngine, SamplingParams } from '../../rollout/types.ts';

export interface Answer {
  text: string;
  tokenIds: number[];
  stopReason: Generation['stopReason'];
  /** From the question to the last token, the question's own tokens computed in it. */
  seconds: number;
  tokensPerSecond: number;
}

interface ConversationOptions {
  engine: TurnEngine;
  tokenizer: ChatTokenizer;
  promptIds: Uint32Array;
  /** Length of the engine's slot in tokens: prompt and all turns. */
  contextLength: number;
  key: [number, number];
  sampling: SamplingParams;
  /** Told the text as it comes. */
  onText: (text: string) => void;
}

const ID = 'conversation';

export class Conversation {
  readonly #options: ConversationOptions;
  #ids: number[];
  /** The last answer lacks its end token. */
  #open = false;

  constructor(options: ConversationOptions) {
    this.#options = options;
    this.#ids = [...options.promptIds];
  }

  /** Tokens that it may still gain. */
  get room(): number {
    return this.#options.contextLength - this.#ids.length;
  }

  /** Puts the user's next message after an answer; false, and nothing changes, where no room is left for another. */
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

/** Shows text token by token, without what may turn out to be part of a character or of a stop string. */
class Screen {
  readonly #tokenizer: ChatTokenizer;
  readonly #sampling: SamplingParams;
  readonly #onText: (text: string) => void;
  readonly #ids: number[] = [];
  #shown = '';

  constructor(tokenizer: ChatTokenizer, sampling: SamplingParams, onText: (text: string) => void) {
    this.#tokenizer = tokenizer;
    this.#sampling = sampling;
    this.#onText = onText;
  }

  push(ids: readonly number[]): void {
    this.#ids.push(...ids);
    const text = this.#decode(this.#ids).replace(/\uFFFD+$/, '');
    this.#show(text.slice(0, text.length - heldBack(text, this.#sampling.stop ?? [])));
  }

  /** Shows the rest; returns the whole text. */
  end(ids: number[], stopString: string | undefined): string {
    const include = this.#sampling.includeStopStrInOutput ?? false;
    const whole = this.#decode(ids);
    const text =
      stopString === undefined ? whole : cutAtStop(whole, this.#decode(ids.slice(0, -1)), stopString, include);
    this.#show(text);
    return text;
  }

  #show(text: string): void {
    if (!text.startsWith(this.#shown)) return; // held back: the rest comes with a later token
    this.#onText(text.slice(this.#shown.length));
    this.#shown = text;
  }

  #decode(ids: readonly number[]): string {
    return this.#tokenizer.decode(ids, { skipSpecialTokens: true });
  }
}

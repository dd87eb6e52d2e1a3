/**
 * Constrained decoding: a CallGuide masks the tokens that would make a tool call invalid. Text around calls is free.
 *
 * States are those of callLanguage.ts. The tokens that a state allows, and the fewest tokens from each to the end of the
 * call, are found once and kept.
 */

import { tokenBytes, type Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { DEAD } from './byteAutomaton.ts';
import { type CallLanguage, callLanguage } from './callLanguage.ts';
import { TokenTrie } from './trie.ts';
import type { CallableTool, CallFormat } from './toolGrammar.ts';

interface Allowed {
  /** Tokens that may come next, */
  ids: Uint32Array;
  /** and after each the fewest tokens from there to the end of the call; 0 outside of one. */
  tokensLeft: Uint16Array;
  most: number;
  /** Bit mask; undefined if every token is allowed. */
  mask: Uint32Array | undefined;
}

/** Stands for "no way in tokens is known". */
const FAR = 0xffff;

/** One turn under a guide, from token to token. */
export class GuidedTurn {
  readonly #guide: CallGuide;
  #state: number;

  constructor(guide: CallGuide) {
    this.#guide = guide;
    this.#state = guide.start;
  }

  /** Takes the next token; throws where the mask forbids it. */
  advance(token: number): void {
    this.#state = this.#guide.after(this.#state, token);
  }

  /** Same as CallGuide.mask. */
  mask(tokensLeft: number): Uint32Array | undefined {
    return this.#guide.mask(this.#state, tokensLeft);
  }

  /** Same as CallGuide.masks. */
  masks(guesses: readonly number[], tokensLeft: number): (Uint32Array | undefined)[] {
    return this.#guide.masks(this.#state, guesses, tokensLeft);
  }
}

export class CallGuide {
  /** The state in which every turn starts. */
  readonly start = 0;
  readonly #vocabulary: Vocabulary;
  readonly #vocabSize: number;
  readonly #language: CallLanguage;
  readonly #trie: TokenTrie;
  readonly #allowed = new Map<number, Allowed>();
  readonly #tokensLeft = new Map<number, number>();

  /** @param vocabSize tokens that the model can draw; those that the tokenizer lacks have no bytes */
  constructor(
    tools: readonly CallableTool[],
    vocabulary: Vocabulary,
    vocabSize: number,
    format: CallFormat = 'hermes',
  ) {
    this.#vocabulary = vocabulary;
    this.#vocabSize = vocabSize;
    this.#language = callLanguage(tools, format);
    this.#trie = new TokenTrie(vocabulary, vocabSize);
  }

  /** The state after a token; throws where the mask forbids it. */
  after(state: number, token: number): number {
    let at = state;
    for (const byte of tokenBytes(this.#vocabulary, token)) at = this.#step(at, byte);
    if (at === DEAD) throw new Error(`Token ${token} was sampled, which no valid tool call has at this position.`);
    return at;
  }

  /**
   * Bits of the tokens that may come next, [ceil(V / 32)]; undefined = all. A call is begun only if it can be ended within
   * `left` tokens, and ended in time.
   */
  mask(state: number, left: number): Uint32Array | undefined {
    const allowed = this.#allowedAt(state);
    if (allowed.most < left) return allowed.mask;
    const inTime = allowed.ids.filter((_, i) => allowed.tokensLeft[i] < left);
    return inTime.length > 0 ? this.#bits(inTime) : allowed.mask; // too late: the turn is cut whatever comes
  }

  /** Masks of the guessed tokens, up to the first one not allowed, and of the token after them; `left` tokens may come. */
  masks(state: number, guesses: readonly number[], left: number): (Uint32Array | undefined)[] {
    const masks = [this.mask(state, left)];
    for (const [i, token] of guesses.entries()) {
      const mask = masks[i];
      if (mask && !((mask[token >>> 5] >>> (token & 31)) & 1)) break;
      state = this.after(state, token);
      masks.push(this.mask(state, left - i - 1));
    }
    return masks;
  }

  #step(state: number, byte: number): number {
    return state === DEAD ? DEAD : this.#language.step(state, byte);
  }

  #allowedAt(state: number): Allowed {
    let allowed = this.#allowed.get(state);
    if (!allowed) this.#allowed.set(state, (allowed = this.#findAllowed(state)));
    return allowed;
  }

  #findAllowed(state: number): Allowed {
    const { ids, next } = this.#reach(state);
    if (ids.length === 0)
      throw new Error('The tokenizer has no token that could continue a valid tool call. Is it byte-level?');
    const tokensLeft = Uint16Array.from(next, (to) => this.#tokensTo(to));
    const most = tokensLeft.reduce((a, b) => Math.max(a, b), 0);
    const mask = ids.length === this.#vocabSize ? undefined : this.#bits(ids);
    return { ids, tokensLeft, most, mask };
  }

  /** Tokens all of whose bytes are allowed, and the states after them. Tokens without bytes are for free text. */
  #reach(state: number): { ids: Uint32Array; next: Int32Array } {
    const ids = this.#language.isCall(state) ? [] : [...this.#trie.empty];
    const next = ids.map(() => state);
    const visit = (token: number, to: number) => {
      ids.push(token);
      next.push(to);
    };
    this.#trie.walk(state, (at, byte) => this.#step(at, byte), visit);
    return { ids: Uint32Array.from(ids), next: Int32Array.from(next) };
  }

  /**
   * Tokens from a state to the end of its call, by the fewest along a shortest way in bytes: every byte takes one off what is
   * left, so this ends although calls may be of any length.
   */
  #tokensTo(state: number): number {
    if (!this.#language.isCall(state)) return 0;
    const known = this.#tokensLeft.get(state);
    if (known !== undefined) return known;
    const nearer = (at: number, byte: number) => {
      const to = this.#step(at, byte);
      return to !== DEAD && this.#language.bytesLeft(to) === this.#language.bytesLeft(at) - 1 ? to : DEAD;
    };
    let fewest = FAR;
    this.#trie.walk(state, nearer, (_, to) => (fewest = Math.min(fewest, 1 + this.#tokensTo(to))));
    this.#tokensLeft.set(state, fewest);
    return fewest;
  }

  #bits(ids: Uint32Array): Uint32Array {
    const words = new Uint32Array(Math.ceil(this.#vocabSize / 32));
    for (const id of ids) words[id >>> 5] |= 1 << (id & 31);
    return words;
  }
}

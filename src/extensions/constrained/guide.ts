/**
 * Constrained decoding. A CallGuide masks the tokens that would make a tool call invalid. Text around calls is not constrained, unless the
 * turn must consist of calls or JSON.
 *
 * States are those of callLanguage.ts. For each state, the allowed tokens and the minimum number of tokens to the end of the call are
 * computed once and cached. States that allow the same tokens, such as most positions in a long text, share one cached set.
 */

import { InputError } from '../../errors.ts';
import { tokenBytes, type Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { DEAD } from './byteAutomaton.ts';
import type { TurnGuide } from '../../rollout/server/job.ts';
import type { TurnConstraint } from '../../rollout/types.ts';
import { type CallLanguage, turnLanguage } from './callLanguage.ts';
import { TokenTrie } from './trie.ts';

interface Allowed {
  /** Ids of the tokens that can come next. */
  ids: Uint32Array;
  /** For each token of `ids`, the minimum number of tokens from there to the end of the call; 0 outside a call. */
  tokensLeft: Uint16Array;
  most: number;
  /** Bit mask of the tokens that can come next; undefined if every token is allowed. */
  mask: Uint32Array | undefined;
}

/** State after the end token of a turn that must end there. */
const ENDED = -2;

/** Number of tokens to the end of a call from a state if no path of tokens to the end was found. */
const FAR = 0xffff;

/** One turn that a guide constrains, token by token. */
export class GuidedTurn implements TurnGuide {
  readonly #guide: CallGuide;
  #state: number;

  constructor(guide: CallGuide) {
    this.#guide = guide;
    this.#state = guide.start;
  }

  /** Advances by a token. Throws if the mask forbids it. */
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

/** Computes the token masks that keep tool calls valid, and caches them by state. */
export class CallGuide {
  /** State in which every turn starts. */
  readonly start = 0;
  readonly #vocabulary: Vocabulary;
  readonly #vocabSize: number;
  readonly #language: CallLanguage;
  readonly #trie: TokenTrie;
  /** Tokens without bytes that can follow a complete turn, such as the end token. */
  readonly #ends: readonly number[];
  /** Allowed tokens by state. */
  readonly #allowed = new Map<number, Allowed>();
  /** The distinct sets in `#allowed`, by a hash of their content. */
  readonly #sets = new Map<number, Allowed[]>();
  #cachedBytes = 0;
  readonly #tokensLeft = new Map<number, number>();

  /**
   * @param vocabSize number of tokens that the model can sample; those that the tokenizer lacks have no bytes
   * @param stopTokenIds tokens that end the turn
   */
  constructor(
    constraint: TurnConstraint & { stopTokenIds?: readonly number[] },
    vocabulary: Vocabulary,
    vocabSize: number,
    trie = new TokenTrie(vocabulary, vocabSize),
  ) {
    this.#vocabulary = vocabulary;
    this.#vocabSize = vocabSize;
    this.#language = turnLanguage(constraint);
    this.#trie = trie;
    this.#ends = trie.empty.filter((token) => constraint.stopTokenIds?.includes(token));
    if (this.#language.isWhole && this.#ends.length === 0)
      throw new InputError(
        'A forced call or JSON needs an end token without text, but the model has none. Leave out the forced call or the JSON schema.',
      );
  }

  /** Bytes of the cached sets of allowed tokens. */
  get cachedBytes(): number {
    return this.#cachedBytes;
  }

  /** Returns the state after a token. Throws if the mask forbids it. */
  after(state: number, token: number): number {
    let at = state;
    for (const byte of tokenBytes(this.#vocabulary, token)) at = this.#step(at, byte);
    if (at === DEAD) throw new Error(`Token ${token} was sampled, which no valid tool call has at this position.`);
    return at;
  }

  /**
   * Returns the tokens that can come next as bits, [ceil(V / 32)]; undefined = all. A call can start only if it fits into `left` tokens,
   * and an open call is forced to end within them.
   */
  mask(state: number, left: number): Uint32Array | undefined {
    const allowed = this.#allowedAt(state);
    if (allowed.most < left) return allowed.mask;
    const inTime = allowed.ids.filter((_, i) => allowed.tokensLeft[i] < left);
    return inTime.length > 0 ? this.#bits(inTime) : allowed.mask; // too late: the turn is truncated whatever follows
  }

  /** Returns one mask per guessed token, up to the first forbidden guess, and one for the token after the guesses. `left` tokens remain. */
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
    if (!allowed) this.#allowed.set(state, (allowed = this.#shared(this.#findAllowed(state))));
    return allowed;
  }

  /** Returns the cached set with the same content, or caches the given one. */
  #shared(found: Allowed): Allowed {
    let hash = 0;
    found.ids.forEach((id, i) => (hash = Math.imul(hash ^ id, 0x01000193) + found.tokensLeft[i]));
    const known = this.#sets.get(hash) ?? [];
    const same = known.find(
      ({ ids, tokensLeft }) =>
        ids.length === found.ids.length &&
        ids.every((id, i) => id === found.ids[i] && tokensLeft[i] === found.tokensLeft[i]),
    );
    if (same) return same;
    this.#sets.set(hash, [...known, found]);
    const { ids, tokensLeft, mask } = found;
    this.#cachedBytes += ids.byteLength + tokensLeft.byteLength + (mask?.byteLength ?? 0);
    return found;
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

  /**
   * Returns the tokens whose bytes are all allowed, and the state after each. Tokens without bytes, such as control tokens, are allowed
   * only in free text. If the turn must end, only the tokens that end it are allowed.
   */
  #reach(state: number): { ids: Uint32Array; next: Int32Array } {
    const isWhole = this.#language.isWhole === true;
    const ids = this.#language.isCall(state) ? [] : isWhole ? [...this.#ends] : [...this.#trie.empty];
    const next = ids.map(() => (isWhole ? ENDED : state));
    const visit = (token: number, to: number) => {
      ids.push(token);
      next.push(to);
    };
    this.#trie.walk(state, (at, byte) => this.#step(at, byte), visit);
    return { ids: Uint32Array.from(ids), next: Int32Array.from(next) };
  }

  /**
   * Minimum number of tokens from a state to the end of its call, among those paths that are shortest in bytes. Every byte of such a path
   * reduces the distance, so the search ends although calls can have any length.
   */
  #tokensTo(state: number): number {
    if (state === ENDED) return 0;
    if (!this.#language.isCall(state)) return this.#language.isWhole ? 1 : 0;
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

/** Stores the tokens of a vocabulary by their bytes. If an automaton refuses a prefix, one test excludes all tokens with that prefix. */

import { tokenBytes, type Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { DEAD } from './byteAutomaton.ts';

const NONE = -1;

/** The tokens of a vocabulary as a trie over their bytes. */
export class TokenTrie {
  /** Tokens without bytes. */
  readonly empty: number[] = [];
  /** Per node: its byte, first child, next sibling and first token. Node 0 is the root. */
  readonly #byte: Uint8Array;
  readonly #child: Int32Array;
  readonly #sibling: Int32Array;
  readonly #token: Int32Array;
  /** For each token, another token with the same bytes (a linked list). */
  readonly #same: Int32Array;
  #nodes = 1;

  constructor(vocabulary: Vocabulary, vocabSize: number) {
    const most = vocabulary.bytes.length + 1;
    this.#byte = new Uint8Array(most);
    [this.#child, this.#sibling, this.#token] = [0, 1, 2].map(() => new Int32Array(most).fill(NONE));
    this.#same = new Int32Array(vocabSize).fill(NONE);
    for (let token = 0; token < vocabSize; token++) {
      const bytes = tokenBytes(vocabulary, token);
      if (bytes.length === 0) this.empty.push(token);
      else this.#insert(token, bytes);
    }
  }

  /** Calls `visit` with every token whose bytes `step` accepts from the state `start`, and with the state after the token. */
  walk(
    start: number,
    step: (state: number, byte: number) => number,
    visit: (token: number, state: number) => void,
  ): void {
    const stack = [[0, start]];
    for (let top = stack.pop(); top; top = stack.pop()) {
      const [node, state] = top;
      for (let child = this.#child[node]; child !== NONE; child = this.#sibling[child]) {
        const next = step(state, this.#byte[child]);
        if (next === DEAD) continue;
        for (let token = this.#token[child]; token !== NONE; token = this.#same[token]) visit(token, next);
        if (this.#child[child] !== NONE) stack.push([child, next]);
      }
    }
  }

  #insert(token: number, bytes: Uint8Array): void {
    let node = 0;
    for (const byte of bytes) node = this.#childOf(node, byte);
    this.#same[token] = this.#token[node];
    this.#token[node] = token;
  }

  #childOf(node: number, byte: number): number {
    let child = this.#child[node];
    while (child !== NONE && this.#byte[child] !== byte) child = this.#sibling[child];
    if (child !== NONE) return child;
    const made = this.#nodes++;
    this.#byte[made] = byte;
    this.#sibling[made] = this.#child[node];
    this.#child[node] = made;
    return made;
  }
}

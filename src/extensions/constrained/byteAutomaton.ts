/**
 * Regular languages over bytes, for constrained decoding. Patterns add nodes to a nondeterministic automaton. The
 * automaton is made deterministic lazily, as states are reached.
 */

import { InputError } from '../../errors.ts';

/**
 * Adds the nodes of a pattern to an automaton, starting at node `from`. No edge of the pattern leads back to `from`. Returns the pattern's
 * last node.
 */
export type Pattern = (nfa: Nfa, from: number) => number;

/** Maximum number of nodes of an automaton. One that is larger takes seconds to build, during which nothing else runs. */
const MAX_NODES = 200_000;

/** A nondeterministic automaton over bytes. */
export class Nfa {
  /** Edges of each node: [first byte, last byte, next node]. */
  readonly edges: [number, number, number][][] = [];
  /** Nodes that can be reached from each node without reading a byte. */
  readonly free: number[][] = [];

  /** Adds a node. Throws InputError if the automaton becomes too large. */
  node(): number {
    if (this.edges.length === MAX_NODES)
      throw new InputError(
        `The grammar of the tools or of the JSON schema has more than ${MAX_NODES} nodes. Give fewer or smaller values of enum, maxLength and minLength.`,
      );
    this.free.push([]);
    return this.edges.push([]) - 1;
  }
}

/** Matches the UTF-8 bytes of a text. */
export const literal =
  (literal: string): Pattern =>
  (nfa, from) => {
    let at = from;
    for (const byte of new TextEncoder().encode(literal)) at = bytes([byte, byte])(nfa, at);
    return at;
  };

/** Matches one byte in the ranges. */
export const bytes =
  (...ranges: [number, number][]): Pattern =>
  (nfa, from) => {
    const to = nfa.node();
    for (const [low, high] of ranges) nfa.edges[from].push([low, high, to]);
    return to;
  };

/** Matches the patterns one after another. */
export const sequence =
  (...patterns: Pattern[]): Pattern =>
  (nfa, from) =>
    patterns.reduce((at, pattern) => pattern(nfa, at), from);

/** Matches any one of the patterns. */
export const oneOf =
  (...patterns: Pattern[]): Pattern =>
  (nfa, from) => {
    const to = nfa.node();
    for (const pattern of patterns) nfa.free[pattern(nfa, from)].push(to);
    return to;
  };

/** Matches the pattern or nothing. */
export const optional =
  (pattern: Pattern): Pattern =>
  (nfa, from) => {
    const to = nfa.node();
    nfa.free[from].push(to);
    nfa.free[pattern(nfa, from)].push(to);
    return to;
  };

/** Matches a pattern any number of times. */
export const many =
  (pattern: Pattern): Pattern =>
  (nfa, from) => {
    const loop = nfa.node();
    nfa.free[from].push(loop);
    nfa.free[pattern(nfa, loop)].push(loop);
    return loop;
  };

/** Matches the pattern from 0 to `times` times. */
export const upTo =
  (times: number, pattern: Pattern): Pattern =>
  (nfa, from) => {
    const to = nfa.node();
    let at = from;
    for (let left = times; left > 0; left--) {
      nfa.free[at].push(to);
      at = pattern(nfa, at);
    }
    nfa.free[at].push(to);
    return to;
  };

/** State in which no word can continue. */
export const DEAD = -1;
const UNKNOWN = -2;

/** A deterministic automaton that is built lazily from an `Nfa`. */
export class ByteAutomaton {
  readonly start: number;
  readonly #nfa = new Nfa();
  readonly #end: number;
  /** [nodes] minimum number of bytes from a node to the end of a word. */
  readonly #bytesLeft: number[];
  /** Nodes of each state in ascending order, and the next state for each byte. */
  readonly #nodes: number[][] = [];
  readonly #next: Int32Array[] = [];
  readonly #left: number[] = [];
  readonly #stateOf = new Map<string, number>();

  constructor(language: Pattern) {
    const first = this.#nfa.node();
    this.#end = language(this.#nfa, first);
    this.#bytesLeft = bytesLeft(this.#nfa, this.#end);
    this.start = this.#state([first]);
  }

  next(state: number, byte: number): number {
    const row = this.#next[state];
    if (row[byte] === UNKNOWN) row[byte] = this.#follow(state, byte);
    return row[byte];
  }

  /** True if the bytes read so far are a complete word. */
  isEnd(state: number): boolean {
    return this.#nodes[state].includes(this.#end);
  }

  /** Minimum number of bytes to the end of a word. */
  bytesLeft(state: number): number {
    return this.#left[state];
  }

  #follow(state: number, byte: number): number {
    const reached: number[] = [];
    for (const node of this.#nodes[state])
      for (const [low, high, to] of this.#nfa.edges[node]) if (low <= byte && byte <= high) reached.push(to);
    return reached.length === 0 ? DEAD : this.#state(reached);
  }

  /** Returns the state of these nodes and of all nodes reachable from them without a byte. */
  #state(nodes: number[]): number {
    const all = new Set(nodes);
    // Iterating over a set also visits the elements that are added during the loop.
    for (const node of all) for (const to of this.#nfa.free[node]) all.add(to);
    const sorted = [...all].sort((a, b) => a - b);
    const key = sorted.join();
    const known = this.#stateOf.get(key);
    if (known !== undefined) return known;
    this.#stateOf.set(key, this.#nodes.length);
    this.#next.push(new Int32Array(256).fill(UNKNOWN));
    this.#left.push(sorted.reduce((least, node) => Math.min(least, this.#bytesLeft[node]), Infinity));
    return this.#nodes.push(sorted) - 1;
  }
}

/** Searches backwards from the end, breadth first, with one byte per round. */
function bytesLeft({ edges, free }: Nfa, end: number): number[] {
  const [byByte, byNothing]: number[][][] = [edges.map(() => []), edges.map(() => [])];
  edges.forEach((list, from) => list.forEach(([, , to]) => byByte[to].push(from)));
  free.forEach((list, from) => list.forEach((to) => byNothing[to].push(from)));
  const left = edges.map(() => Infinity);
  let round = [end];
  for (let distance = 0; round.length > 0; distance++) {
    const here = new Set(round.filter((node) => left[node] === Infinity));
    for (const node of here) for (const from of byNothing[node]) if (left[from] === Infinity) here.add(from);
    for (const node of here) left[node] = distance;
    round = [...here].flatMap((node) => byByte[node]);
  }
  return left;
}

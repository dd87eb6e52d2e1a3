/**
 * Tokens of a sample and the values that are recorded for each token. TOKEN_FIELDS is the only list of these values. All code that handles
 * samples extends, truncates, joins, checks, saves and restores whatever the list has.
 */

import { concat } from '../concat.ts';

/** Arrays of a turn or a sample, each with one value per token. */
export interface TokenArrays {
  /** Tokens of the prompt. */
  promptIds: Uint32Array;
  /** [T] tokens of a turn, including the token that ended it. */
  tokenIds: Uint32Array;
  /** [T] tokens after the prompt, tool outputs included. */
  responseIds: Uint32Array;
  /** [T] 1 = sampled by the policy; 0 = from a tool or the loop. The log-probs and other values recorded for the latter are 0. */
  mask: Uint8Array;
  /** [T] log-prob of each token over the full vocabulary, at the sampling temperature. */
  logProbs: Float32Array;
  /**
   * [T] difference between logProbs and the log-prob under the distribution that was sampled from. With top-k, top-p, min-p or a mask, it
   * is the log of the probability mass that they kept. Penalties and biases add their own part. A turn has no logMass if all of it is 0.
   */
  logMass: Float32Array;
  /** [T] version of the weights that sampled each token, as set by `resetCache`. */
  weightVersions: Uint32Array;
}
export type TokenFieldName = keyof TokenArrays;
type Numbers = { [N in TokenFieldName]?: ArrayLike<number> };

interface TokenField<A> {
  Numbers: { new (lengthOrBytes: number | ArrayBuffer): A; readonly name: string };
  isAllowed(value: number, vocabSize: number): boolean;
}
const ids: TokenField<Uint32Array> = { Numbers: Uint32Array, isAllowed: (id, vocabSize) => id < vocabSize };
const floats: TokenField<Float32Array> = { Numbers: Float32Array, isAllowed: Number.isFinite };

/** Array type and valid values of each field, in the order in which files store the fields. */
export const TOKEN_FIELDS: { [N in TokenFieldName]: TokenField<TokenArrays[N]> } = {
  promptIds: ids,
  tokenIds: ids,
  responseIds: ids,
  mask: { Numbers: Uint8Array, isAllowed: (m) => m <= 1 },
  logProbs: floats,
  logMass: floats,
  weightVersions: { Numbers: Uint32Array, isAllowed: () => true },
};

const namesWithout = <N extends TokenFieldName>(...others: N[]) =>
  (Object.keys(TOKEN_FIELDS) as Exclude<TokenFieldName, N>[]).filter((name) => !others.includes(name as never));
/** Names of all fields. */
export const TOKEN_FIELD_NAMES = namesWithout<never>();
/** Names of the fields that a sample has for the tokens after its prompt. */
export const RESPONSE_FIELDS = namesWithout('promptIds', 'tokenIds');
/** In order: names of a turn's fields, of a turn's required fields, and of a sample's required fields. */
export const TURN_FIELDS = namesWithout('promptIds', 'responseIds', 'mask');
export const TURN_REQUIRED = ['tokenIds', 'logProbs'] as const;
export const SAMPLE_REQUIRED = ['promptIds', 'responseIds', 'mask', 'logProbs', 'logMass'] as const;

type ResponseArrays = Pick<TokenArrays, (typeof RESPONSE_FIELDS)[number]>;
type Having<T, N extends keyof T> = Pick<T, N> & Partial<Omit<T, N>>;
/** Tokens that a turn has sampled so far, with their values. */
export type DrawnSoFar = Having<Pick<TokenArrays, (typeof TURN_FIELDS)[number]>, (typeof TURN_REQUIRED)[number]>;
/** Tokens of a sample. */
export type SampleArrays = Having<Omit<TokenArrays, 'tokenIds'>, (typeof SAMPLE_REQUIRED)[number]>;

/** The tokens of a sample after its prompt. Turns and tool outputs are appended. */
export class TokenLog {
  #parts: ResponseArrays[] = [];

  /** Number of tokens so far. */
  get length(): number {
    return this.#parts.reduce((sum, { mask: { length } }) => sum + length, 0);
  }

  /** Number of tokens up to and including the last one that the model sampled. */
  get drawnLength(): number {
    return concatTokens(this.#parts, ['mask']).mask.lastIndexOf(1) + 1;
  }

  /** Appends tokens with their values. */
  push(tokens: Numbers & { responseIds: ArrayLike<number> }): void {
    this.#parts.push(concatTokens([tokens], RESPONSE_FIELDS));
  }

  /** Adds a turn of the model. */
  draw(turn: DrawnSoFar): void {
    this.push({ ...turn, responseIds: turn.tokenIds, mask: new Uint8Array(turn.tokenIds.length).fill(1) });
  }

  /** Removes all tokens after the first `length`. */
  cutTo(length: number): void {
    this.#parts = [this.slice(length)];
  }

  /** Returns the ids of all tokens: those of the prompt, then those after it. */
  contextAfter(promptIds: Uint32Array): Uint32Array {
    return concat(Uint32Array, [promptIds, ...this.#parts.map(({ responseIds }) => responseIds)]);
  }

  /** Returns the first `end` tokens, with the values of all fields. */
  slice(end?: number): ResponseArrays {
    return concatTokens(this.#parts, RESPONSE_FIELDS, { end });
  }
}

/** Concatenates the parts of a turn or a sample, and returns tokens `start` to `end`. A field that a part lacks is 0 for its tokens. */
export const concatTokens = <N extends TokenFieldName>(
  parts: readonly Numbers[],
  names: readonly N[],
  { start = 0, end }: { start?: number; end?: number | undefined } = {},
) =>
  Object.fromEntries(
    names.map((name) => {
      const given = parts.map((part) => part[name] ?? new Uint8Array((part.responseIds ?? part.tokenIds)!.length));
      const all = concat<TokenArrays[TokenFieldName]>(TOKEN_FIELDS[name].Numbers, given);
      return [name, end === undefined ? all : all.slice(start, end)];
    }),
  ) as unknown as Pick<TokenArrays, N>;

/**
 * Finds the first fault in arrays that come from another machine or a file. Returns the name of the field and what is wrong with it.
 * @param required fields that must be present
 * @param vocabSize number of tokens of the model; default: token ids are not checked
 */
export function findFault(
  arrays: { [N in TokenFieldName]?: unknown },
  required: readonly TokenFieldName[],
  vocabSize?: number,
): [TokenFieldName, string] | undefined {
  let tokens: number | undefined;
  for (const name of TOKEN_FIELD_NAMES) {
    const { Numbers, isAllowed } = TOKEN_FIELDS[name];
    const values = arrays[name];
    if (values === undefined && !required.includes(name)) continue;
    if (!(values instanceof Numbers)) return [name, `is not a ${Numbers.name}`];
    if (name !== 'promptIds' && values.length !== (tokens ??= values.length))
      return [name, `has ${values.length} numbers for ${tokens} tokens`];
    const bad = vocabSize === undefined ? -1 : values.findIndex((value) => !isAllowed(value, vocabSize));
    if (bad >= 0) return [name, `has ${values[bad]} at token ${bad}, which it cannot hold`];
  }
  return undefined;
}

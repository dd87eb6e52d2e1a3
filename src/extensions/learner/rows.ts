/** Converts the rows of a learner call to the trainer's batches, and results back. Throws InputError that names the row and the field. */

import { InputError } from '../../errors.ts';
import { MAX_FLOAT32 } from '../../grpo/config/keys.ts';
import { show } from '../../grpo/config/tree.ts';
import { sameIds, type SampleTokens } from '../../grpo/update/batch.ts';
import type { PolicyData } from '../../grpo/update/policyGradient.ts';
import type { LossSettings } from './settings.ts';
import type { Row, TrainRow } from './types.ts';

export interface RowLimits {
  vocabSize: number;
  /** Maximum number of tokens of a row. */
  maxPositions: number;
}

/**
 * Rows in the form in which batches are packed: adjacent rows with the same prompt are one group, which stores the prompt once. `masks`
 * cover only the responses.
 */
export interface PackedRows {
  samples: {
    group: number;
    trajectory: { promptIds: Uint32Array; responseIds: Uint32Array; logProbs: Float32Array };
  }[];
  masks: Uint8Array[];
}

/** Log-probs up to this value above 0 are accepted, because rounding can make the log-prob of a certain token slightly positive. */
const ABOVE_ZERO = 1e-3;

/** Validates rows, and joins adjacent rows with the same `group` and prompt into groups. Throws InputError if a row is invalid. */
export function packedRows(verb: string, rows: readonly Row[], limits: RowLimits): PackedRows {
  if (!isList(rows) || rows.length === 0)
    throw new InputError(`${verb}: rows is ${Array.isArray(rows) ? 'empty' : show(rows)}. Give a list of rows.`);
  const packed: PackedRows = { samples: [], masks: [] };
  rows.forEach((row, i) => {
    const { tokens, mask, promptLength } = checkedRow(`${verb}: row ${i}`, row, limits);
    const promptIds = tokens.subarray(0, promptLength);
    const last = packed.samples.at(-1);
    const shares = last && rows[i - 1].group === row.group && sameIds(last.trajectory.promptIds, promptIds);
    const responseIds = tokens.subarray(promptLength);
    const logProbs = new Float32Array(responseIds.length);
    const group = shares ? last.group : i;
    packed.samples.push({ group, trajectory: { promptIds, responseIds, logProbs } });
    packed.masks.push(mask.subarray(promptLength));
  });
  return packed;
}

/** Converts rows to the input of the loss. Throws InputError if a value that the loss reads is missing, or if no token has mask 1. */
export function policyData(rows: readonly TrainRow[], limits: RowLimits, settings: LossSettings): PolicyData {
  const verb = 'forwardBackward';
  const { samples, masks } = packedRows(verb, rows, limits);
  const { reads, normalization } = settings;
  if (masks.every((mask) => !mask.includes(1)))
    throw new InputError(`${verb}: no row has a mask with a 1, so there is nothing to train on.`);
  const field = (name: 'advantages' | 'logProbs' | 'refLogProbs', absent?: number) =>
    rows.map((row, i) => {
      const what = `${verb}: row ${i}`;
      const value = row[name];
      if (value === undefined && absent === undefined)
        throw new InputError(`${what} has no ${name}, which the loss reads. Give ${EXPECTED[name]}.`);
      if (typeof value === 'number' && name !== 'advantages')
        throw new InputError(`${what}: ${name} is ${value}. Give ${EXPECTED[name]}.`);
      return checkedValues(what, name, value ?? absent!, row.tokens.length, masks[i]);
    });
  const oldLogProbs = field('logProbs', reads.logProbs ? undefined : 0);
  oldLogProbs.forEach((values, i) => samples[i].trajectory.logProbs.set(values));
  const tokens: SampleTokens = {
    masks,
    oldLogProbs,
    advantages: field('advantages', reads.advantages ? undefined : 1),
    ...(rows.some((row) => row.refLogProbs !== undefined) || reads.refLogProbs
      ? { refLogProbs: field('refLogProbs', reads.refLogProbs ? undefined : 0) }
      : {}),
  };
  return { samples, tokens, normalization };
}

const EXPECTED = {
  advantages: 'one number, or one per token',
  logProbs: 'one number per token, as `sample` does',
  refLogProbs: 'those of `logProbs(rows, { reference: true })`, or klLossCoef 0',
};

function checkedRow(what: string, row: Row, { vocabSize, maxPositions }: RowLimits) {
  if (typeof row !== 'object' || row === null) throw new InputError(`${what} is ${show(row)}. Give { tokens, mask }.`);
  const [tokens, marks] = [tokensOf(what, row.tokens, vocabSize), numbersOf(what, 'mask', row.mask)];
  const T = tokens.length;
  if (T < 2)
    throw new InputError(
      `${what} has ${T} tokens. At least 2 are needed, because a token is predicted from earlier ones.`,
    );
  if (T > maxPositions)
    throw new InputError(
      `${what} has ${T} tokens. At most ${maxPositions} fit (data.maxPromptLength + data.maxResponseLength).`,
    );
  if (marks.length !== T)
    throw new InputError(`${what} has ${marks.length} mask values for ${T} tokens. Give one per token.`);
  const odd = marks.findIndex((mark) => mark !== 0 && mark !== 1);
  if (odd >= 0)
    throw new InputError(`${what}: mask[${odd}] is ${shown(marks[odd])}; allowed: 1 (trained) or 0 (not trained).`);
  if (marks[0] === 1) throw new InputError(`${what}: mask[0] is 1, but nothing predicts the first token. Set it to 0.`);
  const first = marks.indexOf(1);
  const longest = first < 0 ? T : first;
  const { promptLength = longest } = row;
  if (!(Number.isInteger(promptLength) && promptLength >= 1 && promptLength <= longest))
    throw new InputError(
      `${what}: promptLength is ${show(promptLength)}; allowed: 1 to ${longest}, before the first 1 of the mask.`,
    );
  return { tokens, mask: Uint8Array.from(marks), promptLength };
}

/**
 * Converts token ids to Uint32Array. Throws InputError for an id outside the vocabulary, for which the GPU would read the embedding of
 * another token.
 */
export function tokensOf(what: string, ids: ArrayLike<number>, vocabSize: number): Uint32Array {
  const given = numbersOf(what, 'tokens', ids);
  const bad = given.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id < vocabSize));
  if (bad >= 0)
    throw new InputError(`${what}: tokens[${bad}] is ${shown(given[bad])}; the model knows 0 to ${vocabSize - 1}.`);
  return Uint32Array.from(given);
}

/** Returns the values of the response tokens: the given value, which must be finite, where the mask is 1, and 0 elsewhere. */
function checkedValues(what: string, name: keyof typeof EXPECTED, value: unknown, T: number, mask: Uint8Array) {
  const values = typeof value === 'number' ? undefined : numbersOf(what, name, value);
  if (values && values.length !== T)
    throw new InputError(`${what} has ${values.length} ${name} for ${T} tokens. Give one per token.`);
  const prompt = T - mask.length;
  return Float64Array.from(mask, (m, t) => {
    if (m === 0) return 0;
    const x = values ? values[prompt + t] : (value as number);
    const at = values ? `${name}[${prompt + t}]` : name;
    if (!Number.isFinite(x) || Math.abs(x) > MAX_FLOAT32)
      throw new InputError(`${what}: ${at} is ${shown(x)}. Give a finite number of float32's range.`);
    if (name !== 'advantages' && x > ABOVE_ZERO)
      throw new InputError(`${what}: ${at} is ${x}; allowed: at most 0, as a natural log of a probability.`);
    return x;
  });
}

/** Formats a value for an error message. JSON would print NaN as null. */
const shown = (x: unknown): string => (typeof x === 'number' ? String(x) : show(x));

/** Converts an array-like value to numbers. Throws InputError for a string, which also has a length and indices. */
function numbersOf(what: string, name: string, value: unknown): number[] {
  if (Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView)))
    return Array.from(value as ArrayLike<number>);
  throw new InputError(`${what}: ${name} is ${show(value)}. Give an array of numbers.`);
}

/** `Array.isArray` with a boolean result. As a type guard it would give the value the type any[]. */
const isList = (value: unknown): boolean => Array.isArray(value);

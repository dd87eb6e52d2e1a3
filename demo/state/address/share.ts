/**
 * Encodes a run's result in an address: its curves, quantised, deflated and in base64url after `#r=`. The settings precede it as
 * parameters. Links are untrusted, so the decoder checks every length, number and letter.
 *
 * Version 1, deflated after the version byte: adapter (length, UTF-8), seconds, trained tokens, lines, the step of each line (as a
 * difference to the previous one). Then for each curve of CURVES: points, the line of each point (as a difference), lowest and highest
 * value (float32), and the values between them (one or two bytes, high byte first). Integers are LEB128.
 * Version 2 ends with the changes during the run, as the text of changes.jsonl. A run without changes has version 1.
 * Version 3 has these changes too, then the comparison of two answers: number and text of the problem, and step, verdict and text of each
 * answer.
 */

import { InputError } from '../../../src/errors.ts';
import type { Metrics } from '../../../src/grpo/metrics.ts';
import { greedyAcc, passAt1 } from '../../../src/report/metricOf.ts';
import { spreadOut } from '../../../src/runs/rollouts.ts';
import type { ComparedAnswer, Comparison } from '../tries/comparison.ts';
import { changesText, readChanges } from '../../storage/changesFile.ts';
import type { RunChange } from '../../storage/runChanges.ts';

export interface SharedResult {
  history: Metrics[];
  /** Name of the GPU; empty if not included. */
  adapter: string;
  /** Seconds of all steps and evaluations. */
  seconds: number;
  trainedTokens: number;
  /** Settings and rules that were changed during the run. A rule's code is '' if the changes were too long for a link. */
  changes: readonly RunChange[];
  /** Two answers to one problem; long texts lack their middle. Undefined if not included. */
  comparison?: Comparison | undefined;
}

interface Curve {
  /** Metric that has the values in a decoded history. Without `read`, the values that are encoded are also this metric's. */
  metric: string;
  read?: (line: Metrics) => number | undefined;
  bytes: 1 | 2;
}

/** The order is part of the format: new curves are appended, with a new version. */
const CURVES: readonly Curve[] = [
  { metric: 'critic/score/mean', bytes: 2 },
  { metric: 'val-core/shared/acc/mean@1', read: passAt1, bytes: 2 },
  { metric: 'val-core/shared/acc/greedy', read: greedyAcc, bytes: 2 },
  { metric: 'actor/entropy', bytes: 1 },
  { metric: 'actor/ppo_kl', bytes: 1 },
  { metric: 'actor/kl_loss', bytes: 1 },
  { metric: 'actor/grad_norm', bytes: 1 },
  { metric: 'response_length/mean', bytes: 1 },
  { metric: 'response_length/p10', bytes: 1 },
  { metric: 'response_length/p90', bytes: 1 },
];

const [VERSION, WITH_CHANGES, WITH_ANSWERS] = [1, 2, 3];
const MAX_TEXT = 20_000;
const MAX_BYTES = 100_000;
const MAX_LINES = 400;
const MAX_STEP = 10_000_000;
const MAX_NAME = 80;
const MAX_CHANGES = 30_000;
/** Maximum number of UTF-16 units of a problem or an answer. */
const MAX_ANSWER = 600;
/** Number of characters that a longer text keeps of its end, where the final answer is. */
const END = 100;
const MAX_COUNT = 2 ** 48;
const MAX_VALUE = 1e9;

/** Returns the text after `#r=`. */
export async function encodeResult(result: SharedResult): Promise<string> {
  const { history, adapter, seconds, trainedTokens, changes, comparison } = result;
  const lines = thinned(history);
  const out = new Writer();
  out.text(adapter.replace(NOT_PRINTED, '').slice(0, MAX_NAME));
  out.integer(Math.round(seconds));
  out.integer(trainedTokens);
  out.integer(lines.length);
  out.differences(lines.map((line) => line['training/global_step']));
  for (const { metric, read = (line: Metrics) => line[metric], bytes } of CURVES) {
    const points = lines.flatMap((line, at) => {
      const value = read(line);
      return value !== undefined && Math.abs(value) <= MAX_VALUE ? [{ at, value }] : [];
    });
    out.integer(points.length);
    out.differences(points.map(({ at }) => at));
    const values = points.map(({ value }) => value);
    if (values.length > 0) out.values(values, bytes);
  }
  if (changes.length > 0 || comparison) out.text(changesText(changes));
  if (comparison) writeComparison(out, comparison);
  const version = comparison ? WITH_ANSWERS : changes.length > 0 ? WITH_CHANGES : VERSION;
  const packed = await through(out.bytes(), new CompressionStream('deflate-raw'), Infinity);
  const text = toBase64Url(Uint8Array.of(version, ...packed));
  if (text.length <= MAX_TEXT && changesText(changes).length <= MAX_CHANGES) return text;
  return encodeResult({
    ...result,
    changes: changes.slice(-100).map((of) => ('code' in of ? { ...of, code: '' } : of)),
  });
}

/** Decodes a result. Throws InputError for a text that no page has written. */
export async function decodeResult(text: string): Promise<SharedResult> {
  try {
    return await decoded(text);
  } catch (error) {
    const why = error instanceof DamageError ? error.message : 'it cannot be unpacked';
    throw new InputError(`The result in this link is damaged (${why}). Copy the whole link again.`);
  }
}

class DamageError extends Error {}

function check(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new DamageError(otherwise);
}

async function decoded(text: string): Promise<SharedResult> {
  check(text.length <= MAX_TEXT, `it has ${text.length} characters, at most ${MAX_TEXT} are allowed`);
  check(/^[\w-]+$/.test(text), 'it contains invalid characters');
  const [version, ...packed] = fromBase64Url(text);
  check([VERSION, WITH_CHANGES, WITH_ANSWERS].includes(version), 'it does not begin as a link of this page does');
  const from = new Reader(await through(Uint8Array.from(packed), new DecompressionStream('deflate-raw'), MAX_BYTES));
  const adapter = from.text(MAX_NAME);
  check(!adapter.match(NOT_PRINTED), 'the GPU name is invalid');
  const [seconds, trainedTokens] = [from.integer(MAX_COUNT), from.integer(MAX_COUNT)];
  const steps = from.differences(from.integer(MAX_LINES), MAX_STEP);
  const history: Metrics[] = steps.map((step) => ({ 'training/global_step': step }));
  for (const { metric, bytes } of CURVES) {
    const at = from.differences(from.integer(history.length), history.length - 1);
    const values = at.length > 0 ? from.values(at.length, bytes) : [];
    at.forEach((line, i) => (history[line][metric] = values[i]));
  }
  const changes = version >= WITH_CHANGES ? changesIn(from.text(MAX_CHANGES)) : [];
  const comparison = version === WITH_ANSWERS ? readComparison(from) : undefined;
  check(from.atEnd, 'extra data at the end');
  check(history.length > 0, 'it has no steps');
  return { history, adapter, seconds, trainedTokens, changes, ...(comparison && { comparison }) };
}

function changesIn(text: string): RunChange[] {
  const changes = readChanges(text, 'a link');
  for (const change of changes)
    check(
      !('name' in change) || (change.name.length <= MAX_NAME && !change.name.match(NOT_PRINTED)),
      'a rule is unnamed',
    );
  return changes;
}

function writeComparison(out: Writer, { number, problem, before, after }: Comparison): void {
  const text = (whole: string) => {
    const [all, most] = [[...whole.replace(NOT_PRINTED, '')], MAX_ANSWER / 2];
    if (all.length > most) all.splice(most - END - 1, all.length - most + 1, '\u2026');
    out.text(all.join(''));
  };
  out.integer(number);
  text(problem);
  for (const answer of [before, after]) {
    out.integer(answer.step);
    out.integer(answer.right ? 1 : 0);
    text(answer.text);
  }
}

function readComparison(from: Reader): Comparison {
  const text = () => {
    const read = from.text(MAX_ANSWER);
    check(!read.match(NOT_PRINTED), 'an answer in it is invalid');
    return read;
  };
  const answer = (): ComparedAnswer => ({ step: from.integer(MAX_STEP), right: from.integer(1) === 1, text: text() });
  return { number: from.integer(MAX_STEP), problem: text(), before: answer(), after: answer() };
}

/** Control characters, and characters that change the direction of writing. */
const NOT_PRINTED = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** Returns some lines and some evaluations of a long run, always including its first and last. */
function thinned(history: readonly Metrics[]): readonly Metrics[] {
  if (history.length <= MAX_LINES) return history;
  const evaluations = history.filter((line) => passAt1(line) !== undefined);
  const kept = new Set([...spreadOut(history, MAX_LINES - 100), ...spreadOut(evaluations, 100)]);
  return history.filter((line) => kept.has(line));
}

class Writer {
  readonly #bytes: number[] = [];

  bytes = (): Uint8Array<ArrayBuffer> => Uint8Array.from(this.#bytes);

  integer(value: number): void {
    for (; value >= 128; value = Math.floor(value / 128)) this.#bytes.push((value % 128) + 128);
    this.#bytes.push(value);
  }

  text(value: string): void {
    const bytes = new TextEncoder().encode(value);
    this.integer(bytes.length);
    this.#bytes.push(...bytes);
  }

  /** Writes the differences of increasing numbers. */
  differences(values: readonly number[]): void {
    values.forEach((value, i) => this.integer(i === 0 ? value : value - values[i - 1]));
  }

  values(values: readonly number[], bytes: 1 | 2): void {
    const [min, max] = [Math.fround(Math.min(...values)), Math.fround(Math.max(...values))];
    this.#bytes.push(...new Uint8Array(Float32Array.of(min, max).buffer));
    const levels = 256 ** bytes - 1;
    const level = (value: number) => Math.min(levels, Math.max(0, Math.round(((value - min) / (max - min)) * levels)));
    const whole = values.map((value) => (max > min ? level(value) : 0));
    if (bytes === 2) this.#bytes.push(...whole.map((value) => value >> 8));
    this.#bytes.push(...whole.map((value) => value & 255));
  }
}

class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get atEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  integer(max: number): number {
    let value = 0;
    for (let place = 1; ; place *= 128) {
      const [byte] = this.#take(1);
      value += (byte % 128) * place;
      check(value <= max && place <= MAX_COUNT, 'a number in it is too large');
      if (byte < 128) return value;
    }
  }

  text(max: number): string {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(this.#take(this.integer(4 * max)));
    check(text.length <= max, 'a name in it is too long');
    return text;
  }

  differences(count: number, max: number): number[] {
    let value = 0;
    return Array.from({ length: count }, (_, i) => {
      const difference = this.integer(MAX_STEP);
      check(i === 0 || difference > 0, 'steps are not increasing');
      value += difference;
      check(value <= max, 'a step in it is too large');
      return value;
    });
  }

  values(count: number, bytes: 1 | 2): number[] {
    const view = new DataView(this.#take(8).slice().buffer);
    const [min, max] = [view.getFloat32(0, true), view.getFloat32(4, true)];
    check(min <= max && Math.abs(min) <= MAX_VALUE && Math.abs(max) <= MAX_VALUE, 'a curve has no value range');
    const high = bytes === 2 ? this.#take(count) : new Uint8Array(count);
    const low = this.#take(count);
    const levels = 256 ** bytes - 1;
    return Array.from(low, (byte, i) => min + ((high[i] * 256 + byte) / levels) * (max - min));
  }

  #take(count: number): Uint8Array {
    check(this.#at + count <= this.#bytes.length, 'it is cut off');
    this.#at += count;
    return this.#bytes.subarray(this.#at - count, this.#at);
  }
}

/** Decompresses at most `max` bytes, because a short text can expand to gigabytes. */
async function through(
  bytes: Uint8Array<ArrayBuffer>,
  transform: CompressionStream | DecompressionStream,
  max: number,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  const reader = new Blob([bytes]).stream().pipeThrough(transform).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    if (length <= max) continue;
    await reader.cancel().catch(() => {});
    throw new DamageError('it is too large');
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const toBase64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');

const fromBase64Url = (text: string): Uint8Array =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));

/** Reads the logs of a run folder. Skips lines that are invalid (truncated, changed, or with other types), with one warning per file. */

import * as v from 'valibot';
import type { Metrics } from '../grpo/metrics.ts';
import type { LoggedRollout } from './rollouts.ts';
import type { SampleProfile, StepProfile } from './profileLog.ts';

/** Number in the range of safe integers. Larger counts and times would make calculations inexact. */
const number = v.pipe(v.number(), v.minValue(-Number.MAX_SAFE_INTEGER), v.maxValue(Number.MAX_SAFE_INTEGER));
const step = v.pipe(number, v.integer(), v.minValue(0));
const amount = v.pipe(number, v.minValue(0));
const numberOrNull = v.nullish(number, null);
const text = v.string();

/** Number of a line of metrics. A value that is not finite is written as null, because JSON lacks it, and read as NaN. */
const value = v.union([
  v.pipe(v.number(), v.finite()),
  v.pipe(
    v.null(),
    v.transform(() => NaN),
  ),
]);
const metrics = v.objectWithRest({ 'training/global_step': step }, value);

/** A line of logged rollouts. Logs of earlier versions can lack fields that were added later. */
const rollout = v.looseObject({
  step,
  group: v.optional(amount, 0),
  problem: v.optional(text, ''),
  answer: v.optional(text, ''),
  promptMessages: v.optional(amount, 0),
  messages: v.array(v.looseObject({ role: text, content: v.nullish(text, '') })),
  score: numberOrNull,
  acc: numberOrNull,
  stopReason: v.optional(text, ''),
  numTurns: v.optional(amount, 0),
  numToolCalls: v.optional(amount, 0),
  responseTokens: v.optional(amount, 0),
  advantage: numberOrNull,
  turnRewards: v.fallback(v.optional(v.array(number)), undefined),
  extra: v.optional(v.record(text, v.unknown())),
});

const profileHead = v.object({ step, phases: v.array(v.strictTuple([text, number, number])) });
const event = v.union([
  v.strictTuple([text, amount, number, number]),
  v.strictTuple([text, amount, number, number, number]),
]);
const profileSample = v.object({
  id: text,
  problem: v.optional(text, ''),
  stop: v.optional(text, ''),
  turns: amount,
  tokens: amount,
  toolCalls: v.optional(amount, 0),
  score: numberOrNull,
  events: v.array(event),
});

function linesOf<S extends v.GenericSchema>(content: string, schema: S, file: string): v.InferOutput<S>[] {
  const lines = content.split('\n');
  lines.pop(); // the text after the last newline: empty, or a line that a kill cut short
  const written = lines.filter((line) => line.trim() !== '');
  const read = written.flatMap((line) => {
    const result = v.safeParse(schema, parsed(line));
    return result.success ? [result.output] : [];
  });
  sayLeftOut(file, written.length - read.length, written.length);
  return read;
}

/**
 * Returns all lines of metrics.jsonl that can be read.
 * @param file name of the file in warnings
 */
export const readMetrics = (content: string, file: string): Metrics[] => linesOf(content, metrics, file);

/** Returns all lines of a rollouts/step-N.jsonl that can be read. */
export const readRollouts = (content: string, file: string): LoggedRollout[] =>
  linesOf(content, rollout, file) as LoggedRollout[];

/** Returns the lines of a profile/step-N.jsonl; [] if the first line, which has the step, cannot be read. */
export function readProfile(content: string, file: string): StepProfile[] {
  const end = content.indexOf('\n') + 1;
  const [head] = linesOf(content.slice(0, end), profileHead, file);
  if (head === undefined) return [];
  const samples = linesOf(content.slice(end), profileSample, file) as unknown as SampleProfile[];
  return [{ ...head, samples }];
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    return undefined;
  }
}

const said = new Set<string>();

/** Warns of lines that cannot be read, only once although a file is read several times in a run. */
function sayLeftOut(file: string, unread: number, of: number): void {
  const sentence = `${unread} of ${of} lines of ${file} cannot be read and ${unread === 1 ? 'is' : 'are'} skipped`;
  if (unread === 0 || said.has(sentence)) return;
  said.add(sentence);
  console.warn(sentence);
}

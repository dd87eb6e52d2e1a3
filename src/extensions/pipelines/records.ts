/**
 * Converts samples to records of the experience queue and back. Per-token arrays are separate columns (the sample's own
 * arrays); the other fields are one JSON text. The problem is not included, because the code that started the group has
 * it.
 */

import * as v from 'valibot';
import { UserCodeError } from '../../errors.ts';
import { findFault, RESPONSE_FIELDS, SAMPLE_REQUIRED, type SampleArrays } from '../../rollout/tokenLog.ts';
import { countsOf, STOP_REASONS } from '../../rollout/types.ts';
import type { Problem } from '../../tasks/task.ts';
import type { SampleEvent } from '../../rollout/agent/events.ts';
import { withMissing } from './sampleCodec.ts';
import { type OutsideSeconds, outsideSeconds, type OutsideSpans } from '../../grpo/generate/samples.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import type { Column, ExperienceRecord, Tags } from '../../grpo/pipeline/record.ts';

const FIELDS = ['promptIds', ...RESPONSE_FIELDS] as const;
/** Columns whose name differs from the sample's field. */
const COLUMNS: Record<string, string> = { promptIds: 'prompt', responseIds: 'response', weightVersions: 'versions' };
const columnOf = (field: string): string => COLUMNS[field] ?? field;

/** Group of a sample, and the worker that generated it. */
export interface RecordOrigin {
  /** Id of the prompt group. */
  uid: string;
  /** Index of the sample in its group. */
  sample: number;
  /** Worker that generated the sample; 'local' = this device. */
  worker: string;
}

/**
 * Returns the oldest and the newest weight version of a sample's drawn tokens. A token without a version has version 0. A sample without a
 * drawn token is of no version: oldest is then Infinity.
 */
export function versionsOf({ mask, weightVersions }: Sample['trajectory']): { oldest: number; newest: number } {
  let [oldest, newest] = [Infinity, 0];
  mask.forEach((drawn, t) => {
    if (drawn === 0) return;
    const version = weightVersions?.[t] ?? 0;
    oldest = Math.min(oldest, version);
    newest = Math.max(newest, version);
  });
  return { oldest, newest };
}

/**
 * Returns a queue record for a scored sample; the two share their arrays. Tags: status = 'scored'; version and newest =
 * the oldest and newest weight versions that sampled its tokens, if there are any; worker; and the tags in `more`.
 */
export function recordOf(sample: Sample, { uid, sample: s, worker }: RecordOrigin, more: Tags = {}): ExperienceRecord {
  const { trajectory, reward, messages, prompt, toolRewards, fault, events } = sample;
  const { oldest, newest } = versionsOf(trajectory);
  const columns: Record<string, Column> = {};
  for (const field of FIELDS) {
    const values = trajectory[field];
    if (values) columns[columnOf(field)] = values;
  }
  if (!Number.isNaN(reward.score)) columns['reward'] = reward.score;
  columns['sample'] = JSON.stringify({
    ...{ reward, messages, ...countsOf(trajectory) },
    ...(prompt && { prompt }),
    ...(toolRewards && { toolRewards }),
    ...(fault && { fault: { kind: fault.kind, message: fault.message } }),
    ...(events && { events }),
  });
  const versions = oldest < Infinity && { version: oldest, newest };
  return { key: `${uid}_${s}`, columns, tags: { status: 'scored', ...versions, worker, ...more } };
}

/** Columns of a group's first record: seconds in which at least one sample of the group waited for tools, or for its reward. */
const SECONDS = { tools: 'toolSeconds', reward: 'rewardSeconds' } as const;

/** Returns the queue records of a group's scored samples. The first record also has the group's waits for tools and rewards. */
export function recordsOf(
  samples: readonly Sample[],
  outside: OutsideSpans,
  origin: Omit<RecordOrigin, 'sample'>,
): ExperienceRecord[] {
  const records = samples.map((sample, s) => recordOf(sample, { ...origin, sample: s }));
  const { tools, reward } = outsideSeconds(outside);
  Object.assign(records[0].columns, { [SECONDS.tools]: tools, [SECONDS.reward]: reward });
  return records;
}

/** Returns the waits of a record: columns to copy to another record of the same sample. */
export const waitsOf = ({ columns }: ExperienceRecord): ExperienceRecord['columns'] =>
  Object.fromEntries(Object.values(SECONDS).flatMap((name) => (name in columns ? [[name, columns[name]]] : [])));

/** Returns the seconds that the samples of a group waited. An invalid value from another machine counts as 0. */
export function waitSeconds(records: readonly ExperienceRecord[]): OutsideSeconds {
  const sum = (name: string): number =>
    records.reduce((total, { columns: { [name]: seconds } }) => total + (isTime(seconds) ? seconds : 0), 0);
  return { tools: sum(SECONDS.tools), reward: sum(SECONDS.reward) };
}

const isTime = (value: unknown): value is number => typeof value === 'number' && value >= 0 && value < Infinity;

/**
 * Returns the sample of a record; it shares the record's arrays. Throws RangeError with the invalid column for a record
 * that `recordOf` did not create: it may be from another machine.
 * @param origin problem of the group, and the number that its samples share
 */
export function sampleOf(
  { key, columns }: ExperienceRecord,
  { problem, group }: { problem: Problem; group: number },
): Sample {
  const fail = (column: string, what: string): never => {
    throw new RangeError(`Column "${column}" of the record "${key}" ${what}.`);
  };
  const arrays: Record<string, Column> = {};
  for (const field of FIELDS) {
    const column = columns[columnOf(field)];
    if (column !== undefined) arrays[field] = column;
  }
  const wrong = findFault(arrays, SAMPLE_REQUIRED);
  if (wrong) return fail(columnOf(wrong[0]), wrong[1]);
  const parsed = v.safeParse(SAMPLE, columns['sample']);
  if (!parsed.success) {
    const [{ path = [], message }] = parsed.issues;
    return fail('sample', `cannot be read: ${[...path.map(({ key: at }) => String(at)), message].join(': ')}`);
  }
  const { reward, messages, prompt, toolRewards, fault, events, ...counts } = parsed.output;
  return {
    problem,
    group,
    trajectory: { ...(arrays as unknown as SampleArrays), ...counts },
    messages: messages,
    reward: withMissing(reward as unknown as Sample['reward']),
    ...(prompt && { prompt: prompt }),
    ...(toolRewards && { toolRewards }),
    ...(fault && { fault: new UserCodeError(fault.kind, fault.message) }),
    ...(events && { events: events as SampleEvent[] }),
  };
}

const whole = v.pipe(v.number(), v.integer(), v.minValue(0));
const messages = v.array(v.object({ role: v.picklist(['system', 'user', 'assistant', 'tool']), content: v.string() }));
const SAMPLE = v.pipe(
  v.string(),
  v.parseJson(undefined, 'it is not JSON'),
  v.object({
    reward: v.looseObject({ score: v.nullable(v.number()), acc: v.nullable(v.number()) }),
    messages,
    prompt: v.exactOptional(messages),
    stopReason: v.picklist(STOP_REASONS),
    numTurns: whole,
    numToolCalls: whole,
    numToolErrors: whole,
    numToolOutputs: v.exactOptional(whole),
    numTruncatedOutputs: v.exactOptional(whole),
    toolRewards: v.exactOptional(v.record(v.string(), v.number())),
    fault: v.exactOptional(v.object({ kind: v.string(), message: v.string() })),
    events: v.exactOptional(
      v.array(v.looseObject({ kind: v.string(), turn: v.number(), start: v.number(), end: v.number() })),
    ),
  }),
);

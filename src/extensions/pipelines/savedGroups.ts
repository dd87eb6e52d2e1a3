/**
 * Encodes groups in flight as plain JSON for a checkpoint: the parts of each sample generated so far, with per-token
 * arrays as base64.
 */

import * as v from 'valibot';
import { InputError } from '../../errors.ts';
import type { SavedSample } from '../../rollout/agent/record.ts';
import {
  type DrawnSoFar,
  findFault,
  type TokenArrays,
  type TokenFieldName,
  TURN_FIELDS,
  TURN_REQUIRED,
} from '../../rollout/tokenLog.ts';
import type { ToolResult } from '../../rollout/tools/run.ts';
import type { Problem, Reward } from '../../tasks/task.ts';
import type { SavedGroup } from '../../grpo/pipeline/types.ts';
import { decodeArrays, encodeArrays, withMissing } from './sampleCodec.ts';

/** Returns groups as plain JSON. */
export function encodeGroups(groups: readonly SavedGroup[]): unknown {
  return groups.map(({ samples, ...group }) => ({ ...group, samples: samples.map(encodeSaved) }));
}

function encodeSaved({ received, turn, ...rest }: SavedSample): unknown {
  return {
    ...rest,
    received: received.map((entry) => {
      if (!('generation' in entry)) return entry;
      const { stopReason, stopString } = entry.generation;
      const ended = { stopReason, ...(stopString !== undefined && { stopString }) };
      return { asked: entry.asked, generation: { ...encodeArrays(entry.generation), ...ended } };
    }),
    ...(turn && { turn: { asked: turn.asked, drawn: encodeArrays(turn.drawn) } }),
  };
}

/**
 * Decodes what `encodeGroups` returned. Throws InputError for any other state.
 * @param vocabSize number of tokens of the model
 */
export const decodeGroups = (state: unknown, vocabSize: number): SavedGroup[] =>
  readInFlight(groupsSchema(vocabSize), state);

/** Validates a state. Throws an InputError that names the place where the state does not fit `schema`. */
export function readInFlight<T>(schema: v.GenericSchema<unknown, T>, state: unknown): T {
  const result = v.safeParse(schema, state);
  if (result.success) return result.output;
  const [{ path = [], message }] = result.issues;
  const place = ['parts.inFlight', ...path.map(({ key }) => String(key))].join('.');
  throw new InputError(
    `The samples in flight of the checkpoint cannot be read: ${place} of its trainer_state.json: ${message}. Remove ` +
      '"inFlight" from "parts" to restart these samples, or resume from another checkpoint.',
  );
}

/** Schema of an object with per-token arrays in base64, for a model with `vocabSize` tokens. */
export const arraysSchema = <T extends Partial<TokenArrays>>(
  vocabSize: number,
  required: readonly TokenFieldName[],
  names = required,
): v.GenericSchema<unknown, T> =>
  v.pipe(
    v.object(Object.fromEntries(names.map((name) => [name, v.exactOptional(v.string())]))),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const arrays = decodeArrays(dataset.value);
      const fault = findFault(arrays, required, vocabSize);
      if (!fault) return arrays as T;
      addIssue({ message: fault.join(' ') });
      return NEVER;
    }),
  );

export const whole = v.pipe(v.number(), v.integer(), v.minValue(0));

/** A missing number is null in JSON. It is NaN if the state was not converted to JSON text and back. */
const amount = v.nullable(v.union([v.number(), v.nan()]));
/** Schema of a saved reward. Missing numbers become NaN. */
export const savedReward = v.pipe(
  v.looseObject({ score: amount, acc: amount }),
  v.transform((value) => withMissing(value as unknown as Reward)),
);

function groupsSchema(vocabSize: number) {
  const drawn = arraysSchema<DrawnSoFar>(vocabSize, TURN_REQUIRED, TURN_FIELDS);
  const end = v.object({
    stopReason: v.picklist(['stop', 'stop_string', 'length', 'aborted']),
    stopString: v.exactOptional(v.string()),
  });
  const generation = v.intersect([drawn, end]);
  const result = v.object({
    text: v.string(),
    truncated: v.exactOptional(v.literal(true)),
    failed: v.boolean(),
    failure: v.exactOptional(v.picklist(['parse_error', 'tool_failure'])),
    reward: v.exactOptional(v.pipe(v.number(), v.finite())),
    done: v.exactOptional(v.boolean()),
  } satisfies Record<keyof ToolResult, v.GenericSchema>);
  const tools = v.object({ rewards: v.record(v.string(), v.number()), errors: whole });
  const sample = v.object({
    received: v.array(
      v.union([v.object({ asked: whole, generation }), v.object({ asked: whole, results: v.array(result) })]),
    ),
    turn: v.exactOptional(v.object({ asked: whole, drawn })),
    toolStates: v.exactOptional(v.record(v.string(), v.unknown())),
    scored: v.exactOptional(v.object({ tools, reward: savedReward })),
  });
  const message = v.object({ role: v.string(), content: v.string() });
  const problem = v.looseObject({ id: v.string(), messages: v.array(message), answer: v.string() });
  return v.array(
    v.object({
      number: whole,
      index: v.exactOptional(whole),
      problem: v.pipe(
        problem,
        v.transform((value) => value as unknown as Problem),
      ),
      step: whole,
      samples: v.array(sample),
    }),
  );
}

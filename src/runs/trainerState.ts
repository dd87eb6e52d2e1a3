/** trainer_state.json: the counters of a run. A file is refused if no run can have written its content. */

import * as v from 'valibot';
import type { TrainerState } from '../grpo/types.ts';
import { InputError } from '../errors.ts';

const count = v.pipe(
  v.number('must be a whole number from 0'),
  v.safeInteger('must be a whole number'),
  v.minValue(0, 'must not be below 0'),
);
const finite = v.pipe(v.number('must be a number'), v.finite('must be finite'));

/** Rejects keys that no version has written, because a run must not resume from a state that is only partly understood. */
const schema = v.strictObject({
  step: count,
  problems: count,
  updates: count,
  klCoef: v.optional(v.pipe(finite, v.minValue(0, 'must not be below 0'))),
  carried: v.optional(v.array(count, 'must be a list of problem numbers')),
  entropy: v.optional(v.strictObject({ coeff: finite, acts: v.boolean('must be true or false') })),
  roleBaselines: v.optional(v.record(v.string(), finite)),
  changes: v.optional(v.array(v.strictObject({ step: count, key: v.string(), from: finite, to: finite }))),
  parts: v.optional(v.record(v.string(), v.unknown())),
}) satisfies v.GenericSchema<unknown, unknown>;

/**
 * Parses a state. Throws InputError whose message starts with `path`.
 * @param step step in the folder's name, which must equal that in the state; undefined = not checked
 */
export function parseTrainerState(text: string, path: string, step: number | undefined): TrainerState {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new InputError(`${path} is not JSON (${(error as Error).message}): the checkpoint is damaged.`);
  }
  const result = v.safeParse(schema, json);
  if (!result.success) {
    const [issue] = result.issues;
    const key = v.getDotPath(issue);
    const what = key === null ? 'must be an object of counters' : `"${key}" ${reason(issue)}`;
    throw new InputError(`${path}: ${what}; no run of this version wrote that, so the checkpoint is damaged or newer.`);
  }
  const state = result.output as TrainerState;
  if (step !== undefined && state.step !== step)
    throw new InputError(
      `${path} is of step ${state.step}, but its folder is of step ${step}: the checkpoint is damaged.`,
    );
  return state;
}

function reason({ message, input, expected }: v.BaseIssue<unknown>): string {
  if (expected === 'never') return 'is not known';
  if (input === undefined) return 'is missing';
  const found = JSON.stringify(input);
  return `is ${found.length > 40 ? `${found.slice(0, 40)}...` : found}; it ${message}`;
}

/** Converts the episodes of clients to plain JSON for a checkpoint: open episodes, and those that wait for their group or step. */

import * as v from 'valibot';
import { arraysSchema, encodeArrays, readInFlight, savedReward, whole } from '../pipelines/index.ts';
import { type DrawnSoFar, TURN_FIELDS, TURN_REQUIRED } from '../../rollout/tokenLog.ts';

/** Returns the schema of the stored episodes. Token ids must be below `vocabSize`. */
function episodesSchema(vocabSize: number) {
  const called = v.object({ id: v.string(), name: v.string() });
  const message = v.object({
    role: v.picklist(['system', 'user', 'assistant', 'tool']),
    content: v.string(),
    name: v.exactOptional(v.string()),
    toolCalls: v.exactOptional(v.array(v.object({ ...called.entries, arguments: v.string() }))),
    toolCallId: v.exactOptional(v.string()),
  });
  const reply = v.object({
    call: v.exactOptional(whole),
    messages: whole,
    tokens: whole,
    rendered: v.string(),
    content: v.string(),
    calls: v.array(called),
    isOpen: v.boolean(),
    endToken: v.optional(v.number()),
    stopReason: v.picklist(['stop', 'stop_string', 'length', 'aborted']),
  });
  const drawn = v.pipe(
    v.intersect([
      arraysSchema<DrawnSoFar>(vocabSize, TURN_REQUIRED, TURN_FIELDS),
      v.object({ mask: v.pipe(v.string(), v.regex(/^[01]*$/)) }),
    ]),
    v.check(
      (value) => value.mask.length === value.tokenIds.length,
      ({ input: { mask, tokenIds } }) => `mask has ${mask.length} numbers for ${tokenIds.length} tokens`,
    ),
  );
  const sequence = v.pipe(
    v.intersect([
      arraysSchema<{ promptIds: Uint32Array }>(vocabSize, ['promptIds']),
      v.object({
        number: v.exactOptional(whole),
        toolsKey: v.string(),
        messages: v.array(message),
        replies: v.array(reply),
        shared: whole,
        drawn,
      }),
    ]),
    v.check(
      ({ messages, replies, shared, drawn: { tokenIds } }) =>
        shared < replies.length &&
        replies.every((one) => one.messages <= messages.length && one.tokens <= tokenIds.length),
      'its replies are not among its messages and tokens',
    ),
  );
  const trajectory = v.object({
    id: v.pipe(v.string(), v.regex(/^[0-9a-f]{24}$/)),
    group: v.exactOptional(v.string()),
    name: v.exactOptional(v.string()),
    owner: v.exactOptional(v.string()),
    start: v.array(message),
    key: v.tuple([whole, whole, whole]),
    result: v.exactOptional(savedReward),
    sequences: v.pipe(v.array(sequence), v.minLength(1)),
  });
  const group = v.object({
    key: v.string(),
    owner: v.exactOptional(v.string()),
    number: whole,
    joined: whole,
    isComplete: v.boolean(),
    members: v.array(trajectory),
    rewarded: v.array(v.string()),
  });
  const streams = v.object({ version: whole, given: v.array(whole) });
  const counts = v.record(v.string(), v.number());
  return v.object({
    ...{ version: whole, number: whole, streams: v.exactOptional(streams), counts },
    groups: v.array(group),
  });
}

/** State of the clients' episodes in a checkpoint. */
export type SavedEpisodes = v.InferOutput<ReturnType<typeof episodesSchema>>;
export type SavedTrajectory = SavedEpisodes['groups'][number]['members'][number];
export type SavedSequence = SavedTrajectory['sequences'][number];

/** Converts episodes to plain JSON. */
export const encodeEpisodes = ({ groups, ...rest }: SavedEpisodes): unknown => ({
  ...rest,
  groups: groups.map((group) => ({ ...group, members: group.members.map(encodeTrajectory) })),
});

const encodeTrajectory = ({ sequences, ...rest }: SavedTrajectory): unknown => ({
  ...rest,
  sequences: sequences.map(({ promptIds, drawn: { mask, ...drawn }, ...sequence }) => ({
    ...{ ...sequence, ...encodeArrays({ promptIds }) },
    drawn: { mask, ...encodeArrays(drawn) },
  })),
});

/** Validates what `encodeEpisodes` has returned. Throws InputError for any other value. */
export const decodeEpisodes = (state: unknown, vocabSize: number): SavedEpisodes =>
  readInFlight(episodesSchema(vocabSize), state);

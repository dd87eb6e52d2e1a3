/** A group of episodes: its key, its samples for a training step, and its state in a checkpoint. */

import { hash } from '../../tasks/random.ts';
import type { Message } from '../../tasks/task.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { type ChatMessage, firstMessages } from './api/messages.ts';
import type { CallRequest } from './api/request.ts';
import type { SavedEpisodes } from './saved.ts';
import type { ClientTrajectory } from './trajectory.ts';

export interface Group {
  key: string;
  /** Client that owns all episodes of the group. */
  owner?: string;
  /** Number of the group, unique in the run. */
  number: number;
  /** Part of the random keys of the group's episodes. See RandomStreams. */
  stream: number;
  members: Set<ClientTrajectory>;
  rewarded: ClientTrajectory[];
  /** Number of episodes that have joined the group so far, including aborted ones. */
  joined: number;
  timer?: ReturnType<typeof setTimeout> | undefined;
}

type SavedGroup = SavedEpisodes['groups'][number];

/** Assigns a random stream to each group. Under the same weights, no two groups get the same stream. */
export class RandomStreams {
  /** The newest weight version, and the streams that were assigned under that version. */
  #version = 0;
  #given = new Set<number>();

  /**
   * Starts a new weight version. Ignores an older version, to which the weights return after a failed step or a device loss.
   * @param alive groups that keep their streams
   */
  advance(version: number, alive: readonly Group[]): void {
    if (version <= this.#version) return;
    this.#version = version;
    this.#given = new Set(alive.map(({ stream }) => stream));
  }

  /**
   * Returns the random stream of a new group. For the first group of a question under new weights, the stream depends only on the question
   * and the weight version, so that a run can be repeated. For later groups it also depends on `number`, which is unique in the run.
   */
  take(key: string, version: number, number: number): number {
    // The streams of older versions have been forgotten. One of them may be the stream of the first group with this key, so a later group
    // of an older version never gets that stream.
    let stream = version < this.#version ? undefined : hash(key, version, 0);
    for (let attempt = 0; stream === undefined || this.#given.has(stream); attempt++)
      stream = hash(key, version, number + 1, attempt);
    this.#given.add(stream);
    return stream;
  }

  /** Returns the weight version and the assigned random streams, for a checkpoint. */
  save(): NonNullable<SavedEpisodes['streams']> {
    return { version: this.#version, given: [...this.#given] };
  }

  /** Counts the random streams in a checkpoint as assigned. `alive`: groups in memory, which keep their streams. */
  restore({ version, given }: NonNullable<SavedEpisodes['streams']>, alive: readonly Group[]): void {
    this.advance(version, alive);
    for (const stream of given) this.#given.add(stream);
  }
}

/**
 * Returns a key that is equal for all episodes of one group: its name, or else the first messages, the tools and the `user` of the request.
 */
export function keyOf({ messages, toolsKey, user = '' }: CallRequest, group: string | undefined): string {
  if (group !== undefined) return JSON.stringify(['name', group]);
  return JSON.stringify(['messages', firstMessages(messages), toolsKey, user]);
}

/** Returns a group's episodes as training samples. An episode with forks has several, one after the other. */
export function samplesOf({ number, rewarded }: Group, group: number): Sample[] {
  return rewarded.flatMap((episode) => {
    const { start, groupName, result } = episode;
    const problem = { id: groupName ?? `client-${number}`, messages: start.map(messageOf), answer: '' };
    return episode.rows().map(({ sequence, trajectory }, row): Sample => {
      const messages = sequence.messages.slice(start.length).map(messageOf);
      return { problem, group, trajectory, messages, reward: result!, events: [], ...(row > 0 && { fork: true }) };
    });
  });
}

/** True if all episodes of a group have sampled the same tokens. Their comparison then teaches nothing. */
export function hasEqualReplies({ rewarded }: Group): boolean {
  const texts = rewarded.map((episode) =>
    episode.rows().map(({ trajectory: { responseIds, mask } }) => responseIds.filter((_, t) => mask[t] === 1).join()),
  );
  return rewarded.length > 1 && new Set(texts.map((rows) => rows.join(';'))).size === 1;
}

/** Returns the number of weight updates between the sampling of the oldest token and the start of step `step`. */
export function stalenessMax(samples: readonly Sample[], step: number): number {
  const versions = samples.flatMap(({ trajectory: { mask, weightVersions } }) =>
    [...(weightVersions ?? [])].filter((_, t) => mask[t] === 1),
  );
  return step - 1 - versions.reduce((a, b) => Math.min(a, b), step - 1);
}

function messageOf({ role, content, toolCalls = [] }: ChatMessage): Message {
  const calls = toolCalls.map(
    ({ name, arguments: args }) => `<tool_call>{"name": "${name}", "arguments": ${args}}</tool_call>`,
  );
  return { role, content: [content, ...calls].filter((part) => part !== '').join('\n') };
}

/** Returns the state of a group for a checkpoint. Episodes in which no call was answered are omitted. */
export function saveGroup({ key, owner, number, joined, members, rewarded }: Group, isComplete: boolean): SavedGroup {
  const saved = [...members].flatMap((one) => one.save() ?? []);
  const own = owner !== undefined && { owner };
  return { key, ...own, number, joined, isComplete, members: saved, rewarded: rewarded.map(({ id }) => id) };
}

/** Creates a group from its state in a checkpoint and its restored episodes. */
export function restoreGroup(
  { key, owner, number, joined, rewarded }: SavedGroup,
  stream: number,
  episodes: ClientTrajectory[],
): Group {
  const byId = new Map(episodes.map((one) => [one.id, one]));
  const ended = rewarded.flatMap((id) => byId.get(id) ?? []);
  const own = owner !== undefined && { owner };
  return { key, ...own, number, stream, joined, members: new Set(episodes), rewarded: ended };
}

/** A group of episodes: its key, its samples for a step, and its state in a checkpoint. */

import { hash } from '../../tasks/random.ts';
import type { Message } from '../../tasks/task.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { type ChatMessage, firstMessages } from './api/messages.ts';
import type { CallRequest } from './api/request.ts';
import type { SavedEpisodes } from './saved.ts';
import type { ClientTrajectory } from './trajectory.ts';

export interface Group {
  key: string;
  /** Caller to which all its episodes belong. */
  owner?: string;
  /** Number of the group, unique in the run. Tells groups apart in a step. */
  number: number;
  /** Part of the random keys of the episodes that join. See RandomStreams. */
  stream: number;
  members: Set<ClientTrajectory>;
  rewarded: ClientTrajectory[];
  /** Number of episodes that ever joined. */
  joined: number;
  timer?: ReturnType<typeof setTimeout>;
}

type SavedGroup = SavedEpisodes['groups'][number];

/** Assigns a separate random stream to every group: under the same weights, no two groups sample with the same keys. */
export class RandomStreams {
  /** The newest weight version, and the streams assigned under it. */
  #version = 0;
  #given = new Set<number>();

  /** Starts a new weight version. Does nothing for older versions, which return after a failed step or a device loss. */
  advance(version: number, alive: readonly Group[]): void {
    if (version <= this.#version) return;
    this.#version = version;
    this.#given = new Set(alive.map(({ stream }) => stream));
  }

  /**
   * Returns a stream for group `number`. For the first group of a question under new weights, the stream depends only on the question and
   * the version. For any other group it depends on the number, which is unique in the run.
   */
  take(key: string, version: number, number: number): number {
    // Streams of older weights are forgotten, so the first group of a question can have had its stream already.
    let stream = version < this.#version ? undefined : hash(key, version, 0);
    for (let attempt = 0; stream === undefined || this.#given.has(stream); attempt++)
      stream = hash(key, version, number + 1, attempt);
    this.#given.add(stream);
    return stream;
  }

  /** Returns the state for a checkpoint. */
  save(): NonNullable<SavedEpisodes['streams']> {
    return { version: this.#version, given: [...this.#given] };
  }

  /** Adds the streams of a checkpoint. */
  restore({ version, given }: NonNullable<SavedEpisodes['streams']>, alive: readonly Group[]): void {
    this.advance(version, alive);
    for (const stream of given) this.#given.add(stream);
  }
}

/** Returns the key that all episodes of one group share. */
export function keyOf({ messages, toolsKey, user = '' }: CallRequest, group: string | undefined): string {
  if (group !== undefined) return JSON.stringify(['name', group]);
  return JSON.stringify(['messages', firstMessages(messages), toolsKey, user]);
}

/** Returns the rows of a group's episodes. Rows of one episode are adjacent. */
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

/** True if the sampled tokens of all episodes are equal, so that nothing can be compared. */
export function hasEqualReplies({ rewarded }: Group): boolean {
  const texts = rewarded.map((episode) =>
    episode.rows().map(({ trajectory: { responseIds, mask } }) => responseIds.filter((_, t) => mask[t] === 1).join()),
  );
  return rewarded.length > 1 && new Set(texts.map((rows) => rows.join(';'))).size === 1;
}

/** Returns the number of updates between the weights that sampled the oldest token and those from which step `step` starts. */
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

/** Returns the group for a checkpoint. Episodes without an answered call are omitted. */
export function saveGroup({ key, owner, number, joined, members, rewarded }: Group, isComplete: boolean): SavedGroup {
  const saved = [...members].flatMap((one) => one.save() ?? []);
  const own = owner !== undefined && { owner };
  return { key, ...own, number, joined, isComplete, members: saved, rewarded: rewarded.map(({ id }) => id) };
}

/** Creates a group of restored episodes. */
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

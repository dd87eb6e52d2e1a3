/** A group of episodes: what tells it from others, what a step is given of it, what a checkpoint holds of it. */

import { hash } from '../../tasks/random.ts';
import type { Message } from '../../tasks/task.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { type ChatMessage, firstMessages } from './api/messages.ts';
import type { CallRequest } from './api/request.ts';
import type { SavedEpisodes } from './saved.ts';
import type { ClientTrajectory } from './trajectory.ts';

export interface Group {
  key: string;
  /** Numbers of groups tell them apart in a step. */
  number: number;
  /** Part of the random keys of episodes that join; see RandomStreams. */
  stream: number;
  members: Set<ClientTrajectory>;
  rewarded: ClientTrajectory[];
  /** Episodes that ever joined. */
  joined: number;
  timer?: ReturnType<typeof setTimeout>;
}

type SavedGroup = SavedEpisodes['groups'][number];

/** Gives every group a random stream of its own: under one set of weights, no two groups draw by the same keys. */
export class RandomStreams {
  /** The newest weights, and the streams that were given under them. */
  #version = 0;
  #given = new Set<number>();

  /** Begins with new weights. Older weights, which return after a failed step or a lost device, change nothing. */
  advance(version: number, alive: readonly Group[]): void {
    if (version <= this.#version) return;
    this.#version = version;
    this.#given = new Set(alive.map(({ stream }) => stream));
  }

  /**
   * Returns a stream for group `number`. The first group of a question under new weights has a stream that follows from the
   * question and the version alone. Every other stream follows from the number, which no other group of the run has.
   */
  take(key: string, version: number, number: number): number {
    // The streams of older weights are forgotten: one of their questions may have had its first group already.
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

/** What episodes of one group have in common. */
export function keyOf({ messages, toolsKey, user = '' }: CallRequest, group: string | undefined): string {
  if (group !== undefined) return JSON.stringify(['name', group]);
  return JSON.stringify(['messages', firstMessages(messages), toolsKey, user]);
}

/** Rows of a group's episodes, those of one beside each other. */
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

/** Updates between the weights that drew the oldest token and those that step `step` starts from. */
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

/** Returns the group as a checkpoint holds it, without members if no call was answered. */
export function saveGroup({ key, number, joined, members, rewarded }: Group, isComplete: boolean): SavedGroup {
  const saved = [...members].flatMap((one) => one.save() ?? []);
  return { key, number, joined, isComplete, members: saved, rewarded: rewarded.map(({ id }) => id) };
}

/** A group of these episodes, which were restored. */
export function restoreGroup(
  { key, number, joined, rewarded }: SavedGroup,
  stream: number,
  episodes: ClientTrajectory[],
): Group {
  const byId = new Map(episodes.map((one) => [one.id, one]));
  const ended = rewarded.flatMap((id) => byId.get(id) ?? []);
  return { key, number, stream, joined, members: new Set(episodes), rewarded: ended };
}

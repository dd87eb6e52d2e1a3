/** A group of episodes: what tells it from others, what a step is given of it, what a checkpoint holds of it. */

import type { Message } from '../../tasks/task.ts';
import type { Sample } from '../update/batch.ts';
import { type ChatMessage, firstMessages } from './api/messages.ts';
import type { CallRequest } from './api/request.ts';
import type { SavedEpisodes } from './saved.ts';
import { type ClientTrajectory, toolsKeyOf } from './trajectory.ts';

export interface Group {
  key: string;
  /** Numbers of groups tell them apart in a step. */
  number: number;
  members: Set<ClientTrajectory>;
  rewarded: ClientTrajectory[];
  /** Episodes that ever joined. */
  joined: number;
  timer?: ReturnType<typeof setTimeout>;
}

type SavedGroup = SavedEpisodes['groups'][number];

/** What episodes of one group have in common. */
export function keyOf({ messages, tools, user = '' }: CallRequest, group: string | undefined): string {
  if (group !== undefined) return JSON.stringify(['name', group]);
  return JSON.stringify(['messages', firstMessages(messages), toolsKeyOf(tools), user]);
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

function messageOf({ role, content, toolCalls = [] }: ChatMessage): Message {
  const calls = toolCalls.map(
    ({ name, arguments: args }) => `<tool_call>{"name": "${name}", "arguments": ${args}}</tool_call>`,
  );
  return { role, content: [content, ...calls].filter((part) => part !== '').join('\n') };
}

/** As a checkpoint holds it; without members where no call was answered. */
export function saveGroup({ key, number, joined, members, rewarded }: Group, isComplete: boolean): SavedGroup {
  const saved = [...members].flatMap((one) => one.save() ?? []);
  return { key, number, joined, isComplete, members: saved, rewarded: rewarded.map(({ id }) => id) };
}

/** A group of these episodes, which were restored. */
export function restoreGroup({ key, number, joined, rewarded }: SavedGroup, episodes: ClientTrajectory[]): Group {
  const byId = new Map(episodes.map((one) => [one.id, one]));
  const ended = rewarded.flatMap((id) => byId.get(id) ?? []);
  return { key, number, joined, members: new Set(episodes), rewarded: ended };
}

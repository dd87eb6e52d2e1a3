/**
 * adventure: a few rooms, a locked door, its key, and the exit behind the door. Every map can be solved by construction. The model acts
 * with the tools go, take, use and look, or with a line of text ("go north"). Key, door and exit each add a part of the reward, in the turn
 * that reached them. Held-out maps are never trained on.
 */

import { checkOptions } from './checkOptions.ts';
import type { Message, Problem } from '../../tasks/problem.ts';
import type { Rng } from '../../tasks/random.ts';
import { splitTask } from './split.ts';
import type { SyncTask } from '../../tasks/task.ts';
import type { ToolOutput } from '../../tasks/tool.ts';
import { defineEnvironment } from '../../tasks/environments/environment.ts';
import { environmentTask } from '../../tasks/environments/environmentTask.ts';

export const ADVENTURE_OPTIONS = {
  /** Minimum and maximum number of rooms on a map, including the exit. */
  minRooms: 4,
  maxRooms: 6,
  /** Number of useless items on the map. */
  decoys: 1,
};

const REWARDS = { key: 0.2, door: 0.3, exit: 0.5 };
const ROOMS = ['attic', 'cellar', 'den', 'garden', 'hall', 'kitchen', 'library', 'office', 'pantry', 'studio'];
const DECOYS = ['lamp', 'rope', 'coin'];
const DIRECTIONS = ['north', 'east', 'south', 'west'] as const;
type Direction = (typeof DIRECTIONS)[number];
const OPPOSITE = { north: 'south', east: 'west', south: 'north', west: 'east' } as const;

interface Room {
  name: string;
  /** Index of the adjacent room in each direction. */
  exits: Partial<Record<Direction, number>>;
  items: string[];
}

/** The model starts in room 0; the exit is the last room, and the door to it is locked. */
export interface AdventureMap {
  rooms: Room[];
  /** Position of the locked door: a room, and the direction in which the exit is. */
  door: { room: number; direction: Direction };
}

export interface AdventureProblem extends Problem {
  map: AdventureMap;
}

/** State of a sample: where the model is, what it has, and what it has changed on the map. */
export interface Adventure {
  room: number;
  has: string[];
  /** Items that the model has taken, in any room. They have left their rooms. */
  taken: string[];
  doorIsOpen: boolean;
  isOut: boolean;
}

/** Creates the adventure task. Throws InputError if an option is out of its range. */
export function adventureTask(options: Partial<typeof ADVENTURE_OPTIONS> = {}): SyncTask {
  const o = { ...ADVENTURE_OPTIONS, ...options };
  checkOptions('adventure', o, {
    minRooms: [3, ROOMS.length],
    maxRooms: [3, ROOMS.length],
    decoys: [0, DECOYS.length],
  });
  const { train, heldOut } = splitTask<AdventureProblem>('adventure', (rng) => {
    const map = drawMap(rng, o);
    const messages: Message[] = [{ role: 'user', content: 'Find the way out.' }];
    const template = `${map.rooms.length} rooms`;
    return { problem: { messages, answer: 'out', template, map }, key: JSON.stringify(map) };
  });
  const environment = defineEnvironment({
    name: 'adventure',
    maxResponseLength: 400,
    reset: (problem) => {
      const state = begin();
      return { state, observation: look(state, mapOf(problem)) };
    },
    step: (text, { state, problem }) => act(state, mapOf(problem), text),
    tools: {
      go: {
        description: 'Goes to the next room.',
        parameters: {
          type: 'object',
          properties: { direction: { type: 'string', enum: DIRECTIONS } },
          required: ['direction'],
        },
        execute: ({ direction }, { state, problem }) => act(state, mapOf(problem), `go ${direction}`),
      },
      take: {
        description: 'Takes a thing that lies in the room.',
        parameters: { type: 'object', properties: { item: { type: 'string' } }, required: ['item'] },
        execute: ({ item }, { state, problem }) => act(state, mapOf(problem), `take ${item}`),
      },
      use: {
        description: 'Uses a thing that you have.',
        parameters: { type: 'object', properties: { item: { type: 'string' } }, required: ['item'] },
        execute: ({ item }, { state, problem }) => act(state, mapOf(problem), `use ${item}`),
      },
      look: {
        description: 'Says where you are and what is there.',
        parameters: { type: 'object', properties: {} },
        execute: (_, { state, problem }) => look(state, mapOf(problem)),
      },
    },
    reward: ({ has, taken, doorIsOpen, isOut }) => ({
      score: 0,
      acc: isOut ? 1 : 0,
      extra: { key: taken.includes('key') ? 1 : 0, door: doorIsOpen ? 1 : 0, items: has.length },
    }),
    save: (state) => state,
    restore: (saved) => saved as Adventure,
  });
  return environmentTask({ name: 'adventure', environments: [environment], train, heldOut, demonstrate, tokenizer });
}

const tokenizer = { vocabSize: 384, wordShare: 0.9 };
const mapOf = (problem: Problem) => (problem as AdventureProblem).map;

/**
 * Draws the rooms of a map as a walk on a grid, each next to an earlier one. The last room is the exit, from which no other room can be
 * reached.
 */
function drawMap(rng: Rng, { minRooms, maxRooms, decoys }: typeof ADVENTURE_OPTIONS): AdventureMap {
  const count = rng.int(minRooms, maxRooms);
  const names = shuffled(ROOMS, rng);
  const rooms: Room[] = [{ name: names[0], exits: {}, items: [] }];
  let door: AdventureMap['door'] = { room: 0, direction: 'north' };
  while (rooms.length < count) {
    const room = rng.int(0, rooms.length - 1);
    const direction = rng.pick(DIRECTIONS);
    if (rooms[room].exits[direction] !== undefined) continue;
    rooms[room].exits[direction] = rooms.length;
    rooms.push({ name: names[rooms.length], exits: { [OPPOSITE[direction]]: room }, items: [] });
    door = { room, direction };
  }
  const drop = (item: string) => rng.pick(rooms.slice(0, -1)).items.push(item);
  ['key', ...shuffled(DECOYS, rng).slice(0, decoys)].forEach(drop);
  return { rooms, door };
}

function shuffled<T>(items: readonly T[], rng: Rng): T[] {
  const left = [...items];
  return items.map(() => left.splice(rng.int(0, left.length - 1), 1)[0]);
}

/** Returns the state at the start of a game. */
export const begin = (): Adventure => ({ room: 0, has: [], taken: [], doorIsOpen: false, isOut: false });

const itemsHere = ({ room, taken }: Adventure, { rooms }: AdventureMap) =>
  rooms[room].items.filter((item) => !taken.includes(item));

/** Describes the room, its exits, the items in it, and the items that the model has. */
function look(state: Adventure, map: AdventureMap): string {
  const { name, exits } = map.rooms[state.room];
  const isLocked = state.room === map.door.room && !state.doorIsOpen;
  const here = itemsHere(state, map);
  return [
    `You are in the ${name}.`,
    `Exits: ${DIRECTIONS.filter((direction) => exits[direction] !== undefined).join(', ')}.`,
    ...(isLocked ? [`The door ${map.door.direction} is locked.`] : []),
    ...(here.length > 0 ? [`Here: ${here.join(', ')}.`] : []),
    ...(state.has.length > 0 ? [`You have: ${state.has.join(', ')}.`] : []),
  ].join('\n');
}

/** Executes a command, such as "go north". Returns what the model then sees, or why the command cannot be executed. */
export function act(state: Adventure, map: AdventureMap, line: string): ToolOutput {
  const [verb, noun = ''] = line.trim().toLowerCase().split(/\s+/);
  const { room } = state;
  // exits[noun] alone would be wrong, because a noun such as "constructor" is a property of every object.
  const there = DIRECTIONS.includes(noun as Direction) ? map.rooms[room].exits[noun as Direction] : undefined;
  const seen = (reward?: number) => ({ text: look(state, map), ...(reward !== undefined && { reward }) });
  const isDoor = room === map.door.room && noun === map.door.direction;
  switch (verb) {
    case 'look':
      return seen();
    case 'go':
      if (there === undefined) return 'There is no way.';
      if (isDoor && !state.doorIsOpen) return 'The door is locked.';
      state.room = there;
      state.isOut = there === map.rooms.length - 1;
      return state.isOut ? { text: 'You are out.', reward: REWARDS.exit, done: true } : seen();
    case 'take':
      if (!itemsHere(state, map).includes(noun)) return 'There is no such thing here.';
      state.taken.push(noun);
      state.has.push(noun);
      return seen(noun === 'key' ? REWARDS.key : undefined);
    case 'use':
      if (!state.has.includes(noun)) return 'You do not have that.';
      if (noun !== 'key' || room !== map.door.room) return 'Nothing happens.';
      state.has = state.has.filter((item) => item !== 'key');
      state.doorIsOpen = true;
      return seen(REWARDS.door);
    default:
      return 'Say go, take, use or look.';
  }
}

/** Returns every command that would have an effect now. */
export function linesOf(state: Adventure, map: AdventureMap): string[] {
  const { exits } = map.rooms[state.room];
  return [
    ...itemsHere(state, map).map((item) => `take ${item}`),
    ...(state.has.includes('key') && state.room === map.door.room ? ['use key'] : []),
    ...DIRECTIONS.filter((direction) => exits[direction] !== undefined).map((direction) => `go ${direction}`),
  ];
}

/** Returns the shortest list of commands that leads to the exit (breadth-first search). Undefined if the exit is unreachable. */
export function solve(from: Adventure, map: AdventureMap): string[] | undefined {
  const seen = new Set([JSON.stringify(from)]);
  let front = [{ state: from, lines: [] as string[] }];
  while (front.length > 0) {
    const next: typeof front = [];
    for (const { state, lines } of front) {
      if (state.isOut) return lines;
      for (const line of linesOf(state, map)) {
        const after = structuredClone(state);
        act(after, map, line);
        const key = JSON.stringify(after);
        if (!seen.has(key)) next.push({ state: after, lines: [...lines, line] });
        seen.add(key);
      }
    }
    front = next;
  }
  return undefined;
}

/** Maximum number of commands in a demonstration. */
const MOST_LINES = 12;

/** Returns a demonstration of the shortest way out. With probability `errorRate`, a command is replaced by another one with an effect. */
function demonstrate(problem: Problem, rng: Rng, errorRate: number): Message[] {
  const map = mapOf(problem);
  const state = begin();
  const messages: Message[] = [{ role: 'user', content: look(state, map) }];
  for (let lines = 0; lines < MOST_LINES && !state.isOut; lines++) {
    const content = rng.uniform() < errorRate ? rng.pick(linesOf(state, map)) : solve(state, map)![0];
    const said = act(state, map, content);
    messages.push({ role: 'assistant', content });
    if (!state.isOut && lines + 1 < MOST_LINES)
      messages.push({ role: 'user', content: typeof said === 'string' ? said : (said as { text: string }).text });
  }
  return messages;
}

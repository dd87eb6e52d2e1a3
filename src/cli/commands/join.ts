/** `webgrpo join`: generates samples for a room on this machine. */

import { hostname } from 'node:os';
import { InputError, StoppedError } from '../../errors.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import {
  checkRoomTask,
  configOfRoom,
  joinRoom,
  type OpenedRoom,
  roomEngine,
  type RoomEngine,
  roomSpec,
  type Status,
} from '../../extensions/rooms/index.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { onInterrupt, STOPPED_EXIT_CODE } from '../process/interrupt.ts';
import { currentIo } from '../process/io.ts';
import { connectInNode } from '../room/openRoom.ts';
import { openTask } from '../run/openTask.ts';
import { say, sayPassing } from '../run/progress.ts';
import { openEngine } from '../run/session.ts';
import { plural } from '../../ui/format.ts';

export const join: Command = {
  summary: 'generate samples for a room on another machine',
  usage: ['join nats://192.168.1.7:4222 --code SUA...', 'join ADDRESS --code CODE --module my-task.js'],
  reads: ['words'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    code: { value: 'CODE', help: 'the join code that the room printed (or WEBGRPO_CODE)' },
    name: { value: 'NAME', help: "what the room calls this machine (default: the machine's name)" },
    module: { value: 'FILE', help: 'your copy of the task module that the room names; the room does not send it' },
  },
  details: () =>
    `Ctrl-C leaves the room: groups in flight go to other workers, and the exit code is ${STOPPED_EXIT_CODE}. No code of the room is run here, and no file of this machine is read for it.`,
  async run({ positionals, flags }, io) {
    const [address, ...more] = positionals;
    if (address === undefined || more.length > 0)
      throw new InputError('No room was given. Give its address, as printed by "webgrpo room".');
    const { code = currentIo().env['WEBGRPO_CODE'], module, name = hostname() } = flags;
    if (typeof code !== 'string')
      throw new InputError('--code is missing. Give --code CODE, as printed by "webgrpo room".');
    const leaving = new AbortController();
    let isWorking = false;
    let giveUp!: (reason: Error) => void;
    const givenUp = new Promise<never>((_, reject) => (giveUp = reject));
    const removeHandler = onInterrupt(() => {
      leaving.abort();
      if (isWorking) say('Leaving the room. Unfinished groups go to other workers.');
      else giveUp(new StoppedError('Stopped before a group of the room arrived.'));
    });
    try {
      const joined = joinRoom({
        ...{ connect: connectInNode, address, code, name: nameFor(String(name)), signal: leaving.signal },
        open: (room) => openFor(room, typeof module === 'string' ? module : undefined),
        onStatus(status) {
          isWorking = true;
          sayPassing(statusLine(status));
        },
      });
      const done = await Promise.race([joined, givenUp]);
      io.text(`generated ${plural(done.tokens, 'token')}, ${done.tokensPerS.toFixed(1)} tokens/s, on ${done.adapter}`);
      io.result(done);
      return leaving.signal.aborted ? STOPPED_EXIT_CODE : 0;
    } finally {
      removeHandler();
    }
  },
};

const statusLine = ({ groups, tokens, tokensPerS, version }: Status): string =>
  `${plural(groups.length, 'group')} in flight, ${plural(tokens, 'token')}, ${tokensPerS.toFixed(1)} tokens/s, weights of step ${version}`;

/** Replaces characters that are not allowed in the name of a room's worker. */
const nameFor = (name: string): string => name.replace(/[^\w .:@-]/g, '_').slice(0, 64) || 'worker';

/** Creates an engine that only generates. Throws InputError if `checkRoomTask` refuses the room's task. */
async function openFor(room: OpenedRoom, module: string | undefined): Promise<RoomEngine> {
  const config = configOfRoom(room, say);
  const task = await openTask(taskFor(config.task, module), config.reward);
  try {
    const { model, sizes } = await roomSpec(room, config);
    say(`room: ${config.name}, task ${task.name}`);
    const engine = await openEngine(model, sizes);
    const { description, vendor } = engine.adapter;
    const destroy = () => {
      task.close?.();
      engine.destroy();
    };
    return roomEngine({ config, engine, task }, { adapter: description || vendor, destroy });
  } catch (error) {
    task.close?.();
    throw error;
  }
}

/** Returns the room's task. If it is a module, the user's own copy (`module`) is loaded. Throws InputError. */
export function taskFor(task: TrainConfig['task'], module: string | undefined): TrainConfig['task'] {
  checkRoomTask(task);
  if (task.module !== undefined && module === undefined)
    throw new InputError(`The room's task is the module ${task.module}. Give your own copy of it with --module FILE.`);
  if (task.module === undefined && module !== undefined)
    throw new InputError(`The room's task is ${task.name}, which is not a module. Leave --module ${module} out.`);
  return { ...task, ...(module !== undefined && { module }) };
}

/** Who may enter a room on a server of its own: the controller, those who have the join code (to ask), and the workers that were let in. */

import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InputError } from '../../errors.ts';
import {
  type Access,
  type Admission,
  idOf,
  JOIN_RIGHTS,
  type Joining,
  newUserKey,
  workerRights,
} from '../../extensions/rooms/index.ts';
import { NatsServer, type ServerOptions, type User } from './natsServer.ts';

/** What a controller that comes back must know again. */
interface Kept {
  /** Seeds of two keys. */
  controller: string;
  joinCode: string;
  /** Public keys. */
  workers: string[];
}

/** A server with its users, kept in its folder. */
export class OwnRoom implements Access {
  readonly server: NatsServer;
  readonly #kept: Kept;
  readonly #maxWorkers: number;
  readonly #file: string;
  #changing: Promise<unknown> = Promise.resolve();

  private constructor(server: NatsServer, kept: Kept, file: string, maxWorkers: number) {
    this.server = server;
    this.#kept = kept;
    this.#file = file;
    this.#maxWorkers = maxWorkers;
  }

  /** Throws InputError as NatsServer.start, and for a file of its folder that cannot be read. */
  static async start(options: ServerOptions, maxWorkers = 64): Promise<OwnRoom> {
    const file = join(options.folder, 'room.json');
    const kept = await readKept(file);
    const server = await NatsServer.start(options, await usersOf(kept));
    const room = new OwnRoom(server, kept, file, maxWorkers);
    await room.#write();
    return room;
  }

  /** What lets others ask to join. */
  get joinCode(): string {
    return this.#kept.joinCode;
  }

  /** The controller's own. */
  get controllerCode(): string {
    return this.#kept.controller;
  }

  /** Where the room is full, those that have left or are silent make room: one that comes back has to join again. */
  admit({ key }: Joining, isSilent: (worker: string) => boolean = () => false): Promise<Admission> {
    return this.#change(async () => {
      const { workers } = this.#kept;
      if (workers.includes(key)) return { worker: key, own: true };
      const staying = workers.length < this.#maxWorkers ? workers : workers.filter((worker) => !isSilent(worker));
      if (staying.length >= this.#maxWorkers)
        return { refused: `The room has ${staying.length} workers, and takes no more.` };
      await this.#setWorkers([...staying, key]);
      return { worker: key, own: true };
    });
  }

  revoke(worker: string): Promise<void> {
    return this.#change(() => this.#setWorkers(this.#kept.workers.filter((key) => key !== worker)));
  }

  /** Stops the server and forgets the admitted workers: the next run admits workers again. */
  async close(): Promise<void> {
    await this.server.stop();
    await this.#change(async () => {
      this.#kept.workers = [];
      await this.#write();
    });
  }

  async #setWorkers(workers: string[]): Promise<void> {
    this.#kept.workers = workers;
    await this.#write();
    await this.server.setUsers(await usersOf(this.#kept));
  }

  /** One after another. */
  #change<T>(work: () => Promise<T>): Promise<T> {
    const changed = this.#changing.then(work);
    this.#changing = changed.catch(() => {});
    return changed;
  }

  async #write(): Promise<void> {
    await writeFile(this.#file, JSON.stringify(this.#kept, undefined, 2), { mode: 0o600 });
  }
}

async function usersOf({ controller, joinCode, workers }: Kept): Promise<User[]> {
  return [
    { id: await idOf(controller) },
    { id: await idOf(joinCode), rights: JOIN_RIGHTS },
    ...workers.map((id) => ({ id, rights: workerRights(id) })),
  ];
}

async function readKept(file: string): Promise<Kept> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch {
    return { controller: (await newUserKey()).seed, joinCode: (await newUserKey()).seed, workers: [] };
  }
  try {
    const { controller, joinCode, workers } = JSON.parse(text) as Kept;
    await Promise.all([idOf(controller), idOf(joinCode)]);
    return { controller, joinCode, workers: workers.map(String) };
  } catch {
    throw new InputError(`${file} cannot be read; delete it for a room with a new join code.`);
  }
}

/** This page as a worker of a room: the engine in a worker of its own, the connection and the tasks' tools in the page. */

import { InputError } from '../../src/errors.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import {
  checkRoomTask,
  configOfRoom,
  type Connect,
  connectByWebSocket,
  joinRoom,
  type OpenedRoom,
  roomEngine,
  type RoomEngine,
  roomSpec,
  type Status,
} from '../../src/extensions/rooms/index.ts';
import { adapterName } from './adapter.ts';
import { startEngineWorker } from './engineWorker.ts';
import { openTask } from './openTask.ts';

interface WorkOptions {
  address: string;
  code: string;
  /** Leaves. */
  signal: AbortSignal;
  /** Each time that a try was sent. */
  onTry(): void;
  onStatus(status: Status): void;
  /** The connection was lost, which is tried again until it is back: then true. */
  onNet(isThere: boolean): void;
}

/** A net that goes without a word is missed after two of these. */
const PING_MS = 10_000;

/** Works until `signal` aborts or the run is over. Throws InputError if it is not let in, is left out, or cannot do what the room asks for. */
export async function workForRoom({ onTry, onNet, ...joining }: WorkOptions): Promise<Status> {
  const lost = new AbortController();
  const signal = AbortSignal.any([joining.signal, lost.signal]);
  const done = await joinRoom({
    ...{ ...joining, signal, connect: heard(onNet), name: 'page' },
    open: async (room) => counting(await openFor(room, (error) => lost.abort(error)), onTry),
  });
  lost.signal.throwIfAborted();
  return done;
}

const heard =
  (onNet: WorkOptions['onNet']): Connect =>
  async (options) => {
    const connection = await connectByWebSocket({ ...options, pingInterval: PING_MS }).catch((error: unknown) => {
      throw certificateSentence(error, String(options.servers)) ?? error;
    });
    void (async () => {
      for await (const { type } of connection.status())
        if (type === 'disconnect' || type === 'reconnect') onNet(type === 'reconnect');
    })();
    return connection;
  };

/** A page is not told why a WebSocket did not open: a server that is away looks like a certificate that the browser does not trust. */
function certificateSentence(error: unknown, address: string): InputError | undefined {
  const url = new URL(address);
  if (url.protocol !== 'wss:' || (error as Error).name !== 'ConnectionError') return undefined;
  return new InputError(
    `No secure connection to ${address}. The server may be down or unreachable, or its certificate may not be trusted. ` +
      `Open https://${url.host}/ in another tab, accept the certificate if the browser warns, and join again.`,
    { cause: error },
  );
}

const counting = ({ generate, ...engine }: RoomEngine, onTry: () => void): RoomEngine => ({
  ...engine,
  generate: (prompt, worker, put, signal) =>
    generate(
      prompt,
      worker,
      async (record) => {
        await put(record);
        onTry();
      },
      signal,
    ),
});

/** @param onLost hears that the GPU or its worker is gone */
async function openFor(room: OpenedRoom, onLost: (error: unknown) => void): Promise<RoomEngine> {
  const config = configOfRoom(room);
  checkRoomTask(config.task);
  if (config.task.module !== undefined)
    throw new InputError(
      `The room's task is the module ${config.task.module}, which a page cannot load for a room. Use "webgrpo join --module FILE".`,
    );
  const task = await openTask(config);
  const { worker, died } = startEngineWorker();
  const close = () => {
    task.close?.();
    worker.terminate();
  };
  try {
    const { model, sizes } = await roomSpec(room, config);
    const engine = await Promise.race([createRemoteEngine(worker, { ...sizes, ...model }), died]);
    Promise.race([died, engine.untilLost()]).catch(onLost);
    return roomEngine({ config, engine, task }, { adapter: adapterName(engine.description.adapter), destroy: close });
  } catch (error) {
    close();
    throw error;
  }
}

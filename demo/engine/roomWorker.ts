/** This page as a worker of a room. The engine is in a separate worker; the connection and the tasks' tools are in the page. */

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
  /** Aborts when the visitor leaves. */
  signal: AbortSignal;
  /** Called after each try that was sent to the room. */
  onTry(): void;
  onStatus(status: Status): void;
  /** Called with false when the connection was lost, which is then retried, and with true when it is back. */
  onNet(isThere: boolean): void;
}

/** Milliseconds between pings of the server. After two missed pings, the connection counts as lost. */
const PING_MS = 10_000;

/**
 * Works until `signal` aborts or the run ends. Throws InputError if the worker is not admitted, is excluded, or cannot do what the room
 * needs.
 */
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

/**
 * Returns an error for a WebSocket that did not open. A page cannot find out the cause: an unreachable server looks like a certificate that
 * the browser does not trust.
 */
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

/** @param onLost called when the GPU or its worker is lost */
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

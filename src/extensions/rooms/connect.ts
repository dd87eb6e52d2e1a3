/** Connections to a room's server: NATS is loaded when it is used, in Node over TCP, in a page over a WebSocket. */

import type { Consumer, JsMsg } from '@nats-io/jetstream';
import type { Authenticator, ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { InputError } from '../../errors.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { inboxOf } from './names.ts';

/** Opens a connection. */
export type Connect = (options: ConnectionOptions) => Promise<NatsConnection>;

/** A key pair: the seed is secret, the public part is the name of its owner. */
export interface UserKey {
  seed: string;
  id: string;
}

export async function newUserKey(): Promise<UserKey> {
  const { nkeys } = await import('@nats-io/nats-core');
  const pair = nkeys.createUser();
  return { seed: new TextDecoder().decode(pair.getSeed()), id: pair.getPublicKey() };
}

/** The public part of a seed. Throws InputError if it is not one. */
export async function idOf(seed: string): Promise<string> {
  const { nkeys } = await import('@nats-io/nats-core');
  try {
    return nkeys.fromSeed(new TextEncoder().encode(seed)).getPublicKey();
  } catch {
    throw new InputError(
      `The join code cannot be read. Give the 58 letters starting with SU, as printed by "webgrpo room".`,
    );
  }
}

/** Over a WebSocket, ws:// or wss://: in pages, their workers, and Node from 22 on. */
export const connectByWebSocket: Connect = async (options) => {
  const { wsconnect } = await import('@nats-io/nats-core');
  return wsconnect(options);
};

export interface Credential {
  address: string;
  /** A seed, or `user:password` on a server that has its own users. */
  code: string;
  /** Whose inbox answers arrive at. */
  inbox: string;
  name: string;
  /** What the code is shown to, and what it is, in sentences. Default: a room, and its join code. */
  called?: { server: string; code: string };
}

const ROOM = { server: 'room', code: 'this join code. Use the one that it printed' };
const ANSWER_MS = 10_000;

/** Connects, and reconnects whenever the connection is lost. Throws InputError if the server is not there or does not know the code. */
export async function enter(connect: Connect, credential: Credential): Promise<NatsConnection> {
  const { address, code, inbox, name, called = ROOM } = credential;
  try {
    return await connect({
      servers: address,
      name,
      ...(await authentication(code)),
      inboxPrefix: inboxOf(inbox),
      maxReconnectAttempts: -1,
      reconnectTimeWait: 500,
      timeout: ANSWER_MS,
    });
  } catch (error) {
    if (error instanceof InputError) throw error;
    const { message = String(error) } = error as Error;
    const isRefused = /authorization|permission|nkey/i.test(`${(error as Error).name} ${message}`);
    const what = isRefused
      ? `The ${called.server} at ${address} does not know ${called.code}.`
      : `No ${called.server} answers at ${address} (${message}); ${called === ROOM ? 'is "webgrpo room"' : 'is it'} running there, and can this machine reach it?`;
    throw new InputError(what, { cause: error });
  }
}

/** How a code is shown to the server. Throws InputError if it is not one. */
export async function authentication(
  code: string,
): Promise<{ authenticator: Authenticator } | { user: string; pass: string }> {
  const [user, pass] = code.split(/:(.*)/s);
  if (pass !== undefined) return { user, pass };
  const { nkeyAuthenticator } = await import('@nats-io/nats-core');
  await idOf(code);
  return { authenticator: nkeyAuthenticator(new TextEncoder().encode(code)) };
}

/** Tries again while the server or the net is away, until `signal` aborts. */
export async function untilDone<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (!isPassing(error)) throw error;
      await pause(300, signal);
    }
  }
}

/** What a server that restarts, a net that is gone, a thread that was busy, or a stream that is full for now makes of a request. */
function isPassing(error: unknown): boolean {
  const { name = '', message = '' } = error as Error;
  if (/permissions violation/i.test(message)) return false;
  return (
    isMissing(error) ||
    /^(TimeoutError|NoRespondersError|RequestError|ConnectionError|JetStreamNotEnabled|JetStreamStatusError|ClosedConnectionError)$/.test(
      name,
    ) ||
    /maximum (bytes|messages) exceeded|temporarily unavailable|insufficient|not enabled|heartbeats missed|server shutdown/i.test(
      message,
    )
  );
}

/** There is no such consumer: never, or for the moment in which the controller makes it again. */
export const isMissing = (error: unknown): boolean => (error as { code?: number }).code === CONSUMER_NOT_FOUND;
/** NATS's code. */
const CONSUMER_NOT_FOUND = 10_014;

/** A pull ends after this time without messages; NATS itself waits without end for one whose connection went away meanwhile. */
const PULL_MS = 1000;
const PULL_ENDS_MS = 10_000;

/** Hears of at most `most` messages; resolves when there are no more for now, or `signal` aborts. What comes after that is given to others. */
export async function pull(
  consumer: Consumer,
  most: number,
  signal: AbortSignal,
  each: (message: JsMsg) => void,
): Promise<void> {
  signal.throwIfAborted();
  const messages = await consumer.fetch({ max_messages: most, expires: PULL_MS });
  const end = () => void messages.close();
  const unlink = onAbort(signal, end);
  const timer = setTimeout(end, PULL_ENDS_MS);
  if (signal.aborted) end();
  try {
    for await (const message of messages) each(message);
  } finally {
    clearTimeout(timer);
    unlink();
  }
}

/** Resolves after `ms`. Rejects with the signal's reason if it aborts meanwhile. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const unlink = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
    const timer = setTimeout(() => {
      unlink();
      resolve();
    }, ms);
  });
}

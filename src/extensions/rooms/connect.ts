/** Connections to a room's server. NATS is loaded on first use; it runs over TCP in Node and over a WebSocket in a page. */

import type { Consumer, JsMsg } from '@nats-io/jetstream';
import type { Authenticator, ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { describe, InputError } from '../../errors.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { inboxOf } from './names.ts';

/** Opens a connection. */
export type Connect = (options: ConnectionOptions) => Promise<NatsConnection>;

/** A key pair. The seed is secret; the public key is the name of its owner. */
export interface UserKey {
  seed: string;
  id: string;
}

/** Creates a key pair. */
export async function newUserKey(): Promise<UserKey> {
  const { nkeys } = await import('@nats-io/nats-core');
  const pair = nkeys.createUser();
  return { seed: new TextDecoder().decode(pair.getSeed()), id: pair.getPublicKey() };
}

/** Returns the public key of a seed. Throws InputError if the text is not a seed. */
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

/** Connects over a WebSocket, ws:// or wss://: in pages, their workers, and Node 22 or later. */
export const connectByWebSocket: Connect = async (options) => {
  const { wsconnect } = await import('@nats-io/nats-core');
  return wsconnect(options);
};

export interface Credential {
  address: string;
  /** A seed, or `user:password` for a server with its own users. */
  code: string;
  /** Owner of the inbox in which answers arrive. */
  inbox: string;
  name: string;
  /** Names of server and code in error messages. Default: a room, and its join code. */
  called?: { server: string; code: string };
}

const ROOM = { server: 'room', code: 'this join code. Use the one that it printed' };
const ANSWER_MS = 10_000;

/**
 * Connects, and reconnects whenever the connection is lost. Throws InputError if the server is not reachable or does not accept the code.
 */
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
    const message = describe(error); // a WebSocket gives no reason
    const isLate = /authentication timeout/i.test(message); // an AuthorizationError too
    const isRefused = !isLate && /authorization|permission|nkey/i.test(`${(error as Error).name} ${message}`);
    const what = isRefused
      ? `The ${called.server} at ${address} does not know ${called.code}.`
      : `No ${called.server} answers at ${address} (${message}). Check that ${called === ROOM ? '"webgrpo room"' : 'it'} runs there and that this machine can reach it.`;
    throw new InputError(what, { cause: error });
  }
}

/** Returns the authenticator for a code. Throws InputError if the text is not a code. */
export async function authentication(
  code: string,
): Promise<{ authenticator: Authenticator } | { user: string; pass: string }> {
  const [user, pass] = code.split(/:(.*)/s);
  if (pass !== undefined) return { user, pass };
  const { nkeyAuthenticator } = await import('@nats-io/nats-core');
  await idOf(code);
  return { authenticator: nkeyAuthenticator(new TextEncoder().encode(code)) };
}

/** Retries while the server or the network is unavailable, until `signal` aborts. */
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

/** True if a retry can succeed: the server restarts, the network is down, a thread was busy, or a stream is full for now. */
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

/** True if the consumer does not exist, permanently or while the controller recreates it. */
export const isMissing = (error: unknown): boolean => (error as { code?: number }).code === CONSUMER_NOT_FOUND;
/** NATS's error code. */
const CONSUMER_NOT_FOUND = 10_014;

/** Milliseconds without messages after which a pull ends. NATS would otherwise wait forever after a lost connection. */
const PULL_MS = 1000;
const PULL_ENDS_MS = 10_000;

/** Receives at most `most` messages. Resolves when the stream is empty for now, or `signal` aborts. Later messages go to other workers. */
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

/** Resolves after `ms`. Rejects with the signal's reason if the signal aborts first. */
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

/**
 * Connects to the NATS server of a room: over TCP in Node, over a WebSocket in a page. The NATS packages are loaded with the first
 * connection.
 */

import type { Consumer, JsMsg } from '@nats-io/jetstream';
import type { Authenticator, ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { describe, InputError } from '../../errors.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { inboxOf } from './names.ts';

/** Opens a connection. */
export type Connect = (options: ConnectionOptions) => Promise<NatsConnection>;

/** An NKey pair. The seed is secret; the public key (`id`) identifies its owner. */
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

/** Returns the public key of an NKey seed. Throws InputError if the text is not a seed. */
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

/** Connects over a WebSocket (ws:// or wss://), in pages, workers and Node 22 or later. */
export const connectByWebSocket: Connect = async (options) => {
  const { wsconnect } = await import('@nats-io/nats-core');
  return wsconnect(options);
};

export interface Credential {
  address: string;
  /** An NKey seed, or `user:password` for a server that has its own users. */
  code: string;
  /** Name from which the subject of replies to this client is derived; see `inboxOf`. */
  inbox: string;
  name: string;
  /** How error messages call the server and the code. Default: "room" and "this join code". */
  called?: { server: string; code: string };
}

const ROOM = { server: 'room', code: 'this join code. Use the one that it printed' };
const ANSWER_MS = 10_000;

/**
 * Connects to a server, and reconnects whenever the connection is lost. Throws InputError if the server cannot be reached, or refuses the
 * credential's code.
 */
export async function enter(connect: Connect, credential: Credential): Promise<NatsConnection> {
  const { address, code, inbox, name, called = ROOM } = credential;
  try {
    const connection = await connect({
      servers: address,
      name,
      ...(await authentication(code)),
      inboxPrefix: inboxOf(inbox),
      maxReconnectAttempts: -1,
      reconnectTimeWait: 500,
      timeout: ANSWER_MS,
      ignoreAuthErrorAbort: true, // NATS would also stop reconnecting to a server that is too busy to check a code in time
    });
    void closeIfRefused(connection);
    return connection;
  } catch (error) {
    if (error instanceof InputError) throw error;
    const message = describe(error); // a WebSocket gives no reason
    const isRefused = !isLate(message) && /authorization|permission|nkey/i.test(`${(error as Error).name} ${message}`);
    const what = isRefused
      ? `The ${called.server} at ${address} does not know ${called.code}.`
      : `No ${called.server} answers at ${address} (${message}). Check that ${called === ROOM ? '"webgrpo room"' : 'it'} runs there and that this machine can reach it.`;
    throw new InputError(what, { cause: error });
  }
}

/** True for the message of a server that did not check a code in time. NATS reports this as an AuthorizationError, too. */
const isLate = (message: string): boolean => /authentication timeout/i.test(message);

/** Closes a connection whose server refuses its code twice in a row when it reconnects, because the server's users have changed. */
async function closeIfRefused(connection: NatsConnection): Promise<void> {
  let refused = 0;
  for await (const status of connection.status()) {
    if (status.type === 'reconnect') refused = 0;
    if (status.type !== 'error' || !/^(Authorization|UserAuthenticationExpired)Error$/.test(status.error.name))
      continue;
    if (!isLate(status.error.message) && ++refused === 2) await connection.close();
  }
}

/** Returns the connection options that authenticate by a code. Throws InputError if the text is not a code. */
export async function authentication(
  code: string,
): Promise<{ authenticator: Authenticator } | { user: string; pass: string }> {
  const [user, pass] = code.split(/:(.*)/s);
  if (pass !== undefined) return { user, pass };
  const { nkeyAuthenticator } = await import('@nats-io/nats-core');
  await idOf(code);
  return { authenticator: nkeyAuthenticator(new TextEncoder().encode(code)) };
}

/**
 * Runs `work`, and repeats it after errors that a retry can solve, until `signal` aborts. Throws InputError if the connection was closed,
 * because it never returns then.
 */
export async function untilDone<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if ((error as Error).name === 'ClosedConnectionError')
        throw new InputError(
          "The room's server no longer accepts this machine, so the connection is closed. Check the server and the code, and start again.",
        );
      if (!isPassing(error)) throw error;
      await pause(300, signal);
    }
  }
}

/** True if a retry can succeed: the server is restarting, the network is down, a thread was busy, or a stream is currently full. */
function isPassing(error: unknown): boolean {
  const { name = '', message = '' } = error as Error;
  if (/permissions violation/i.test(message)) return false;
  return (
    isMissing(error) ||
    /^(TimeoutError|NoRespondersError|RequestError|ConnectionError|JetStreamNotEnabled|JetStreamStatusError)$/.test(
      name,
    ) ||
    /maximum (bytes|messages) exceeded|temporarily unavailable|insufficient|not enabled|heartbeats missed|server shutdown/i.test(
      message,
    )
  );
}

/** True if a NATS consumer does not exist (it may be missing only until the controller has recreated it). */
export const isMissing = (error: unknown): boolean => (error as { code?: number }).code === CONSUMER_NOT_FOUND;
/** Error code of NATS for a consumer that does not exist. */
const CONSUMER_NOT_FOUND = 10_014;

/**
 * The server ends a request for messages after PULL_MS without messages. PULL_ENDS_MS is our own limit, because NATS waits forever after a
 * lost connection.
 */
const PULL_MS = 1000;
const PULL_ENDS_MS = 10_000;

/**
 * Receives at most `most` messages and calls `each` for each of them. Resolves when the stream is currently empty, or when `signal` aborts.
 */
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

/** Resolves after `ms` milliseconds. Rejects with the signal's reason if the signal aborts first. */
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

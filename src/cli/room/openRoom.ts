/** Starts the NATS server of a room, or connects to an existing one. */

import { existsSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { NatsConnection } from '@nats-io/nats-core';
import { InputError } from '../../errors.ts';
import { type Connect, connectByWebSocket, CONTROLLER, enter, idOf, newUserKey } from '../../extensions/rooms/index.ts';
import { say } from '../run/progress.ts';
import { type NatsServer, type ServerOptions, startNatsServer } from './natsServer.ts';

export interface OpenedServer {
  connection: NatsConnection;
  /** Lines to print that tell a user how to join the room. */
  invitation: readonly string[];
  close(): Promise<void>;
}

/** A NATS server with the two users of a room: the controller, and one user that all workers share. */
export interface RoomServer {
  address: string;
  /** Credentials of the two users `controller` and `worker`: an NKey seed, or user:password. */
  controller: string;
  worker: string;
}

/** A NATS server that this process has started. */
export interface OwnServer extends RoomServer, NatsServer {
  /** WebSocket address of the server, for browsers. */
  webSocket: string;
  trusted: TlsSettings | undefined;
}

/** Options of tls.connect. */
interface TlsSettings {
  ca?: string;
  allowPartialTrustChain?: boolean;
  checkServerIdentity?: () => undefined;
}

/**
 * Connects to a NATS server: by TCP for nats:// addresses, by TLS for tls://, by a WebSocket for ws:// and wss://. Throws InputError if the
 * server requires TLS and the address does not say so, or the other way round, or if this Node has no WebSocket.
 */
export const connectInNode: Connect = (options) => connectWith(options);

async function connectWith(options: Parameters<Connect>[0], trusted: TlsSettings = {}): Promise<NatsConnection> {
  const address = String(options.servers);
  const { protocol, hostname } = URL.canParse(address) ? new URL(address) : { protocol: '', hostname: '' };
  if (/^wss?:$/.test(protocol)) {
    if (typeof WebSocket !== 'undefined') return connectByWebSocket(options);
    throw new InputError(
      `Node ${process.versions.node} has no WebSocket for ${address}. Give the room's nats:// or tls:// address.`,
    );
  }
  const { connect } = await import('@nats-io/transport-node');
  // Without `tls`, the client would accept a server that claims to have no TLS. Without `host`, the certificate of a server that is
  // addressed by IP would be checked for the name localhost.
  const tls = { host: hostname.replace(/^\[|\]$/g, ''), ...trusted };
  try {
    return await connect({ ...options, ...(protocol === 'tls:' && { tls }) });
  } catch (error) {
    throw tlsSentence(error as Error & { code?: string }, address, protocol) ?? error;
  }
}

/** Returns an InputError if TLS of server and address differ, or if the certificate is not trusted; undefined for any other error. */
function tlsSentence({ code = '', message }: Error & { code?: string }, address: string, protocol: string) {
  if (/does not support 'tls'/.test(message))
    return new InputError(
      `The server at ${address} does not speak TLS. Join with nats:// on a network that you trust, or start the room with --tls-cert.`,
    );
  if (!/CERT|SIGNATURE|^ERR_TLS/.test(code)) return undefined;
  if (protocol !== 'tls:')
    return new InputError(`The server at ${address} accepts only TLS. Give its address as tls://.`);
  return new InputError(
    `The certificate of ${address} is not trusted here (${message}). Give it, or its issuer, as NODE_EXTRA_CA_CERTS=FILE, and use a host that it is for.`,
  );
}

/** Connects the controller to the server `running`, or to a new server if `running` is undefined. Throws InputError. */
export async function openServer(options: ServerOptions, running?: RoomServer): Promise<OpenedServer> {
  const own = running ? undefined : await startOwn(options);
  const server = (running ?? own)!;
  const { address, controller, worker } = server;
  const connect: Connect = (asked) => connectWith(asked, own?.trusted);
  const entering = (code: string, inbox: string, flag: string) => {
    const called = { server: 'NATS server', code: `user and password of ${flag}. Copy them from its configuration` };
    return enter(connect, { address, code, inbox, name: CONTROLLER, called });
  };
  let connection: NatsConnection | undefined;
  const close = async () => {
    await connection?.close();
    await own?.stop();
  };
  try {
    connection = await entering(controller, CONTROLLER, '--nats');
    await expectJetStream(connection, address);
    await (await entering(worker, 'join', '--worker')).close();
  } catch (error) {
    await close();
    throw error;
  }
  const invitation = [`room: webgrpo join ${reachable(address, options.host)} --code ${worker}`];
  if (own) invitation.push(`room: in a page: ?room=${reachable(own.webSocket, options.host)}#code=${worker}`);
  return { connection, invitation, close };
}

/**
 * Starts a NATS server. Its keys are stored in its folder, so that workers can rejoin a resumed room with the same join code. Throws
 * InputError.
 */
export async function startOwn(options: ServerOptions): Promise<OwnServer> {
  const { folder, host, tls } = options;
  if (!tls && !isLoopback(host))
    say(
      `WARNING: ${host} admits other machines without TLS, so anyone on the network path can read prompts, samples and weights. Give --tls-cert and --tls-key.`,
    );
  const { controller, worker } = await keysIn(folder);
  const server = await startNatsServer(options, { controller: await idOf(controller), worker: await idOf(worker) });
  const at = host === '0.0.0.0' ? '127.0.0.1' : host;
  return {
    ...server,
    address: `${tls ? 'tls' : 'nats'}://${at}:${server.ports.nats}`,
    webSocket: `${tls ? 'wss' : 'ws'}://${at}:${server.ports.webSocket}`,
    controller,
    worker,
    trusted: tls && onlyThis(tls.cert),
  };
}

/**
 * Returns the NKey seeds of the controller and of the user that all workers share. Creates both for a new folder. Throws InputError if the
 * file of the seeds cannot be read.
 */
async function keysIn(folder: string): Promise<{ controller: string; worker: string }> {
  const file = join(folder, 'room.json');
  if (!existsSync(file)) {
    const keys = { controller: (await newUserKey()).seed, joinCode: (await newUserKey()).seed };
    await mkdir(folder, { recursive: true });
    await writeFile(file, JSON.stringify(keys, undefined, 2), { mode: 0o600 });
  }
  try {
    const { controller, joinCode: worker } = JSON.parse(readFileSync(file, 'utf8')) as Record<string, string>;
    await Promise.all([idOf(controller), idOf(worker)]);
    return { controller, worker };
  } catch {
    throw new InputError(`${file} cannot be read. Delete it for a room with a new join code.`);
  }
}

/** Throws InputError if JetStream is not enabled on the server for the controller's user. */
async function expectJetStream(connection: NatsConnection, address: string): Promise<void> {
  try {
    const { jetstreamManager } = await import('@nats-io/jetstream');
    await jetstreamManager(connection);
  } catch (error) {
    throw new InputError(
      `The NATS server at ${address} has no JetStream for the controller's user (${(error as Error).message}). Give its configuration "jetstream {}", and the user's account "jetstream: enabled".`,
      { cause: error },
    );
  }
}

/** Returns TLS settings that trust only this certificate, whatever its names and issuer are. */
function onlyThis(cert: string): TlsSettings {
  return { ca: readFileSync(cert, 'utf8'), allowPartialTrustChain: true, checkServerIdentity: () => undefined };
}

/** Returns the address that other machines can use if the server listens on all addresses (0.0.0.0); otherwise the given URL. */
function reachable(url: string, host: string): string {
  if (host !== '0.0.0.0') return url;
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const outer = addresses.find(({ family, internal }) => family === 'IPv4' && !internal);
  return outer ? url.replace('127.0.0.1', outer.address) : url;
}

const isLoopback = (host: string): boolean => ['localhost', '127.0.0.1', '::1'].includes(host);

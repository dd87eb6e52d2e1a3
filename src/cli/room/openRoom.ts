/** Opens the server of a room: starts one, or connects to an existing one. */

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
  /** Lines that tell a user how to join. */
  invitation: readonly string[];
  close(): Promise<void>;
}

/** A NATS server with the two users of a room. */
export interface RoomServer {
  address: string;
  /** Credentials of the users: seeds, or user:password. */
  controller: string;
  worker: string;
}

/** A server that this process started. */
export interface OwnServer extends RoomServer, NatsServer {
  /** Address for browsers. */
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
 * Connects by TCP, with TLS if the address says so, or by a WebSocket for a ws address. Throws InputError if server and address do not
 * agree on TLS, or if this Node has no WebSocket.
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
  // Without the settings, a server could claim to have no TLS. Without the host, an IP address would be treated as localhost.
  const tls = { host: hostname.replace(/^\[|\]$/g, ''), ...trusted };
  try {
    return await connect({ ...options, ...(protocol === 'tls:' && { tls }) });
  } catch (error) {
    throw tlsSentence(error as Error & { code?: string }, address, protocol) ?? error;
  }
}

/** Returns a message if server and address do not agree on TLS; undefined for another error. */
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

/** Connects the controller to a server: a new one for the room, or a running one. Throws InputError. */
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

/** Starts a nats-server. Its keys are kept in its folder, so that workers recognise a resumed room. Throws InputError. */
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

/** Returns the seeds of the controller and of all workers, new ones for a new folder. Throws InputError if their file cannot be read. */
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

/** Throws InputError if the server has no JetStream. */
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

/** Returns TLS settings that trust exactly this certificate, regardless of its names and issuer. */
function onlyThis(cert: string): TlsSettings {
  return { ca: readFileSync(cert, 'utf8'), allowPartialTrustChain: true, checkServerIdentity: () => undefined };
}

/** Returns the address at which other machines reach a server that listens on all addresses. */
function reachable(url: string, host: string): string {
  if (host !== '0.0.0.0') return url;
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const outer = addresses.find(({ family, internal }) => family === 'IPv4' && !internal);
  return outer ? url.replace('127.0.0.1', outer.address) : url;
}

const isLoopback = (host: string): boolean => ['localhost', '127.0.0.1', '::1'].includes(host);

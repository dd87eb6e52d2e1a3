/** The server of a room: one of its own, or one that runs already. */

import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import type { NatsConnection } from '@nats-io/nats-core';
import { InputError } from '../../errors.ts';
import {
  type Access,
  type Connect,
  connectByWebSocket,
  CONTROLLER,
  type Credential,
  enter,
} from '../../extensions/rooms/index.ts';
import { say } from '../run/progress.ts';
import { OwnRoom } from './access.ts';
import type { ServerOptions } from './natsServer.ts';

export interface OpenedServer {
  connection: NatsConnection;
  access: Access;
  /** How to join, in lines. */
  invitation: readonly string[];
  close(): Promise<void>;
}

export interface RoomSettings {
  server: ServerOptions;
  maxWorkers: number;
  /** One that runs already: its address, the controller's user there, and that of all workers, each as user:password. */
  running?: RunningServer | undefined;
}

/** Options of tls.connect. */
interface TlsSettings {
  ca?: string;
  allowPartialTrustChain?: boolean;
  checkServerIdentity?: () => undefined;
}

interface RunningServer {
  address: string;
  controller: string;
  worker: string;
}

/**
 * By TCP, with TLS where the address says so, or by a WebSocket where it is one. Throws InputError if the two do not agree on TLS, or this
 * Node has no WebSocket.
 */
export const connectInNode: Connect = (options) => connectWith(options);

async function connectWith(options: Parameters<Connect>[0], trusted: TlsSettings = {}): Promise<NatsConnection> {
  const address = String(options.servers);
  const { protocol, hostname } = URL.canParse(address) ? new URL(address) : { protocol: '', hostname: '' };
  if (/^wss?:$/.test(protocol)) {
    if (typeof WebSocket !== 'undefined') return connectByWebSocket(options);
    throw new InputError(
      `Node ${process.versions.node} has no WebSocket for ${address}; give the room's nats:// or tls:// address.`,
    );
  }
  const { connect } = await import('@nats-io/transport-node');
  // Without the settings a server could say that it has no TLS; without the host an IP address would be taken for localhost.
  const tls = { host: hostname.replace(/^\[|\]$/g, ''), ...trusted };
  try {
    return await connect({ ...options, ...(protocol === 'tls:' && { tls }) });
  } catch (error) {
    throw tlsSentence(error as Error & { code?: string }, address, protocol) ?? error;
  }
}

/** Where server and address do not agree on TLS; undefined for another error. */
function tlsSentence({ code = '', message }: Error & { code?: string }, address: string, protocol: string) {
  if (/does not support 'tls'/.test(message))
    return new InputError(
      `The server at ${address} does not speak TLS; join by nats:// where nobody listens on the way, or have the room started with --tls-cert.`,
    );
  if (!/CERT|SIGNATURE|^ERR_TLS/.test(code)) return undefined;
  if (protocol !== 'tls:')
    return new InputError(`The server at ${address} takes connections by TLS alone; give its address as tls://.`);
  return new InputError(
    `The certificate of ${address} is not trusted here (${message}); name it, or who signed it, by NODE_EXTRA_CA_CERTS=FILE, and use a host that it is for.`,
  );
}

/** Throws InputError. */
export async function openServer({ server, maxWorkers, running }: RoomSettings): Promise<OpenedServer> {
  return running ? openRunning(running) : openOwn(server, maxWorkers);
}

async function openOwn(server: ServerOptions, maxWorkers: number): Promise<OpenedServer> {
  const room = await OwnRoom.start(server, maxWorkers);
  const { url: address, webSocketUrl } = room.server;
  try {
    if (!server.tls && !isLoopback(server.host))
      say(
        `WARNING: ${server.host} lets other machines in without TLS: whoever listens on the way reads prompts, samples and weights. Give --tls-cert and --tls-key.`,
      );
    const connect: Connect = (options) => connectWith(options, server.tls && onlyThis(server.tls.cert));
    const connection = await enter(connect, { address, code: room.controllerCode, ...AS_CONTROLLER });
    const [node, page] = [address, webSocketUrl].map((url) => reachable(url, server.host));
    return {
      connection,
      access: room,
      invitation: [
        `room: webgrpo join ${node} --code ${room.joinCode}`,
        `room: in a page: ?room=${page}#code=${room.joinCode}`,
      ],
      async close() {
        await connection.close();
        await room.close();
      },
    };
  } catch (error) {
    await room.server.stop();
    throw error;
  }
}

async function openRunning({ address, controller, worker }: RunningServer): Promise<OpenedServer> {
  const called = (user: string) => ({ server: 'NATS server', code: `${user}; they are in its configuration` });
  const own: Credential = { address, code: controller, ...AS_CONTROLLER };
  const connection = await enter(connectInNode, { ...own, called: called('user and password of --nats') });
  try {
    await expectJetStream(connection, address);
    const theirs: Credential = { address, code: worker, inbox: 'join', name: CONTROLLER };
    const asWorker = await enter(connectInNode, { ...theirs, called: called('user and password of --worker') });
    await asWorker.close();
  } catch (error) {
    await connection.close();
    throw error;
  }
  const access: Access = {
    admit: async ({ key }) => ({ worker: key, own: false }),
    revoke: async () => say('its user is that of all workers, so the server still lets it in; its samples are dropped'),
  };
  const invitation = [`room: at ${address}; webgrpo join ${address} --code ${worker}`];
  return { connection, access, invitation, close: () => connection.close() };
}

const AS_CONTROLLER = { inbox: CONTROLLER, name: CONTROLLER };

/** Throws InputError. */
async function expectJetStream(connection: NatsConnection, address: string): Promise<void> {
  try {
    const { jetstreamManager } = await import('@nats-io/jetstream');
    await jetstreamManager(connection);
  } catch (error) {
    throw new InputError(
      `The NATS server at ${address} has no JetStream for the controller's user (${(error as Error).message}); give its configuration "jetstream {}", and the user's account "jetstream: enabled".`,
      { cause: error },
    );
  }
}

/** The server that was just started here, whatever names its certificate has, and whatever its signer. */
function onlyThis(cert: string): TlsSettings {
  return { ca: readFileSync(cert, 'utf8'), allowPartialTrustChain: true, checkServerIdentity: () => undefined };
}

/** Returns the address by which other machines reach a server that listens on all addresses. */
function reachable(url: string, host: string): string {
  if (host !== '0.0.0.0') return url;
  const addresses = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const outer = addresses.find(({ family, internal }) => family === 'IPv4' && !internal);
  return outer ? url.replace('127.0.0.1', outer.address) : url;
}

const isLoopback = (host: string): boolean => ['localhost', '127.0.0.1', '::1'].includes(host);

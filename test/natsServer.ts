/** A nats-server for tests, on free ports. */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/nats-core';
import { findNatsServer, type ServerOptions } from '../src/cli/room/natsServer.ts';
import { type OwnServer, startOwn } from '../src/cli/room/openRoom.ts';
import { type Connect, enter } from '../src/extensions/rooms/connect.ts';
import { CONTROLLER, WORKER_RIGHTS } from '../src/extensions/rooms/names.ts';

export const connectByTcp: Connect = (options) => connect(options);

/** Connects to a server with a self-signed certificate. */
const connectByTls =
  (cert: string): Connect =>
  async (options) => {
    const tls = { ca: await readFile(cert, 'utf8'), host: '127.0.0.1' }; // by default, the name would be localhost
    return connect({ ...options, tls });
  };

/** Returns false, after a loud message, if no nats-server is installed and it cannot be installed. */
export function hasNatsServer(): boolean {
  try {
    findNatsServer();
    return true;
  } catch (error) {
    if (process.env['REQUIRE_NATS'] === '1') throw error;
    console.error(`\n*** SKIPPED: tests of rooms. ${(error as Error).message} ***\n`);
    return false;
  }
}

/** The server of a room, which can be killed and restarted on the same ports and folder. */
export class TestRoom {
  readonly folder: string;
  #server: OwnServer;
  readonly #options: Partial<ServerOptions>;

  private constructor(folder: string, server: OwnServer, options: Partial<ServerOptions>) {
    this.folder = folder;
    this.#server = server;
    this.#options = options;
  }

  static async start(options: Partial<ServerOptions> = {}): Promise<TestRoom> {
    const folder = await mkdtemp(join(tmpdir(), 'webgrpo-room-'));
    const own = { folder, host: '127.0.0.1', port: -1, webSocketPort: -1, ...options };
    return new TestRoom(folder, await startOwn(own), options);
  }

  get server(): OwnServer {
    return this.#server;
  }

  get address(): string {
    return this.#server.address;
  }

  get code(): string {
    return this.#server.worker;
  }

  /** Connects as the controller. */
  connect(): Promise<NatsConnection> {
    const { address, controller: code } = this.#server;
    const { tls } = this.#options;
    const connecting = tls ? connectByTls(tls.cert) : connectByTcp;
    return enter(connecting, { address, code, inbox: CONTROLLER, name: CONTROLLER });
  }

  /** Kills the server, as a crash would, and restarts it. */
  async crash(): Promise<void> {
    const { nats: port, webSocket: webSocketPort } = this.#server.ports;
    await this.#server.stop('SIGKILL');
    const options = { folder: this.folder, host: '127.0.0.1', ...this.#options, port, webSocketPort };
    this.#server = await startOwn(options);
  }

  /** Deletes everything that a run has stored on the server, for the next run. */
  async empty(): Promise<void> {
    const connection = await this.connect();
    const { streams } = await jetstreamManager(connection);
    for await (const { config } of streams.list()) await streams.delete(config.name);
    await connection.close();
  }

  async end(): Promise<void> {
    await this.#server.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** True if this machine has openssl, which `selfSigned` runs. */
export const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

/** Creates a self-signed certificate for 127.0.0.1 only. */
export function selfSigned(folder: string): { cert: string; key: string } {
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const asked = '-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=room';
  const more = ['-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert];
  execFileSync('openssl', ['req', ...asked.split(' '), ...more], { stdio: 'ignore' });
  return { cert, key };
}

/** Starts a NATS server that stands for an existing one, with two users set up by its administrator, as docs/guides/rooms.md describes. */
export async function runningServer({ jetStream = true } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'webgrpo-nats-'));
  const list = (subjects: string[]) => `{ allow: ${JSON.stringify(subjects)} }`;
  const { publish, subscribe } = WORKER_RIGHTS;
  const lines = [
    'listen: "127.0.0.1:-1"', // any free port
    ...(jetStream ? [`jetstream { store_dir: "${folder}" }`] : []),
    `accounts { ROOM { ${jetStream ? 'jetstream: enabled, ' : ''}users: [`,
    '  { user: controller, password: "c:1" }',
    `  { user: worker, password: w, permissions: { publish: ${list(publish)}, subscribe: ${list(subscribe)} } }`,
    '] } }',
  ];
  await writeFile(join(folder, 'nats.conf'), lines.join('\n'));
  const server = spawn(findNatsServer(), ['-c', join(folder, 'nats.conf')], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((done) => server.once('exit', done));
  const port = await new Promise<string>((ready, fail) => {
    let said = '';
    server.stderr.on('data', (data) => {
      said += String(data);
      if (said.includes('Server is ready')) ready(/Listening for client connections on .*:(\d+)/.exec(said)![1]);
    });
    void ended.then(() => fail(new Error(said)));
  });
  return {
    ...{ address: `nats://127.0.0.1:${port}`, controller: 'controller:c:1', worker: 'worker:w' },
    async end(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM') {
      server.kill(signal);
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A `nats-server` of a room's own: found, configured, started, told of its users, ended. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { InputError } from '../../errors.ts';
import { currentIo } from '../process/io.ts';
import { natsServerPath } from './natsServerPath.mjs';
import type { Rights } from '../../extensions/rooms/index.ts';

/** A user that the server knows by the public part of a key. Without `rights` it may do anything. */
export interface User {
  id: string;
  rights?: Rights;
}

export interface ServerOptions {
  /** Folder of its configuration and its streams. */
  folder: string;
  host: string;
  /** For Node, and for the WebSockets of browsers; -1 = any that is free. */
  port: number;
  webSocketPort: number;
  /** Files of a certificate and its key. */
  tls?: { cert: string; key: string } | undefined;
  /** Bytes of a message; larger ones are refused, and end their connection. */
  maxPayload?: number;
  maxConnections?: number;
}

const MIB = 2 ** 20;
const START_MS = 15_000;
const RELOAD_MS = 10_000;
/** Lines of its log that an error tells. */
const TOLD_LINES = 3;

/** Throws InputError if it is not installed. */
export function findNatsServer(): string {
  const found = natsServerPath({ env: currentIo().env });
  if (found) return found;
  throw new InputError(
    'nats-server is not installed; "apt-get install nats-server" brings it (or https://nats.io/download), or give --nats URL of one that runs.',
  );
}

export class NatsServer {
  /** Messages that were larger than it takes. */
  oversized = 0;
  readonly #options: ServerOptions;
  readonly #process: ChildProcess;
  readonly #ended: Promise<void>;
  #users: readonly User[];
  #log: string[] = [];
  #reloads = 0;
  #ports = { nats: 0, webSocket: 0 };

  private constructor(options: ServerOptions, users: readonly User[]) {
    const { folder } = options;
    this.#options = options;
    this.#users = users;
    // In a group of its own: Ctrl-C in a terminal must not end it before the run is saved.
    this.#process = spawn(findNatsServer(), ['-c', configFile(folder), '--ports_file_dir', folder], {
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true,
    });
    this.#ended = new Promise((done) => {
      this.#process.once('exit', () => done());
      this.#process.once('error', () => done());
    });
    createInterface({ input: this.#process.stderr! }).on('line', (line) => this.#hear(line));
    process.once('exit', this.#kill);
  }

  /** Throws InputError if it does not start: a port that is taken, a certificate that cannot be read. */
  static async start(options: ServerOptions, users: readonly User[]): Promise<NatsServer> {
    await mkdir(options.folder, { recursive: true });
    await endOrphan(options.folder);
    await writeFile(configFile(options.folder), configText(options, users), { mode: 0o600 });
    const server = new NatsServer(options, users);
    const ready = await server.#until(() => server.#log.some((line) => line.includes('Server is ready')), START_MS);
    if (!ready) {
      await server.stop();
      const why = server.#log.filter((line) => /\[(FTL|ERR)\]|:\d+:\d+:|^nats-server:/.test(line)).slice(-TOLD_LINES);
      throw new InputError(
        `nats-server did not start: ${why.join(' ') || 'it said nothing'}; see ${configFile(options.folder)}.`,
      );
    }
    await server.#readPorts();
    return server;
  }

  /** For Node. */
  get url(): string {
    return `${this.#options.tls ? 'tls' : 'nats'}://${hostOf(this.#options)}:${this.#ports.nats}`;
  }

  /** For browsers. */
  get webSocketUrl(): string {
    return `${this.#options.tls ? 'wss' : 'ws'}://${hostOf(this.#options)}:${this.#ports.webSocket}`;
  }

  get ports(): Readonly<{ nats: number; webSocket: number }> {
    return this.#ports;
  }

  get users(): readonly User[] {
    return this.#users;
  }

  /** Those it knows from now on; connections of others end. */
  async setUsers(users: readonly User[]): Promise<void> {
    this.#users = users;
    const options = { ...this.#options, port: this.#ports.nats, webSocketPort: this.#ports.webSocket };
    await writeFile(configFile(options.folder), configText(options, users), { mode: 0o600 });
    const before = this.#reloads;
    this.#process.kill('SIGHUP');
    if (!(await this.#until(() => this.#reloads > before, RELOAD_MS)))
      throw new Error(`nats-server did not take its new users: ${this.#log.slice(-TOLD_LINES).join(' ')}`);
  }

  /** SIGKILL ends it as a crash would. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    process.off('exit', this.#kill);
    this.#process.kill(signal);
    await this.#ended;
  }

  readonly #kill = () => void this.#process.kill('SIGKILL');

  #hear(line: string): void {
    this.#log = [...this.#log, line].slice(-100);
    if (line.includes('Reloaded server configuration') || line.includes('Failed to reload')) this.#reloads++;
    if (line.includes('maximum payload exceeded')) this.oversized++;
  }

  async #until(isSo: () => boolean, ms: number): Promise<boolean> {
    const end = performance.now() + ms;
    while (!isSo() && performance.now() < end) {
      if (this.#process.exitCode !== null || this.#process.signalCode !== null) return false;
      await sleep(5);
    }
    return isSo();
  }

  async #readPorts(): Promise<void> {
    const file = join(this.#options.folder, `nats-server_${this.#process.pid}.ports`);
    const text = () => (existsSync(file) ? readFileSync(file, 'utf8') : '');
    await this.#until(() => text().trimEnd().endsWith('}'), START_MS); // it is ready before it has written it
    const ports = JSON.parse(text()) as Record<'nats' | 'websocket', string[]>;
    const portOf = ([url]: string[]) => Number(new URL(url.replace(/^\w+:/, 'http:')).port);
    this.#ports = { nats: portOf(ports.nats), webSocket: portOf(ports.websocket) };
    await rm(file, { force: true });
  }
}

/** A controller that was killed has left its server behind, which holds the ports and the streams. */
async function endOrphan(folder: string): Promise<void> {
  if (!existsSync(pidFile(folder))) return;
  const pid = Number(readFileSync(pidFile(folder), 'utf8'));
  const isOurs = () =>
    spawnSync('ps', ['-ww', '-p', String(pid), '-o', 'args='], { encoding: 'utf8' }).stdout.includes(
      configFile(folder),
    );
  if (!Number.isInteger(pid) || !isOurs()) return;
  process.kill(pid, 'SIGTERM');
  for (let waited = 0; isOurs() && waited < START_MS; waited += 50) await sleep(50);
}

const hostOf = ({ host }: ServerOptions): string => (host === '0.0.0.0' ? '127.0.0.1' : host);

const pidFile = (folder: string): string => join(resolve(folder), 'nats.pid');
const configFile = (folder: string): string => join(resolve(folder), 'nats.conf');

/** What the server reads. Keys are public parts alone: the file has no secret. */
export function configText(
  { folder, host, port, webSocketPort, tls, maxPayload = 8 * MIB, maxConnections = 256 }: ServerOptions,
  users: readonly User[],
): string {
  const certificate = tls && `tls { cert_file: ${quoted(resolve(tls.cert))}, key_file: ${quoted(resolve(tls.key))} }`;
  return [
    `listen: ${quoted(`${host}:${port}`)}`,
    certificate ?? '',
    `server_name: webgrpo`,
    `pid_file: ${quoted(pidFile(folder))}`,
    `max_payload: ${maxPayload}`,
    `max_pending: ${8 * maxPayload}`,
    `max_connections: ${maxConnections}`,
    `jetstream { store_dir: ${quoted(join(resolve(folder), 'streams'))} }`,
    `websocket { listen: ${quoted(`${host}:${webSocketPort}`)}, ${certificate ?? 'no_tls: true'} }`,
    `accounts { ROOM { jetstream: enabled, users: [`,
    ...users.map((user) => `  ${userText(user)}`),
    `] } }`,
    '',
  ].join('\n');
}

function userText({ id, rights }: User): string {
  if (!rights) return `{ nkey: ${id} }`;
  const list = (subjects: readonly string[]) => `[${subjects.map(quoted).join(', ')}]`;
  const { publish, subscribe } = rights;
  return `{ nkey: ${id}, permissions: { publish: { allow: ${list(publish)} }, subscribe: { allow: ${list(subscribe)} } } }`;
}

const quoted = (text: string): string => JSON.stringify(text);

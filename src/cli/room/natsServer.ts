/** The nats-server process of `webgrpo room`: finds, configures, starts and ends it. */

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { InputError } from '../../errors.ts';
import { WORKER_RIGHTS } from '../../extensions/rooms/index.ts';
import { currentIo } from '../process/io.ts';
import { natsServerPath } from './natsServerPath.mjs';

export interface ServerOptions {
  /** Folder for the NATS server's configuration file and streams. */
  folder: string;
  host: string;
  /** Port for clients in Node; -1 = any free port. */
  port: number;
  /** Port for WebSockets of browsers; -1 = any free port. */
  webSocketPort: number;
  /** Paths of a TLS certificate and its private key. */
  tls?: { cert: string; key: string } | undefined;
  maxConnections?: number;
}

export interface NatsServer {
  ports: { nats: number; webSocket: number };
  /** Ends the server. SIGKILL simulates a crash. */
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

const MIB = 2 ** 20;
/** Maximum size of a message in bytes. The server closes a connection that sends a larger one. */
const MAX_PAYLOAD = 8 * MIB;
/** Seconds that a new connection has to authenticate. The default of NATS, two seconds, is too short for a busy machine. */
const AUTHENTICATE_S = 10;
const START_MS = 15_000;

/** Returns the path of the nats-server program. Throws InputError if it is not installed. */
export function findNatsServer(): string {
  const found = natsServerPath({ env: currentIo().env });
  if (found) return found;
  throw new InputError(
    'nats-server is not installed. Install it (Debian: apt-get install nats-server; macOS: brew install nats-server; Windows: choco install ' +
      'nats-server; others: https://nats.io/download), or give --nats with the URL of a running server.',
  );
}

/**
 * Starts a NATS server with two users, the controller and the worker, given by their public keys. Throws InputError if the server does not
 * start, for example because a port is taken or a certificate cannot be read.
 */
export async function startNatsServer(
  options: ServerOptions,
  users: Record<'controller' | 'worker', string>,
): Promise<NatsServer> {
  const folder = resolve(options.folder);
  const [configFile, pidFile] = [join(folder, 'nats.conf'), join(folder, 'nats.pid')];
  await mkdir(folder, { recursive: true });
  expectEnded(configFile, pidFile);
  await writeFile(configFile, configText({ ...options, folder, pidFile }, users), { mode: 0o600 });
  // `detached` puts the server into its own process group, so that Ctrl-C in a terminal does not end the server before the run is saved.
  const server = spawn(findNatsServer(), ['-c', configFile], { stdio: ['ignore', 'ignore', 'pipe'], detached: true });
  const kill = () => void server.kill('SIGKILL');
  process.once('exit', kill);
  const ended = new Promise<void>((done) => server.once('exit', () => done()).once('error', () => done()));
  const stop = async (signal: NodeJS.Signals = 'SIGTERM') => {
    process.off('exit', kill);
    server.kill(signal);
    await ended;
  };
  let log = '';
  const isReady = new Promise<boolean>((done) => {
    createInterface({ input: server.stderr }).on('line', (line) => {
      log = `${log}${line}\n`.slice(-100_000);
      if (line.includes('Server is ready')) done(true);
    });
    void ended.then(() => done(false));
    setTimeout(() => done(false), START_MS).unref();
  });
  if (await isReady) {
    const portOf = (what: string) => Number(new RegExp(`Listening for ${what} on .*:(\\d+)`).exec(log)?.[1]);
    return { ports: { nats: portOf('client connections'), webSocket: portOf('websocket clients') }, stop };
  }
  await stop();
  const why = log.split('\n').filter((line) => /\[(FTL|ERR)\]|:\d+:\d+:|^nats-server:/.test(line));
  const taken = why.some((line) => line.includes('address already in use'));
  throw new InputError(
    `nats-server did not start: ${why.slice(-3).join(' ') || 'it said nothing'}. ` +
      (taken ? 'Give another port with --port, or 0 for a free one.' : `Its configuration is ${configFile}.`),
  );
}

/** Throws InputError if the server that a killed controller left behind is still running: two servers must not write the same streams. */
function expectEnded(configFile: string, pidFile: string): void {
  if (!existsSync(pidFile)) return;
  const pid = readFileSync(pidFile, 'utf8').trim();
  const { stdout } = spawnSync('ps', ['-ww', '-p', pid, '-o', 'args='], { encoding: 'utf8' });
  if (stdout?.includes(configFile))
    throw new InputError(
      `The nats-server of an earlier run is still running as process ${pid}. End it ("kill ${pid}") and start the room again.`,
    );
}

/** Returns the text of the server's configuration file. Users are given by their public keys, so the file contains no secret. */
function configText(
  { folder, pidFile, host, port, webSocketPort, tls, maxConnections = 256 }: ServerOptions & { pidFile: string },
  { controller, worker }: Record<'controller' | 'worker', string>,
): string {
  const certificate = tls && `tls { cert_file: ${quoted(resolve(tls.cert))}, key_file: ${quoted(resolve(tls.key))} }`;
  const [publish, subscribe] = [WORKER_RIGHTS.publish, WORKER_RIGHTS.subscribe].map((list) =>
    list.map(quoted).join(', '),
  );
  return [
    `listen: ${quoted(`${host}:${port}`)}`,
    certificate ?? '',
    `server_name: webgrpo`,
    `pid_file: ${quoted(pidFile)}`,
    `max_payload: ${MAX_PAYLOAD}`,
    `max_pending: ${8 * MAX_PAYLOAD}`,
    `max_connections: ${maxConnections}`,
    `authorization { timeout: ${AUTHENTICATE_S} }`,
    `jetstream { store_dir: ${quoted(join(folder, 'streams'))} }`,
    `websocket { listen: ${quoted(`${host}:${webSocketPort}`)}, ${certificate ?? 'no_tls: true'} }`,
    `accounts { ROOM { jetstream: enabled, users: [`,
    `  { nkey: ${controller} }`,
    `  { nkey: ${worker}, permissions: { publish: { allow: [${publish}] }, subscribe: { allow: [${subscribe}] } } }`,
    `] } }`,
    '',
  ].join('\n');
}

const quoted = (text: string): string => JSON.stringify(text);

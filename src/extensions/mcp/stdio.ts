/**
 * A server that is a local process, with one JSON-RPC message per line; Node only. It runs in a separate process group: Ctrl-C
 * in a terminal does not reach it while the run still saves, and the processes that it starts end with it.
 */

import type { ChildProcessByStdio } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { InputError } from '../../errors.ts';
import type { McpCommand } from './types.ts';

/** Module names, not as literals in imports, so that a bundler for pages does not resolve them. */
const [CHILD_PROCESS, PROCESS] = ['node:child_process', 'node:process'];
const load = (name: string): Promise<unknown> =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ name);

const INHERITED = ['HOME', 'LOGNAME', 'PATH', 'SHELL', 'TERM', 'USER', 'LANG', 'TMPDIR'].concat(
  ...['APPDATA', 'HOMEDRIVE', 'HOMEPATH', 'LOCALAPPDATA', 'PROCESSOR_ARCHITECTURE', 'SYSTEMDRIVE', 'SYSTEMROOT'],
  ...['TEMP', 'USERNAME', 'USERPROFILE', 'PROGRAMFILES'],
);
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Largest message. After a longer line the server is ended. */
export const MAX_MESSAGE_BYTES = 2 ** 26;
/** Characters of stderr to keep for a message. */
const KEPT_STDERR = 1000;
/** Milliseconds that the process has to end after its input ends, and again after SIGTERM. */
const END_MS = 1000;

type Child = ChildProcessByStdio<Writable, Readable, Readable>;
type Process = typeof import('node:process');

/** Starts an MCP server as a process and exchanges messages over its stdin and stdout. */
export class ProcessTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: Transport['onmessage'];
  /** The end of what the process wrote to stderr. */
  stderr = '';
  readonly #command: McpCommand;
  #process: Process | undefined;
  #child: Child | undefined;
  #exited: Promise<void> | undefined;
  /** Parts of an incomplete line. */
  #line: Uint8Array[] = [];
  #lineBytes = 0;

  constructor(command: McpCommand) {
    this.#command = command;
  }

  /** Starts the process. Throws InputError if the program is not found. */
  async start(): Promise<void> {
    const { command, args = [], env, cwd } = this.#command;
    const { spawn } = (await load(CHILD_PROCESS)) as typeof import('node:child_process');
    const process = ((await load(PROCESS)) as { default: Process }).default;
    this.#process = process;
    const inherited = INHERITED.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]]));
    const child = spawn(command, args, {
      env: { ...(Object.fromEntries(inherited) as Record<string, string>), ...env },
      ...(cwd !== undefined && { cwd }),
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: process.platform !== 'win32',
      windowsHide: true,
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', (error: NodeJS.ErrnoException) => reject(new InputError(startProblem(error, this.#command))));
    });
    this.#child = child;
    watch(process, child);
    child.on('error', (error) => this.onerror?.(error));
    child.stdin.on('error', (error) => this.onerror?.(error));
    child.stdout.on('data', (chunk: Uint8Array) => this.#read(chunk));
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.stderr = (this.stderr + text).slice(-KEPT_STDERR);
    });
    // Not 'close', because a process that the server left behind may keep its output open.
    this.#exited = new Promise((resolve) => child.once('exit', () => resolve()));
    void this.#exited.then(() => this.#ended());
  }

  async send(message: unknown): Promise<void> {
    const stdin = this.#child?.stdin;
    if (!stdin?.writable) throw new Error('the process has ended');
    await new Promise<void>((resolve, reject) =>
      stdin.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(error) : resolve())),
    );
  }

  /** Resolves when the process has ended. */
  async close(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    child.stdin.end();
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      if (await this.#isGone()) break;
      kill(this.#process!, child, signal);
    }
    await this.#exited;
  }

  async #isGone(): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<boolean>((resolve) => (timer = setTimeout(() => resolve(false), END_MS)));
    const gone = await Promise.race([this.#exited!.then(() => true), late]);
    clearTimeout(timer);
    return gone;
  }

  #ended(): void {
    const child = this.#child;
    if (!child) return;
    this.#child = undefined;
    kill(this.#process!, child, 'SIGKILL'); // processes that it started
    unwatch(child);
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy();
    this.#line = [];
    this.onclose?.();
  }

  #read(chunk: Uint8Array): void {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      this.#line.push(chunk.subarray(start, end));
      start = end + 1;
      this.#tell(this.#takeLine());
    }
    if (start === chunk.length) return;
    this.#line.push(chunk.subarray(start));
    this.#lineBytes += chunk.length - start;
    if (this.#lineBytes <= MAX_MESSAGE_BYTES) return;
    this.#takeLine();
    this.onerror?.(new Error(`a line of more than ${MAX_MESSAGE_BYTES} bytes`));
    if (this.#child) kill(this.#process!, this.#child, 'SIGKILL');
  }

  #takeLine(): string {
    const decoder = new TextDecoder();
    const text = this.#line.map((part) => decoder.decode(part, { stream: true })).join('') + decoder.decode();
    this.#line = [];
    this.#lineBytes = 0;
    return text;
  }

  /** Passes on a message; reports a line that is not JSON as an error. */
  #tell(line: string): void {
    if (line.trim() === '') return;
    try {
      this.onmessage?.(JSON.parse(line) as never);
    } catch (error) {
      this.onerror?.(error as Error);
    }
  }
}

function startProblem({ code, message }: NodeJS.ErrnoException, { command, cwd }: McpCommand): string {
  const where = cwd === undefined ? '' : ` in ${cwd}`;
  if (code !== 'ENOENT') return `The MCP server "${command}" does not start${where}: ${message}.`;
  return `The MCP server "${command}" does not start: there is no such program${cwd === undefined ? '' : `, or no folder ${cwd}`}; check \`command\`.`;
}

/** Kills the process and all that it started, which are one group. */
function kill(process: Process, child: Child, signal: 'SIGTERM' | 'SIGKILL'): void {
  try {
    if (process.platform === 'win32') child.kill(signal);
    else process.kill(-child.pid!, signal);
  } catch {
    // The process has ended already.
  }
}

/** Running servers: they end with this process, for any reason. */
const running = new Set<Child>();
let stopWatching = () => {};

function watch(process: Process, child: Child): void {
  running.add(child);
  if (running.size > 1) return;
  const killAll = () => running.forEach((one) => kill(process, one, 'SIGKILL'));
  const onSignal = (signal: NodeJS.Signals) => {
    // Other listeners decide what the signal does; without one it would have ended this process without an 'exit'.
    if (process.listenerCount(signal) > 1) return;
    killAll();
    stopWatching();
    process.kill(process.pid, signal);
  };
  process.on('exit', killAll);
  for (const signal of SIGNALS) process.on(signal, onSignal);
  stopWatching = () => {
    process.off('exit', killAll);
    for (const signal of SIGNALS) process.off(signal, onSignal);
  };
}

function unwatch(child: Child): void {
  running.delete(child);
  if (running.size === 0) stopWatching();
}

/**
 * Transport to an MCP server that is a local process, with one JSON-RPC message per line (Node only). Unlike with the SDK's transport, the
 * process gets its own process group, so that Ctrl-C in a terminal does not end the server before the run has finished its step and saved.
 * When the server ends, processes that it started are killed.
 */

import type { ChildProcessByStdio } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { InputError } from '../../errors.ts';
import type { McpCommand } from './types.ts';

/** Environment variables that the server process inherits: user and program folders, language and the like. Others can be secret. */
const INHERITED =
  /^(HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|TMPDIR|APPDATA|HOMEDRIVE|HOMEPATH|LOCALAPPDATA|PROCESSOR_ARCHITECTURE|SYSTEMDRIVE|SYSTEMROOT|TEMP|USERNAME|USERPROFILE|PROGRAMFILES)$/;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Maximum number of bytes of a message. A server that sends a longer line is killed. */
export const MAX_MESSAGE_BYTES = 2 ** 26;
/** Milliseconds that the process has to end after its stdin is closed, and again after SIGTERM. */
const END_MS = 1000;

type Child = ChildProcessByStdio<Writable, Readable, null>;

/** Starts an MCP server as a process and exchanges messages over its stdin and stdout. */
export class ProcessTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: Transport['onmessage'];
  readonly #command: McpCommand;
  #child: Child | undefined;
  #exited: Promise<void> | undefined;
  /** Output of the process after its last line break: an incomplete line. */
  #rest = '';

  constructor(command: McpCommand) {
    this.#command = command;
  }

  /** Starts the process. Throws InputError if the program is not found. */
  async start(): Promise<void> {
    const { command, args = [], env, cwd } = this.#command;
    const { spawn } = process.getBuiltinModule('node:child_process');
    const child = spawn(command, args, {
      env: { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => INHERITED.test(name))), ...env },
      ...(cwd !== undefined && { cwd }),
      stdio: ['pipe', 'pipe', 'ignore'],
      detached: process.platform !== 'win32',
      windowsHide: true,
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', (error: NodeJS.ErrnoException) => reject(new InputError(startProblem(error, this.#command))));
    });
    this.#child = child;
    watch(child);
    for (const source of [child, child.stdin]) source.on('error', (error: Error) => this.onerror?.(error));
    child.stdout.setEncoding('utf8').on('data', (text: string) => this.#read(text));
    // The event 'exit' instead of 'close', because a process that the server started can keep the output open.
    this.#exited = new Promise((resolve) => child.once('exit', () => resolve()));
    void this.#exited.then(() => this.#ended(child));
  }

  async send(message: unknown): Promise<void> {
    const stdin = this.#child?.stdin;
    if (!stdin?.writable) throw new Error('the process has ended');
    await new Promise<void>((resolve, reject) =>
      stdin.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(error) : resolve())),
    );
  }

  /** Ends the process. Resolves when it has ended. */
  async close(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    child.stdin.end();
    let timer = setTimeout(() => {
      kill(child, 'SIGTERM');
      timer = setTimeout(() => kill(child, 'SIGKILL'), END_MS);
    }, END_MS);
    await this.#exited;
    clearTimeout(timer);
  }

  #ended(child: Child): void {
    this.#child = undefined;
    kill(child, 'SIGKILL'); // kills processes that the server started
    unwatch(child);
    for (const stream of [child.stdin, child.stdout]) stream.destroy();
    this.onclose?.();
  }

  #read(text: string): void {
    this.#rest += text;
    if (text.includes('\n')) {
      const lines = this.#rest.split('\n');
      this.#rest = lines.pop()!;
      for (const line of lines) this.#receive(line);
    }
    if (this.#rest.length <= MAX_MESSAGE_BYTES) return;
    this.#rest = '';
    this.onerror?.(new Error(`a line of more than ${MAX_MESSAGE_BYTES} bytes`));
    if (this.#child) kill(this.#child, 'SIGKILL');
  }

  /** Parses a line and passes the message on. A line that is not JSON is reported as an error. */
  #receive(line: string): void {
    if (line.trim() === '') return;
    try {
      this.onmessage?.(JSON.parse(line) as never);
    } catch (error) {
      this.onerror?.(error as Error);
    }
  }
}

function startProblem({ code, message }: NodeJS.ErrnoException, { command, cwd }: McpCommand): string {
  const [where, folder] = cwd === undefined ? ['', ''] : [` in ${cwd}`, `, or no folder ${cwd}`];
  const why = code === 'ENOENT' ? `: there is no such program${folder}. Check \`command\`` : `${where}: ${message}`;
  return `The MCP server "${command}" does not start${why}.`;
}

/** Kills the process and all processes that it started, which are in its process group. */
function kill(child: Child, signal: 'SIGTERM' | 'SIGKILL'): void {
  try {
    if (process.platform === 'win32') child.kill(signal);
    else process.kill(-child.pid!, signal);
  } catch {
    // kill fails if the process has ended already.
  }
}

/** Running server processes. They are killed when this process ends for any reason. */
const running = new Set<Child>();
const killAll = () => running.forEach((child) => kill(child, 'SIGKILL'));

function watch(child: Child): void {
  running.add(child);
  if (running.size > 1) return;
  process.on('exit', killAll);
  for (const signal of SIGNALS) process.on(signal, onSignal);
}

function unwatch(child: Child): void {
  running.delete(child);
  if (running.size > 0) return;
  process.off('exit', killAll);
  for (const signal of SIGNALS) process.off(signal, onSignal);
}

/**
 * Kills the servers if a signal ends this process, because Node then emits no event 'exit'. Does nothing if the signal has other listeners,
 * which decide what it does.
 */
function onSignal(signal: NodeJS.Signals): void {
  if (process.listenerCount(signal) > 1) return;
  killAll();
  process.off(signal, onSignal);
  process.kill(process.pid, signal);
}

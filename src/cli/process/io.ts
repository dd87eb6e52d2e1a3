/**
 * Input and output streams, environment variables and signals of a command. By default they are those of this process. A caller that runs
 * commands inside its own process, such as a test, passes others.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { constants } from 'node:os';
import type { Readable } from 'node:stream';
import type { AdapterSummary } from '../../gpu/adapter.ts';
import type { DeviceLostError } from '../../errors.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import type { EngineSpec } from '../../workers/engineSpec.ts';

/** Signals that ask a command to end. */
export const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type Signal = (typeof SIGNALS)[number];

interface Writer {
  write(text: string): unknown;
  isTTY?: boolean;
}

/** An engine as commands use it. */
export interface CommandEngine extends TrainerEngine {
  readonly adapter: AdapterSummary;
  /** Resolves when the engine's GPU device is lost. */
  readonly lost: Promise<DeviceLostError>;
  destroy(): void;
}

/** The parts of a process that a command uses. */
export interface Io {
  readonly stdin: Readable & { isTTY?: boolean };
  readonly stdout: Writer;
  readonly stderr: Writer;
  readonly env: NodeJS.ProcessEnv;
  /** Registers a handler that is called for every later signal. */
  onSignal(handle: (signal: Signal) => void): void;
  /** Ends the process by the default effect of the signal. */
  endBy(signal: Signal): void;
  /** Creates engines instead of the default, an engine on Dawn. Tests pass it to run commands without a GPU. */
  createEngine?: (spec: EngineSpec) => Promise<CommandEngine>;
}

/** The standard streams, environment variables and signals of this process. */
export const processIo: Io = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  onSignal(handle) {
    for (const signal of SIGNALS) process.on(signal, () => handle(signal));
  },
  /**
   * Sends the signal instead of calling `process.exit`, which would unload the GPU driver while its threads run, so that they crash
   * (SIGSEGV).
   */
  endBy(signal) {
    process.emit('exit', 128 + constants.signals[signal]);
    process.removeAllListeners(signal); // restores the signal's default effect
    process.kill(process.pid, signal);
  },
};

const current = new AsyncLocalStorage<Io>();

/** Returns the io of the command that is running; outside a command, the io of the process. */
export const currentIo = (): Io => current.getStore() ?? processIo;

/** Runs `work` with this io. Asynchronous work that `work` starts gets the same io. */
export const withIo = <T>(io: Io, work: () => T): T => current.run(io, work);

/**
 * Streams, environment and signals of a command. They belong to the process, or to a caller that runs commands in its own process, as tests
 * do.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { constants } from 'node:os';
import type { Readable } from 'node:stream';
import type { AdapterSummary } from '../../gpu/adapter.ts';
import type { DeviceLostError } from '../../errors.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import type { EngineSpec } from '../../workers/engineSpec.ts';

/** Signals that request the end of a command. */
export const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type Signal = (typeof SIGNALS)[number];

interface Writer {
  write(text: string): unknown;
  isTTY?: boolean;
}

/** The parts of an engine that commands use. */
export interface CommandEngine extends TrainerEngine {
  readonly adapter: AdapterSummary;
  /** Resolves when the engine's device is lost. */
  readonly lost: Promise<DeviceLostError>;
  destroy(): void;
}

/** Everything that a command uses of its process. */
export interface Io {
  readonly stdin: Readable & { isTTY?: boolean };
  readonly stdout: Writer;
  readonly stderr: Writer;
  readonly env: NodeJS.ProcessEnv;
  /** Registers a handler for every later signal. */
  onSignal(handle: (signal: Signal) => void): void;
  /** Ends the process as the signal does by default. */
  endBy(signal: Signal): void;
  /** Replaces the engine on Dawn, so that a command runs without a GPU. */
  createEngine?: (spec: EngineSpec) => Promise<CommandEngine>;
}

/** The io of the real process. */
export const processIo: Io = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  onSignal(handle) {
    for (const signal of SIGNALS) process.on(signal, () => handle(signal));
  },
  /** Uses the signal instead of `process.exit`. That would unload the driver under its own running threads, which then crash (SIGSEGV). */
  endBy(signal) {
    process.emit('exit', 128 + constants.signals[signal]);
    process.removeAllListeners(signal); // restores the signal's default effect
    process.kill(process.pid, signal);
  },
};

const current = new AsyncLocalStorage<Io>();

/** Returns the io of the command that this code runs in; outside of a command, the process's. */
export const currentIo = (): Io => current.getStore() ?? processIo;

/** Runs `work`, including everything that it starts, with this io. */
export const withIo = <T>(io: Io, work: () => T): T => current.run(io, work);

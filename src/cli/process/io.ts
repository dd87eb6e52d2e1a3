/** Streams, environment and signals of a command: those of the process, or a caller's in its own process, as tests do. */

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

/** What a command uses of an engine. */
export interface CommandEngine extends TrainerEngine {
  readonly adapter: AdapterSummary;
  /** Resolves when its device is lost. */
  readonly lost: Promise<DeviceLostError>;
  destroy(): void;
}

/** Everything that a command uses of its process. */
export interface Io {
  readonly stdin: Readable & { isTTY?: boolean };
  readonly stdout: Writer;
  readonly stderr: Writer;
  readonly env: NodeJS.ProcessEnv;
  /** Calls `handle` on every signal from now on. */
  onSignal(handle: (signal: Signal) => void): void;
  /** Ends the process as the signal does by default. */
  endBy(signal: Signal): void;
  /** Replaces the engine on Dawn, so that a command runs without a GPU. */
  createEngine?: (spec: EngineSpec) => Promise<CommandEngine>;
}

/** The process itself. */
export const processIo: Io = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  onSignal(handle) {
    for (const signal of SIGNALS) process.on(signal, () => handle(signal));
  },
  /** Not by `process.exit`: that takes the driver apart under its own threads, which crash (SIGSEGV) where they compute. */
  endBy(signal) {
    process.emit('exit', 128 + constants.signals[signal]);
    process.removeAllListeners(signal); // so that it means to the system what it always does
    process.kill(process.pid, signal);
  },
};

const current = new AsyncLocalStorage<Io>();

/** The io of the command that this code runs for; the process's outside of one. */
export const currentIo = (): Io => current.getStore() ?? processIo;

/** Runs `work` and everything that it starts with this io. */
export const withIo = <T>(io: Io, work: () => T): T => current.run(io, work);

/** Messages between a sandbox's worker and the thread that uses it. */

/** A program for a worker to run. */
export interface Program {
  code: string;
  /** Computing time. 10,000 backward jumps and calls count as one millisecond, so the limit does not depend on the machine. */
  timeMs: number;
  /** Wall-clock milliseconds, for work that QuickJS does not count: time inside one native function. */
  clockMs: number;
  /** Bytes of wasm memory, including QuickJS itself: at least LEAST_MEMORY_BYTES. */
  memoryBytes: number;
  /** Maximum number of characters of output. */
  maxOutput: number;
  /** 32-bit seed of Math.random. */
  seed: number;
}

/** Prefix of a module's output that is a value, in the format of encodePlain. */
export const VALUE = '=';

/**
 * A module for a worker to load before it answers calls. The output is VALUE and the task's description, or JSON:
 * `{ missing: [address, ...] }` if an import is not among the sources, or `{ error: GuestFailure }`.
 */
export interface ModuleLoad {
  /** Address of the task's module. */
  entry: string;
  /** Texts by address, of the entry and all its imports. */
  sources: Readonly<Record<string, string>>;
  /** Prefix of the addresses that a module can import. */
  root: string;
  /** `task.options` in the format of encodePlain. */
  options: string;
  timeMs: number;
  memoryBytes: number;
}

/** A call of a function of the loaded module. The output is VALUE and the result, or `{ error: GuestFailure }`. */
export interface ModuleCall {
  /** Name of the function in the guest, e.g. 'train' or 'tool.execute'. */
  call: string;
  /** List of arguments in the format of encodePlain. */
  args: string;
  timeMs: number;
  /** 32-bit seed of Math.random in this call. */
  seed: number;
}

/** A failure inside: an error of the module, or a limit that it hit. */
export interface GuestFailure {
  kind: 'threw' | 'time' | 'result';
  message: string;
  /** Stack as QuickJS prints it; the first line that names a file is where it was thrown. */
  stack?: string;
}

export type SandboxRequest = Program | ModuleLoad | ModuleCall;

/** Bytes that this build of QuickJS starts with; a program can use almost all of them. */
export const LEAST_MEMORY_BYTES = 16 * 2 ** 20;

/** A worker's message: it has loaded or is about to run, a program's output, or the worker is broken. */
export type SandboxMessage = { kind: 'ready' } | { kind: 'done'; output: string } | { kind: 'broken'; why: string };

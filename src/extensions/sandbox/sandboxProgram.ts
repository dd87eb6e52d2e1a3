/** Messages between the worker of a sandbox and the thread that uses it. */

/** A request to run a program in a worker. */
export interface Program {
  code: string;
  /**
   * Limit of computing time in milliseconds. 10,000 backward jumps and calls count as one millisecond, so the limit does not depend on the
   * machine.
   */
  timeMs: number;
  /** Wall-clock limit in milliseconds, for work that QuickJS does not count, such as the time inside one native function. */
  clockMs: number;
  /** Limit of wasm memory in bytes, with that of QuickJS itself; at least LEAST_MEMORY_BYTES. */
  memoryBytes: number;
  /** Maximum number of characters of the output. */
  maxOutput: number;
  /** 32-bit seed of Math.random. */
  seed: number;
}

/** Prefix of a module's output if the output is a value in the format of encodePlain. */
export const VALUE = '=';

/**
 * A request to load a task's module in a worker, before the worker can answer calls. The output is VALUE and the task's description, or
 * JSON: `{ missing: [address, ...] }` if an import is not among the sources, or `{ error: GuestFailure }`.
 */
export interface ModuleLoad {
  /** Address of the task's module. */
  entry: string;
  /** Source texts of the entry and all its imports, by address. */
  sources: Readonly<Record<string, string>>;
  /** Prefix of the addresses that a module can import. */
  root: string;
  /** `task.options` in the format of encodePlain. */
  options: string;
  /** Id of the first tool state. No two workers share an id, so the id of a lost state never names another sample's state. */
  firstState: number;
  timeMs: number;
  memoryBytes: number;
}

/** A request to call a function of the loaded module. The output is VALUE and the result, or `{ error: GuestFailure }`. */
export interface ModuleCall {
  /** Name of the function in the module, e.g. 'train' or 'tool.execute'. */
  call: string;
  /** List of arguments in the format of encodePlain. */
  args: string;
  timeMs: number;
  /** 32-bit seed of Math.random in this call. */
  seed: number;
}

/** A failure inside QuickJS: an error of the module, or a limit that it has reached. */
export interface GuestFailure {
  kind: 'threw' | 'time' | 'result';
  message: string;
  /** Stack as QuickJS prints it. Its first line with a file name is the place where the error was thrown. */
  stack?: string;
}

export type SandboxRequest = Program | ModuleLoad | ModuleCall;

/** Bytes of memory with which this build of QuickJS starts. A program can use almost all of them. */
export const LEAST_MEMORY_BYTES = 16 * 2 ** 20;

/** A message from a worker: it has loaded or starts a program, a program has ended with an output, or the worker is broken. */
export type SandboxMessage =
  | { kind: 'ready'; wasm?: WebAssembly.Module }
  | { kind: 'done'; output: string }
  | { kind: 'broken'; why: string };

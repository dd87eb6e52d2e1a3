/** Messages between a sandbox's worker and the thread that asks it. */

/** A program for a worker to run. */
export interface Program {
  code: string;
  /** What it may compute: 10,000 jumps back and calls count as one millisecond, so that its end does not depend on the machine. */
  timeMs: number;
  /** Milliseconds by the clock, for what QuickJS does not count: the work inside one native function. */
  clockMs: number;
  /** Bytes of wasm memory, with QuickJS itself: at least LEAST_MEMORY_BYTES. */
  memoryBytes: number;
  /** Characters. */
  maxOutput: number;
  /** 32 bits that Math.random follows from. */
  seed: number;
}

/** What the output of a module starts with where it is a value, as encodePlain writes it. */
export const VALUE = '=';

/**
 * A module for a worker to load, which then answers calls. The output is VALUE and what the task says of itself, or JSON:
 * `{ missing: [address, ...] }` where it imports what is not among the sources, or `{ error: GuestFailure }`.
 */
export interface ModuleLoad {
  /** Address of the module that the task is. */
  entry: string;
  /** Text by address, of the entry and all that it imports. */
  sources: Readonly<Record<string, string>>;
  /** A module may import what starts so. */
  root: string;
  /** `task.options` as encodePlain writes it. */
  options: string;
  timeMs: number;
  memoryBytes: number;
}

/** A call of a function of the module that was loaded. The output is VALUE and what it returned, or `{ error: GuestFailure }`. */
export interface ModuleCall {
  /** As the guest names it, e.g. 'train' or 'tool.execute'. */
  call: string;
  /** A list of arguments as encodePlain writes it. */
  args: string;
  timeMs: number;
  /** 32 bits that Math.random follows from in this call. */
  seed: number;
}

/** What went wrong inside: an error of the module's, or a limit that it ran into. */
export interface GuestFailure {
  kind: 'threw' | 'time' | 'result';
  message: string;
  /** As QuickJS prints it; the first line that names a file is where it was thrown. */
  stack?: string;
}

export type SandboxRequest = Program | ModuleLoad | ModuleCall;

/** Bytes that this build of QuickJS starts with; a program can fill all but a little of them. */
export const LEAST_MEMORY_BYTES = 16 * 2 ** 20;

/** A worker's message: that it has loaded or is about to run, a program's output, or that it is of no more use. */
export type SandboxMessage = { kind: 'ready' } | { kind: 'done'; output: string } | { kind: 'broken'; why: string };

/** Messages between a sandbox's worker and the thread that asks it. */

/** A program for a worker to run. */
export interface Program {
  code: string;
  /** Milliseconds. */
  timeMs: number;
  /** Bytes of wasm memory, with QuickJS itself: at least LEAST_MEMORY_BYTES. */
  memoryBytes: number;
  /** Characters. */
  maxOutput: number;
  /** 32 bits that Math.random follows from. */
  seed: number;
}

/** Bytes that this build of QuickJS starts with; a program can fill all but a little of them. */
export const LEAST_MEMORY_BYTES = 16 * 2 ** 20;

/** A worker's message: that it has loaded or is about to run, a program's output, or that it is of no more use. */
export type SandboxMessage = { kind: 'ready' } | { kind: 'done'; output: string } | { kind: 'broken'; why: string };

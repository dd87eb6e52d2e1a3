/** The tool `javascript`. It runs a program that the model wrote in QuickJS, compiled to wasm, in a worker that can be terminated. */

import { InputError } from '../../errors.ts';
import { hash } from '../../tasks/random.ts';
import { defineTool, type Tool } from '../../tasks/tool.ts';
import type { Sandbox } from './sandbox.ts';
import { LEAST_MEMORY_BYTES } from './sandboxProgram.ts';

/** Limits of one program. */
export interface JavascriptLimits {
  /**
   * Limit of computing time in milliseconds. 10,000 loop iterations and calls count as one millisecond, whatever the machine. Default: 250.
   */
  timeMs?: number;
  /** Wall-clock milliseconds after which the program is ended, however little computing time it has used. Default: 10 times timeMs. */
  clockMs?: number;
  /** Limit of memory in bytes, with that of QuickJS itself: 16 to 256 MiB. Default: 32 MiB. */
  memoryBytes?: number;
  /** Maximum number of characters that the program can print. A program that prints more is ended. Default: 10,000. */
  maxOutput?: number;
}

const MIB = 2 ** 20;
const RANGES: Record<keyof JavascriptLimits, [number, number]> = {
  timeMs: [1, 60_000],
  clockMs: [1, 600_000],
  memoryBytes: [LEAST_MEMORY_BYTES, 256 * MIB],
  maxOutput: [1, 1_000_000],
};

/**
 * Maximum number of programs that run at the same time, over all tools of this thread. A hostile program uses one core and blocks one
 * worker.
 */
const WORKERS = 2;
let sandbox: Promise<Sandbox> | undefined;

/** Time limit of a call in milliseconds, including the wait for a worker. The limit of the program itself is `timeMs`. */
const CALL_MS = 120_000;

/** Creates the tool. Calls share no state. QuickJS is loaded at the first call. Throws InputError if a limit is out of range. */
export function javascriptTool(limits: JavascriptLimits = {}): Tool {
  checkLimits(limits);
  return defineTool({
    name: 'javascript',
    description:
      'Runs a JavaScript program and returns what it prints with console.log, or else the value of its last line.',
    parameters: { type: 'object', properties: { code: { type: 'string', maxLength: 10_000 } }, required: ['code'] },
    timeoutMs: CALL_MS,
    execute: ({ code }, { signal, sampleId }) => runJavascript(code, limits, signal, sampleId),
  });
}

/**
 * Runs a program. Returns the text that it printed; if it printed nothing, its value; or a text that starts with "Error:".
 * @param key seed of Math.random. Date returns the same times in every run
 */
export async function runJavascript(
  code: string,
  limits: JavascriptLimits = {},
  signal?: AbortSignal,
  key = '',
): Promise<string> {
  const { timeMs = 250, clockMs = 10 * timeMs, memoryBytes = 32 * MIB, maxOutput = 10_000 } = limits;
  sandbox ??= import('./sandbox.ts').then(({ Sandbox }) => new Sandbox(WORKERS));
  return (await sandbox).run({ code, timeMs, clockMs, memoryBytes, maxOutput, seed: hash(key) }, signal);
}

function checkLimits(limits: JavascriptLimits): void {
  for (const [name, [min, max]] of Object.entries(RANGES)) {
    const value = limits[name as keyof JavascriptLimits];
    if (value !== undefined && !(Number.isInteger(value) && value >= min && value <= max))
      throw new InputError(`The javascript tool's ${name} is ${value}; allowed: an integer from ${min} to ${max}.`);
  }
}

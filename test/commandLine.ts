/** Runs the command line in the test's own process, collects its output, and sends it signals. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { main } from '../src/cli/main.ts';
import type { Io, Signal } from '../src/cli/process/io.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import { collectWeights } from '../src/model/checkpoint/checkpoint.ts';
import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import { deferred, type Gate } from './scripted/gate.ts';
import { ScriptedEngine } from './scriptedEngine.ts';

interface Around {
  env?: NodeJS.ProcessEnv;
  createEngine?: Io['createEngine'];
  /** True if standard error is treated as a terminal. A terminal shows every phase of a step. */
  isTTY?: boolean;
  /** Called with each line of standard error. */
  onLine?: (line: string) => void;
}

/** A command that was started; `done` resolves when it ends. */
export class RunningCommand {
  stdout = '';
  stderr = '';
  readonly #stdin = new PassThrough();
  /** Signals by which the command would have ended its process, which here is the test's own. */
  readonly endedBy: Signal[] = [];
  /** Sends a signal to the command. */
  signal: (signal: Signal) => void = () => undefined;
  readonly done: Promise<{ status: number; stdout: string; said: string[] }>;
  /** Resolves when the command has installed its signal handlers. */
  readonly listens: Promise<void>;
  #awaited: { pattern: RegExp; found: (match: RegExpExecArray) => void }[] = [];

  constructor(args: readonly string[], { env = {}, createEngine, isTTY = false, onLine }: Around = {}) {
    const { promise: listens, resolve: hasBegun } = deferred<void>();
    this.listens = listens;
    const io: Io = {
      stdin: this.#stdin,
      stdout: { write: (text) => (this.stdout += text) },
      stderr: {
        isTTY,
        write: (text) => {
          this.stderr += text;
          for (const line of text.split('\n').slice(0, -1)) onLine?.(line);
          this.#look();
        },
      },
      env: { ...process.env, ...env },
      onSignal: (handle) => {
        this.signal = handle;
        hasBegun();
      },
      endBy: (signal) => void this.endedBy.push(signal),
      ...(createEngine && { createEngine }),
    };
    this.done = main(args, io).then((status) => {
      return { status, stdout: this.stdout, said: this.stderr.split('\n').filter((line) => line !== '') };
    });
  }

  /** Writes to standard input. */
  type(text: string): void {
    this.#stdin.write(text);
  }

  /** Resolves with the match as soon as standard error matches the pattern. Rejects if the command ends without it. */
  said(pattern: RegExp): Promise<RegExpExecArray> {
    const match = new Promise<RegExpExecArray>((found) => this.#awaited.push({ pattern, found }));
    this.#look();
    const ended = this.done.then(() => Promise.reject(new Error(`it never said ${String(pattern)}: ${this.stderr}`)));
    return Promise.race([match, ended]);
  }

  #look(): void {
    this.#awaited = this.#awaited.filter(({ pattern, found }) => {
      const match = pattern.exec(this.stderr);
      if (match) found(match);
      return !match;
    });
  }
}

/** Returns the values of a file with one JSON value per line. */
export const linesIn = <T>(path: string): T[] =>
  readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

/** Returns the metrics that a run has written into its folder. */
export const metricsIn = (folder: string): Metrics[] => linesIn(join(folder, 'metrics.jsonl'));

/** Runs a command to its end. */
export const webgrpo = (args: readonly string[], around?: Around) => new RunningCommand(args, around).done;

const ADAPTER = {
  ...{ vendor: 'none', architecture: '', description: 'scripted', isSoftware: false },
  ...{ subgroupSize: 0, subgroupMaxSize: 0, features: [] },
};

/** Returns a `createEngine` for commands that train. It creates scripted engines, which all wait at the same gate. */
export const scriptedEngines =
  (gate?: Gate): Io['createEngine'] =>
  async ({ config, weights, tokenizerJson, tokenizerConfigJson, withReference = false }) => {
    const tensors = weights instanceof Map ? weights : await collectWeights(weights);
    const tokenizer = new ChatTokenizer(tokenizerJson, tokenizerConfigJson);
    const engine = new ScriptedEngine({ config, weights: tensors, tokenizer, withReference, ...(gate && { gate }) });
    return Object.assign(engine, { adapter: ADAPTER, destroy: () => undefined });
  };

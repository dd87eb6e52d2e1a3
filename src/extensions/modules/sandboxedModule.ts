/**
 * Runs a task module in the worker of a sandbox: loads the module with its imports, calls one function at a time, and restarts the worker
 * if a call hangs.
 */

import { describe, InputError } from '../../errors.ts';
import { hash } from '../../tasks/random.ts';
import {
  decodePlain,
  encodePlain,
  type Guest,
  type GuestFailure,
  type ModuleCall,
  type ModuleLoad,
  type SandboxRequest,
  startGuest,
  VALUE,
} from '../sandbox/index.ts';
import { limiter } from '../../tasks/limiter.ts';
import { SOURCE_LIMITS } from './source.ts';

const LOAD_MS = 10_000;
const MEMORY_BYTES = 128 * 2 ** 20;
/** Number of ids of tool states that each worker has to itself. */
const STATES_PER_WORKER = 2 ** 32;

/** URL of a module, and the function that reads source texts. */
export interface ModuleSource {
  /** URL of the module. */
  entry: string;
  /** The module can import only URLs that start with this text. */
  root: string;
  /** Reads the source text at a URL. Throws InputError. */
  read(address: string): Promise<string>;
}

/** Error of a call that failed inside the sandbox. Its message and stack are those of the error in the module. */
export class GuestError extends Error {
  override name = 'GuestError';
  readonly kind: GuestFailure['kind'];
  /** Place in the module's source, such as " (at reward (https://...:3:7))"; '' if unknown. */
  readonly place: string;
  /** The complete stack trace, as the sandbox prints it. */
  readonly trace: string;

  constructor({ kind, message, stack = '' }: GuestFailure, root: string) {
    super(message);
    this.kind = kind;
    this.trace = stack;
    const line = stack.split('\n').find((frame) => frame.includes(root));
    this.place = line === undefined ? '' : ` (${line.trim()})`;
    this.stack = `${this.name}: ${message}${line === undefined ? '' : `\n    ${line.trim()}`}`;
  }
}

type Output = { value?: unknown; missing?: string[]; error?: GuestFailure };

/** A task module that runs in a worker. The worker is restarted when needed. */
export class SandboxedModule {
  /** Number of workers started so far. */
  started = 0;
  readonly #source: ModuleSource;
  readonly #options: string;
  readonly #loadMs: number;
  readonly #texts = new Map<string, string>();
  readonly #oneAtATime = limiter(1);
  #guest: Guest | undefined;
  #isClosed = false;

  constructor(source: ModuleSource, options: Readonly<Record<string, unknown>>, loadMs = LOAD_MS) {
    this.#source = source;
    this.#loadMs = loadMs;
    this.#options = encodePlain(options);
  }

  /** Source texts of the module and all its imports, by URL. Complete once `open` has resolved. */
  get texts(): ReadonlyMap<string, string> {
    return this.#texts;
  }

  /** Starts a worker and loads the module with its imports. Returns the description of its task. Throws InputError. */
  open(): Promise<unknown> {
    return this.#oneAtATime(async () => {
      try {
        return await this.#load();
      } catch (error) {
        this.#end();
        if (!(error instanceof GuestError)) throw error;
        throw new InputError(
          `The task module ${this.#source.entry} does not load: ${error.message}${error.place}. Correct the file.`,
          {
            cause: error,
          },
        );
      }
    });
  }

  /**
   * Calls a function of the task and returns its result, which is plain data. Throws GuestError. If a call exceeds its time limit or breaks
   * the sandbox, the next call starts a new worker and loads the module again.
   * @param again call to make first if the worker was restarted
   */
  call(call: string, args: readonly unknown[], timeMs: number, again?: [string, unknown[]]): Promise<unknown> {
    return this.#oneAtATime(async () => {
      if (!this.#guest) {
        await this.#load();
        if (again) await this.#ask(request(again[0], again[1], timeMs));
      }
      return this.#ask(request(call, args, timeMs));
    });
  }

  /** Ends the worker and its pending calls for good. */
  close(): void {
    this.#isClosed = true;
    this.#end();
  }

  async #load(): Promise<unknown> {
    const { entry, root, read } = this.#source;
    if (this.#isClosed) throw new InputError(`The task module ${entry} was closed.`);
    if (!this.#texts.has(entry)) this.#texts.set(entry, await read(entry));
    this.#guest ??= await this.#start();
    const firstState = this.started * STATES_PER_WORKER;
    const load = { entry, root, options: this.#options, firstState, timeMs: this.#loadMs, memoryBytes: MEMORY_BYTES };
    for (;;) {
      const sources = Object.fromEntries(this.#texts);
      const { missing, value } = await this.#answer({ ...load, sources } satisfies ModuleLoad);
      if (!missing) return value;
      const [files, bytes] = [this.#texts.size + missing.length, [...this.#texts.values()].join('').length];
      if (files > SOURCE_LIMITS.files || bytes > SOURCE_LIMITS.bytes)
        throw new InputError(
          `The task module ${entry} imports too much: ${files} files, ${bytes} characters. At most ${SOURCE_LIMITS.files} files ` +
            `and ${SOURCE_LIMITS.bytes} characters are allowed. Bundle it, or import fewer files.`,
        );
      const texts = await Promise.all(missing.map((address) => read(address)));
      missing.forEach((address, i) => this.#texts.set(address, texts[i]));
    }
  }

  async #start(): Promise<Guest> {
    this.started++;
    const guest = await startGuest();
    if (this.#isClosed) guest.end();
    return guest;
  }

  async #ask(call: ModuleCall): Promise<unknown> {
    return (await this.#answer(call)).value;
  }

  async #answer(request: SandboxRequest): Promise<Output> {
    const { root } = this.#source;
    const { output, broken } = await this.#guest!.run(request);
    if (output === undefined) {
      this.#end();
      throw new GuestError({ kind: 'time', message: broken }, root);
    }
    if (output.startsWith(VALUE)) return { value: this.#decoded(output.slice(VALUE.length)) };
    const answer = JSON.parse(output) as Output;
    if (!answer.error) return answer;
    if (answer.error.kind === 'time' || /out of memory/.test(answer.error.message)) this.#end();
    throw new GuestError(answer.error, root);
  }

  #decoded(text: string): unknown {
    try {
      return decodePlain(text);
    } catch (error) {
      throw new GuestError({ kind: 'result', message: describe(error) }, this.#source.root);
    }
  }

  #end(): void {
    this.#guest?.end();
    this.#guest = undefined;
  }
}

/**
 * Returns the request for a call. Its random seed is a hash of the function and its arguments, so results do not depend on the order of
 * calls.
 */
function request(call: string, args: readonly unknown[], timeMs: number): ModuleCall {
  const text = encodePlain(args);
  return { call, args: text, timeMs, seed: hash(call, text) };
}

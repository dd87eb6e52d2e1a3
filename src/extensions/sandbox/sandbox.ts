/**
 * Runs untrusted programs in a few workers (quickjs.worker.ts), in a page or in Node. A worker is terminated and replaced if a program
 * exceeds its limits or breaks the worker. This file is loaded at the first program.
 */

import type { Program, SandboxMessage, SandboxRequest } from './sandboxProgram.ts';
import { limiter } from '../../tasks/limiter.ts';
import { startTimer } from '../../tasks/timer.ts';

/** Milliseconds beyond a program's limit before a worker that does not answer is terminated, because the machine can be busy. */
const GRACE_MS = 1000;
const LOAD_MS = 30_000;
/** Maximum JavaScript heap of a worker in Node in MB, in addition to its wasm memory. */
const NODE_HEAP_MB = 64;

/** Keeps QuickJS's machine code alive for later workers. Otherwise each compiles it again, for 0.2 s of processor time. */
const kept: { wasm?: WebAssembly.Module | undefined } = {};

/** A pool of workers that run programs. */
export class Sandbox {
  /** Number of workers started so far. */
  started = 0;
  readonly #idle: Guest[] = [];
  readonly #inTurn: ReturnType<typeof limiter>;

  /** @param workers maximum number of programs that run at the same time; further programs wait */
  constructor(workers: number) {
    this.#inTurn = limiter(workers);
  }

  /** Runs a program. Returns its output, or a text that starts with "Error:". Rejects if no worker can start, or if `signal` aborts. */
  run(program: Program, signal?: AbortSignal): Promise<string> {
    return this.#inTurn(async () => {
      signal?.throwIfAborted();
      const guest = this.#idle.pop() ?? (await this.#start());
      const { output, broken } = await guest.run(program);
      if (broken === undefined) this.#idle.push(guest);
      else guest.end();
      return output ?? `Error: the program ${broken}`.slice(0, program.maxOutput);
    });
  }

  /** Ends the workers that are idle. The next program starts a new one. */
  close(): void {
    for (const guest of this.#idle.splice(0)) guest.end();
  }

  #start(): Promise<Guest> {
    this.started++;
    return startGuest();
  }
}

/** Starts a worker, and waits until it has loaded QuickJS. Rejects if no worker can start. */
export async function startGuest(): Promise<Guest> {
  const { default: code } = await import('./quickjs.worker.ts?inline-worker');
  const guest = new Guest(startWorker(code));
  await guest.ready();
  return guest;
}

/** Common interface of a page's worker and a worker of Node. */
interface WorkerPort {
  post(request: SandboxRequest): void;
  onMessage(listener: (message: SandboxMessage) => void): void;
  onError(listener: (why: string) => void): void;
  end(): void;
}

/** One worker, which handles one request at a time. */
export class Guest {
  readonly #port: WorkerPort;
  readonly #said: SandboxMessage[] = [];
  #heard: () => void = () => {};

  constructor(port: WorkerPort) {
    this.#port = port;
    const hear = (message: SandboxMessage) => {
      this.#said.push(message);
      this.#heard();
    };
    port.onMessage(hear);
    port.onError((why) => hear({ kind: 'broken', why }));
  }

  /** Resolves when the worker reports that it has loaded, or that it starts a program. Otherwise ends the worker and rejects. */
  async ready(): Promise<void> {
    const message = await this.#next(LOAD_MS);
    if (message?.kind === 'ready') {
      kept.wasm ??= message.wasm;
      return;
    }
    this.end();
    const why = message?.kind === 'broken' ? message.why : `it did not answer within ${LOAD_MS / 1000} s. Try again.`;
    throw new Error(`The sandbox did not start: ${why}`);
  }

  /** Returns the output of a request, or how the request has broken the worker. A broken worker cannot be used again. */
  async run(request: SandboxRequest): Promise<{ output: string; broken?: never } | { output?: never; broken: string }> {
    this.#port.post(request);
    await this.ready();
    const message = await this.#next(('code' in request ? request.clockMs : request.timeMs) + GRACE_MS);
    if (message?.kind === 'done') return { output: message.output };
    return {
      broken: message?.kind === 'broken' ? `broke its sandbox: ${message.why}` : `ran longer than ${request.timeMs} ms`,
    };
  }

  /** Terminates the worker. A pending request receives a message of the kind `broken`. */
  end(): void {
    this.#port.end();
    this.#said.push({ kind: 'broken', why: 'it was ended' });
    this.#heard();
  }

  /** Returns the worker's next message. Undefined if none arrives within `ms` milliseconds. */
  async #next(ms: number): Promise<SandboxMessage | undefined> {
    if (this.#said.length === 0) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
        timer = startTimer(resolve, ms);
      });
      clearTimeout(timer);
    }
    return this.#said.shift();
  }
}

function startWorker(code: string): WorkerPort {
  return typeof Worker === 'undefined' ? nodeWorker(code) : pageWorker(code);
}

/** The event of a worker that a policy forbids has no message. */
const NO_WORKER =
  'the Content-Security-Policy of this page forbids its worker. The host of the page must add blob: to worker-src.';

function pageWorker(code: string): WorkerPort {
  const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const worker = new Worker(url);
  return {
    post: (request) => worker.postMessage(request),
    onMessage: (listener) =>
      worker.addEventListener('message', ({ data }: MessageEvent<SandboxMessage>) => listener(data)),
    onError: (listener) => worker.addEventListener('error', ({ message }) => listener(message ?? NO_WORKER)),
    end() {
      worker.terminate();
      URL.revokeObjectURL(url);
    },
  };
}

/** Starts a worker that does not get the environment variables and does not keep the process alive. */
function nodeWorker(code: string): WorkerPort {
  const threads = globalThis.process?.getBuiltinModule?.('node:worker_threads');
  if (!threads) throw new Error('no workers here; the javascript tool needs a page, or Node 20.16 or newer');
  const resourceLimits = { maxOldGenerationSizeMb: NODE_HEAP_MB };
  const worker = new threads.Worker(code, { eval: true, env: {}, execArgv: [], resourceLimits });
  return {
    post: (request) => worker.postMessage(request),
    // `unref` is called after a listener is added, because adding one keeps the process alive again.
    onMessage: (listener) => worker.on('message', listener).unref(),
    onError: (listener) => void worker.on('error', (error) => listener(String(error))),
    end: () => void worker.terminate(),
  };
}

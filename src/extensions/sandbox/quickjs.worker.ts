/**
 * Runs programs, or a task's module (see ../modules), in QuickJS in a separate worker of a page or of Node. Each program gets a fresh
 * runtime with its own limits. If these limits fail, the thread that started the worker terminates it (sandbox.ts). A program can use the
 * language, `print` and `console`, but no network, files, timers or modules.
 */

import variant from '@jitl/quickjs-wasmfile-release-sync';
import wasmUrl from '@jitl/quickjs-wasmfile-release-sync/wasm?url&inline';
import {
  type CustomizeVariantOptions,
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSHandle,
  type QuickJSWASMModule,
  Scope,
} from 'quickjs-emscripten-core';
import { GuestModule } from './guest.ts';
import { LEAST_MEMORY_BYTES, type Program, type SandboxMessage, type SandboxRequest } from './sandboxProgram.ts';
import { SEEDED } from './seeded.ts';

const STACK_BYTES = 256 * 1024;
const PAGE_BYTES = 65_536;
const JOBS_AT_ONCE = 1000;
const UNSHOWN = 'a value that cannot be shown';
/** Maximum depth of a value to print. JSON.stringify takes quadratic time in the depth, in a single call that QuickJS does not count. */
const MAX_DEPTH = 500;

/**
 * Runs inside the sandbox before the program. Seeds randomness and time, so that the same run gives the same samples, and returns the
 * function that converts a value to text. A program can break the prototypes, toJSON methods and getters that this function uses. It then
 * breaks only its own output, which is truncated text in any case.
 */
const PRELUDE = `((seeded, write, most, seed) => {
  const { stringify } = JSON;
  const deep = (depths) => function (key, value) {
    const depth = (depths.get(this) ?? 0) + 1;
    if (depth > ${MAX_DEPTH}) throw depth;
    if (typeof value === 'object' && value !== null) depths.set(value, depth);
    return value;
  };
  seeded(seed);
  const text = (value) => {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return value.name + ': ' + value.message;
    if (typeof value === 'symbol') return 'a symbol';
    return typeof value === 'object' && value !== null ? stringify(value, deep(new Map())) : value;
  };
  const show = (value) => {
    try { return ('' + text(value)).slice(0, most); } catch { return '${UNSHOWN}'; }
  };
  const print = (...values) => {
    let line = '';
    for (let i = 0; i < values.length; i++) line += (i > 0 ? ' ' : '') + show(values[i]);
    write(line);
  };
  globalThis.print = print;
  globalThis.console = { log: print, info: print, warn: print, error: print, debug: print };
  return show;
}).bind(undefined, ${SEEDED})`;

/** Progress of a program; `stopped` = the limit that the program reached. */
interface State {
  printed: string;
  stopped?: string;
}

/**
 * Creates QuickJS with its own wasm memory. The size of this memory limits the memory of a program. QuickJS's own limit does not count
 * allocations in this build, because it cannot ask malloc for sizes.
 */
async function instantiate(wasm: WebAssembly.Module, memoryBytes: number): Promise<QuickJSWASMModule> {
  const wasmMemory = new WebAssembly.Memory({
    initial: LEAST_MEMORY_BYTES / PAGE_BYTES,
    maximum: Math.floor(memoryBytes / PAGE_BYTES),
  });
  // emscripten requires the location of the wasm, but never fetches it.
  // If the wasm aborts, emscripten prints a message and throws. The thrown error is reported as the program's, so the message is dropped
  // instead of printed to the trainer's stderr.
  const emscriptenModule: CustomizeVariantOptions['emscriptenModule'] & object = Object.assign(
    {},
    { printErr: () => undefined },
  );
  const options = { wasmModule: () => wasm, wasmMemory, wasmLocation: 'quickjs.wasm', emscriptenModule };
  return newQuickJSWASMModuleFromVariant(newVariant(variant, options));
}

/** Runs a program. Returns the text that it printed; if it printed nothing, its value; or a text that starts with "Error:". */
function runProgram(quickjs: QuickJSWASMModule, { code, timeMs, clockMs, maxOutput, seed }: Program): string {
  const runtime = quickjs.newRuntime();
  runtime.setMaxStackSize(STACK_BYTES);
  const deadline = performance.now() + clockMs;
  let ticks = 0;
  const state: State = { printed: '' };
  const stopped = () => {
    if (ticks > timeMs || performance.now() > deadline) state.stopped ??= `the program ran longer than ${timeMs} ms`;
    return state.stopped !== undefined;
  };
  // QuickJS calls this handler after every 10,000 backward jumps and calls.
  runtime.setInterruptHandler(() => (ticks++, stopped()));
  const context = runtime.newContext();
  try {
    const { text, failed } = evaluate(context, code, prelude(context, state, maxOutput, seed), stopped);
    if (state.stopped) return `Error: ${state.stopped}`;
    if (failed) return `Error: ${text}\n${state.printed}`.slice(0, maxOutput).trimEnd();
    return state.printed === '' ? text.slice(0, maxOutput) : state.printed.trimEnd();
  } finally {
    context.dispose();
    runtime.dispose();
  }
}

/** Converts a value of QuickJS to text, inside the sandbox and under its limits. */
type Show = (value: QuickJSHandle) => string;

function prelude(
  context: QuickJSContext,
  state: State,
  maxOutput: number,
  seed: number,
): { show: Show; dispose: () => void } {
  const scope = new Scope();
  const make = scope.manage(context.unwrapResult(context.evalCode(PRELUDE)));
  const write = scope.manage(
    context.newFunction('write', (line) => {
      state.printed += `${context.getString(line)}\n`;
      if (state.printed.length > maxOutput + 1)
        state.stopped ??= `the program printed more than ${maxOutput} characters`;
    }),
  );
  const most = scope.manage(context.newNumber(maxOutput));
  const from = scope.manage(context.newNumber(seed));
  const shown = scope.manage(context.unwrapResult(context.callFunction(make, context.undefined, write, most, from)));
  const show: Show = (value) => {
    const result = context.callFunction(shown, context.undefined, value);
    const text = result.error ? UNSHOWN : context.getString(result.value);
    result.dispose();
    return text;
  };
  return { show, dispose: () => scope.dispose() };
}

/** Evaluates the program, then runs the pending jobs of its promises. */
function evaluate(
  context: QuickJSContext,
  code: string,
  { show, dispose }: ReturnType<typeof prelude>,
  stopped: () => boolean,
): { text: string; failed: boolean } {
  const result = context.evalCode(code, 'program.js', { type: 'global' });
  try {
    if (result.error) return { text: stopped() ? '' : show(result.error), failed: true };
    while (!stopped() && context.runtime.hasPendingJob()) context.runtime.executePendingJobs(JOBS_AT_ONCE).dispose();
    return stopped() ? { text: '', failed: true } : settled(context, result.value, show);
  } finally {
    result.dispose();
    dispose();
  }
}

function settled(context: QuickJSContext, value: QuickJSHandle, show: Show): { text: string; failed: boolean } {
  const promise = context.getPromiseState(value);
  if (promise.type === 'pending') return { text: 'the promise of the program is never settled', failed: true };
  if (promise.type === 'fulfilled' && promise.notAPromise) return { text: show(value), failed: false };
  const handle = promise.type === 'fulfilled' ? promise.value : promise.error;
  const text = show(handle);
  handle.dispose();
  return { text, failed: promise.type === 'rejected' };
}

/** The message port of a worker, in a page or in Node. */
interface Port {
  postMessage(message: SandboxMessage): void;
  onmessage: ((event: { data: SandboxRequest }) => void) | null;
}

/** Only a policy makes these bytes fail to compile. */
const NO_WASM =
  "the Content-Security-Policy of this page forbids WebAssembly. The host of the page must add 'wasm-unsafe-eval' to script-src.";

async function serve(): Promise<void> {
  const nodePort = globalThis.process?.getBuiltinModule?.('node:worker_threads')?.parentPort;
  const port = (nodePort ?? globalThis) as unknown as Port;
  const text = atob(wasmUrl.slice(wasmUrl.indexOf(',') + 1));
  // Uint8Array.from takes 60 ms for these bytes, and every worker decodes them.
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const wasm = await WebAssembly.compile(bytes).catch(() => port.postMessage({ kind: 'broken', why: NO_WASM }));
  if (!wasm) return;
  let made: { quickjs: QuickJSWASMModule; memoryBytes: number } | undefined;
  let module: GuestModule | undefined;
  const answer = async (request: SandboxRequest): Promise<SandboxMessage> => {
    if ('call' in request) {
      port.postMessage({ kind: 'ready' });
      return { kind: 'done', output: module!.call(request) };
    }
    const { memoryBytes } = request;
    if ('entry' in request) {
      module = new GuestModule(await instantiate(wasm, memoryBytes));
      port.postMessage({ kind: 'ready' });
      return { kind: 'done', output: module.load(request) };
    }
    if (made?.memoryBytes !== memoryBytes) made = { quickjs: await instantiate(wasm, memoryBytes), memoryBytes };
    port.postMessage({ kind: 'ready' }); // the program's time counts from here
    return { kind: 'done', output: runProgram(made.quickjs, request) };
  };
  port.onmessage = ({ data }) => {
    // If `answer` throws, QuickJS itself has failed, and its memory can be corrupt.
    const broken = (error: unknown): SandboxMessage => ({ kind: 'broken', why: String(error) });
    void answer(data)
      .catch(broken)
      .then((message) => port.postMessage(message));
  };
  port.postMessage({ kind: 'ready', wasm });
}

void serve();

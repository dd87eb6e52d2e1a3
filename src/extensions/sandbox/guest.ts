/**
 * A task module inside QuickJS, in the sandbox's worker. The module and its imports are loaded from texts that were fetched before. Then
 * its functions are called one by one. Arguments and results are parsed and written as JSON inside QuickJS, so no object of the worker can
 * be reached from there.
 */

import {
  type QuickJSContext,
  type QuickJSHandle,
  type QuickJSRuntime,
  type QuickJSWASMModule,
} from 'quickjs-emscripten-core';
import type { GuestFailure, ModuleCall, ModuleLoad } from './sandboxProgram.ts';
import { SEEDED } from './seeded.ts';
import { GUEST_DRIVER } from './guestDriver.ts';
import { MAX_CHARACTERS } from './plain.ts';
import { VALUE } from './sandboxProgram.ts';

const STACK_BYTES = 512 * 1024;
const JOBS_AT_ONCE = 1000;
/** Prefix that marks the name of a module whose import is refused. */
const REFUSED = 'refused: ';
const DRIVER = 'webgrpo:driver';

/** A task module loaded in a QuickJS context. */
export class GuestModule {
  readonly #runtime: QuickJSRuntime;
  readonly #context: QuickJSContext;
  readonly #driver: QuickJSHandle;
  #deadline = 0;

  constructor(quickjs: QuickJSWASMModule) {
    this.#runtime = quickjs.newRuntime();
    this.#runtime.setMaxStackSize(STACK_BYTES);
    this.#runtime.setInterruptHandler(() => performance.now() > this.#deadline);
    this.#context = this.#runtime.newContext();
    this.#deadline = Infinity;
    const context = this.#context;
    this.#driver = context.unwrapResult(context.evalCode(`(${GUEST_DRIVER})(${SEEDED}, ${MAX_CHARACTERS})`, DRIVER));
  }

  /** Evaluates the module and creates its task. Returns the output as JSON; see ModuleLoad. */
  load({ entry, sources, root, options, firstState, timeMs }: ModuleLoad): string {
    const missing = new Set<string>();
    const context = this.#context;
    let sealed = false;
    this.#runtime.setModuleLoader(
      (name) => {
        if (name.startsWith(REFUSED)) return { error: new Error(name.slice(REFUSED.length)) };
        const text = Object.hasOwn(sources, name) ? sources[name] : undefined;
        if (text !== undefined) return text;
        if (sealed) return { error: new Error(`import("${name}"): a module is loaded with all that it imports`) };
        missing.add(name);
        return 'export {}';
      },
      (base, requested) => addressOf(requested, base, root),
    );
    this.#deadline = performance.now() + timeMs;
    const evaluated = context.evalCode(sources[entry], entry, { type: 'module' });
    const failure = this.#settled(evaluated, timeMs, (exports) => {
      const handles = [context.newString(options), context.newNumber(firstState)];
      const made = this.#invoke('load', [exports, ...handles]);
      for (const handle of handles) handle.dispose();
      return this.#settled(made, timeMs, (value) => this.#value(value));
    });
    sealed = true;
    return missing.size > 0 ? JSON.stringify({ missing: [...missing] }) : failure;
  }

  /** Calls a function of the task. Returns the output as JSON; see ModuleCall. */
  call({ call, args, timeMs, seed }: ModuleCall): string {
    const context = this.#context;
    this.#deadline = performance.now() + timeMs;
    const handles = [context.newString(call), context.newString(args), context.newNumber(seed)];
    const made = this.#invoke('call', handles);
    for (const handle of handles) handle.dispose();
    return this.#settled(made, timeMs, (value) => this.#value(value));
  }

  #invoke(name: string, args: QuickJSHandle[]) {
    const method = this.#context.getProp(this.#driver, name);
    try {
      return this.#context.callFunction(method, this.#context.undefined, ...args);
    } finally {
      method.dispose();
    }
  }

  /** Runs pending jobs until the promise of a call has settled, and reads its result. */
  #settled(
    result: ReturnType<QuickJSContext['callFunction']>,
    timeMs: number,
    read: (value: QuickJSHandle) => string,
  ): string {
    const context = this.#context;
    try {
      if (result.error) return this.#failed(result.error, timeMs);
      while (!this.#isLate() && this.#isPending(result.value) && this.#runtime.hasPendingJob())
        this.#runtime.executePendingJobs(JOBS_AT_ONCE).dispose();
      if (this.#isLate()) return this.#tookTooLong(timeMs);
      const promise = context.getPromiseState(result.value);
      if (promise.type === 'pending') return failed({ kind: 'threw', message: 'its promise is never settled' });
      if (promise.type === 'fulfilled' && promise.notAPromise) return read(result.value);
      const handle = promise.type === 'fulfilled' ? promise.value : promise.error;
      try {
        return promise.type === 'fulfilled' ? read(handle) : this.#failed(handle, timeMs);
      } finally {
        handle.dispose();
      }
    } finally {
      result.dispose();
    }
  }

  #isPending(value: QuickJSHandle): boolean {
    const promise = this.#context.getPromiseState(value);
    if (promise.type === 'fulfilled' && !promise.notAPromise) promise.value.dispose();
    if (promise.type === 'rejected') promise.error.dispose();
    return promise.type === 'pending';
  }

  #value(value: QuickJSHandle): string {
    if (this.#context.typeof(value) !== 'string') return failed({ kind: 'result', message: 'it is not data' });
    return VALUE + this.#context.getString(value);
  }

  /** Describes a thrown value. The description is made inside QuickJS, under the time limit of the call. */
  #failed(error: QuickJSHandle, timeMs: number): string {
    if (this.#isLate()) return this.#tookTooLong(timeMs);
    const described = this.#invoke('describe', [error]);
    try {
      if (this.#isLate()) return this.#tookTooLong(timeMs);
      if (described.error) return failed({ kind: 'threw', message: 'an error that cannot be read' });
      return this.#context.getString(described.value);
    } finally {
      described.dispose();
    }
  }

  #isLate(): boolean {
    return performance.now() > this.#deadline;
  }

  #tookTooLong(timeMs: number): string {
    return failed({ kind: 'time', message: `ran longer than ${timeMs / 1000} s` });
  }
}

const failed = (error: GuestFailure): string => JSON.stringify({ error });

/** Returns the full address of an import, or the reason for refusing it. The loader then throws the reason. */
function addressOf(requested: string, base: string, root: string): string {
  if (!/^(\.{0,2}\/|[a-z][a-z\d+.-]*:)/i.test(requested))
    return `${REFUSED}import "${requested}": an isolated module has no packages; bundle what it needs into it`;
  const address = URL.canParse(requested, base) ? new URL(requested, base).href : '';
  return address.startsWith(root)
    ? address
    : `${REFUSED}import "${requested}": an isolated module imports from ${root} alone`;
}

/** WebGPU for Node: installs Dawn as `navigator.gpu`. */

import { accessSync, constants } from 'node:fs';
import { totalmem } from 'node:os';
import { delimiter } from 'node:path';
import { requestAdapter, summaryOf } from '../gpu/adapter.ts';
import { InputError, NoAdapterError } from '../errors.ts';
import { currentIo } from './process/io.ts';
import { chosenChromium, mayHaveGpu, swiftShaderBeside } from './chromium.mjs';

/** The GPU object of Dawn. Kept in a module variable because Dawn crashes if this object is garbage-collected. */
export let dawn: GPU | undefined;

/**
 * Returns 'on' if Dawn checks every index that a kernel accesses, as browsers always do. The environment variable `WEBGRPO_ROBUSTNESS` sets
 * it. Throws InputError for a value other than on or off.
 */
export function robustness(): 'on' | 'off' {
  const asked = currentIo().env['WEBGRPO_ROBUSTNESS'] || 'on';
  if (asked === 'on' || asked === 'off') return asked;
  throw new InputError(
    `WEBGRPO_ROBUSTNESS is "${asked}"; allowed: on (as if it were not set) and off. Set one of them or unset it.`,
  );
}

/**
 * Installs Dawn as `navigator.gpu`; later calls do nothing. Throws NoAdapterError if the package "webgpu" is not installed or finds no
 * adapter, InputError for an invalid `WEBGRPO_ROBUSTNESS`.
 */
export async function installDawn(): Promise<void> {
  const isRobust = robustness() === 'on';
  if (dawn) return;
  const options = !isRobust ? ['enable-dawn-features=disable_robustness'] : [];
  const { create, globals } = await import('webgpu').catch((error: unknown) => {
    throw new NoAdapterError(`WebGPU for Node is missing. Install it with "npm install webgpu" (${String(error)}).`);
  });
  Object.assign(globalThis, globals);
  dawn = await withDriver(() => create(options));
  Object.defineProperty(globalThis, 'navigator', { value: { gpu: dawn }, configurable: true });
  const { info, features } = await requestAdapter();
  if (summaryOf(info, features).isSoftware) restWhileWaiting();
}

/** All GPU objects that were created, so that none is garbage-collected (see `dawn`). */
export const made: GPU[] = [];

/**
 * Creates Dawn on a hardware GPU, or on the Vulkan driver that the user selected. Without either, sets VK_ICD_FILENAMES to the SwiftShader
 * of an installed Chromium and creates a second instance of Dawn, because Vulkan reads the variable only when an instance is created.
 */
async function withDriver(create: () => GPU): Promise<GPU> {
  const make = async () => {
    const gpu = create();
    made.push(gpu);
    const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
    return { gpu, adapter, isHardware: adapter !== null && !summaryOf(adapter.info, adapter.features).isSoftware };
  };
  const { env } = process;
  checkDrivers(env, true);
  const isChosen = env['VK_ICD_FILENAMES'] ?? env['VK_DRIVER_FILES'];
  const icd = process.platform === 'linux' && !isChosen ? swiftShaderBeside(chosenChromium(env)) : '';
  // Without a GPU or a driver, a first instance would only print warnings of the Vulkan loader or about lavapipe, so SwiftShader is used
  // immediately.
  const first = icd && !mayHaveGpu(env) ? undefined : await make();
  if (first && !first.adapter) checkDrivers(env);
  if (first && (first.isHardware || !icd)) return first.gpu;
  env['VK_ICD_FILENAMES'] = icd;
  const second = await make();
  if (second.adapter) return second.gpu;
  delete env['VK_ICD_FILENAMES'];
  return (first ?? (await make())).gpu;
}

/**
 * Throws NoAdapterError if VK_DRIVER_FILES or VK_ICD_FILENAMES names a file that cannot be read, because Vulkan ignores such a file.
 * @param ifAll true to throw only if none of the named files can be read
 */
export function checkDrivers(env: NodeJS.ProcessEnv, ifAll = false): void {
  const named = ['VK_DRIVER_FILES', 'VK_ICD_FILENAMES'].flatMap((name) =>
    (env[name] ?? '')
      .split(delimiter)
      .filter(Boolean)
      .map((file) => ({ name, file })),
  );
  const missing = named.filter(({ file }) => !isReadable(file));
  if (missing.length === 0 || (ifAll && missing.length < named.length)) return;
  const [{ name, file }] = missing;
  throw new NoAdapterError(
    `${name} names "${file}", which cannot be read. Unset it, or set it to the .json file of a Vulkan driver.`,
  );
}

function isReadable(file: string): boolean {
  try {
    accessSync(file, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the memory of the device in bytes: the machine's memory for a software adapter, otherwise Infinity (unknown). Throws
 * NoAdapterError.
 */
export async function adapterMemory(): Promise<number> {
  const { info, features } = await requestAdapter();
  return summaryOf(info, features).isSoftware ? totalmem() : Infinity;
}

/** Milliseconds of the first rests of a wait, and of all later ones at most. */
const REST_MS = { first: 0.2, most: 1 };

/**
 * Makes this thread sleep between Dawn's polls. While a buffer is being mapped, Dawn's Node binding polls on this thread without a pause,
 * and so takes a core from a software adapter. Timers and other work of the event loop still run between two polls. The longer a wait has
 * lasted, the longer the thread sleeps: after the first eight rests at most a quarter of the wait so far.
 */
function restWhileWaiting(): void {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  const loop = restLoop((turns) => {
    Atomics.wait(cell, 0, 0, Math.min(REST_MS.first * (1 + Math.floor(turns / 8)), REST_MS.most));
  });
  const prototype = GPUBuffer.prototype;
  const mapAsync = prototype.mapAsync;
  prototype.mapAsync = function (this: GPUBuffer, ...args: Parameters<typeof mapAsync>) {
    loop.begin();
    return mapAsync.apply(this, args).finally(loop.end);
  };
}

/**
 * Calls `rest`, in which the thread sleeps, once per turn of the event loop while any work is in flight. All work in flight shares one
 * loop: a training step requests its next result before the loop sees that the last one has arrived, so with a loop per request the thread
 * would sleep several times per turn. `rest` gets the number of turns since the last request.
 */
export function restLoop(rest: (turns: number) => void): { begin: () => void; end: () => void } {
  let waiting = 0;
  let running = false;
  let turns = 0;
  const turn = () => {
    running = waiting > 0;
    if (!running) return;
    rest(turns++);
    setImmediate(turn);
  };
  const begin = () => {
    waiting++;
    turns = 0;
    if (!running) setImmediate(turn);
    running = true;
  };
  return { begin, end: () => void waiting-- };
}

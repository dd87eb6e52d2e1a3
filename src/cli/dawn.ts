/** WebGPU for Node: Dawn, put where a browser has it. */

import { bindingBytes, requestAdapter, summaryOf } from '../gpu/adapter.ts';
import { InputError, NoAdapterError } from '../errors.ts';
import { currentIo } from './process/io.ts';
import { installedChromium, swiftShaderBeside } from './swiftShader.mjs';

/** Exported so that it stays reachable: Dawn crashes if this object is collected. */
export let dawn: GPU | undefined;

/**
 * True if Dawn checks every index a kernel reads or writes at, as a page always has it: `WEBGRPO_ROBUSTNESS`, on or off.
 * Throws InputError for any other value.
 */
export function robustness(): 'on' | 'off' {
  const asked = currentIo().env['WEBGRPO_ROBUSTNESS'] || 'on';
  if (asked === 'on' || asked === 'off') return asked;
  throw new InputError(
    `WEBGRPO_ROBUSTNESS is "${asked}"; allowed: on (as if it were not set) and off. Set one of them or unset it.`,
  );
}

/**
 * Puts Dawn on `navigator.gpu`, once. Throws NoAdapterError if the package is not installed or finds no adapter,
 * InputError for a wrong `WEBGRPO_ROBUSTNESS`.
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
  restWhileWaiting();
  await requestAdapter();
}

/** All that were made: see `dawn`. */
export const made: GPU[] = [];

/**
 * Dawn on a hardware GPU, or on the Vulkan driver that the user chose; else on the SwiftShader beside a Chromium, as the set-up
 * of a checkout chooses it. Vulkan reads the variable when an instance is made, so a second one sees what is set here.
 */
async function withDriver(create: () => GPU): Promise<GPU> {
  const make = async () => {
    const gpu = create();
    made.push(gpu);
    const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
    return { gpu, adapter, isHardware: adapter !== null && !summaryOf(adapter.info, adapter.features).isSoftware };
  };
  const { env } = process;
  const first = await make();
  if (first.isHardware || process.platform !== 'linux' || env['VK_ICD_FILENAMES']) return first.gpu;
  const icd = swiftShaderBeside(env['CHROME_PATH'] || installedChromium(env));
  if (!icd) return first.gpu;
  env['VK_ICD_FILENAMES'] = icd;
  const second = await make();
  if (second.adapter) return second.gpu;
  delete env['VK_ICD_FILENAMES'];
  return first.gpu;
}

/** The most bytes that a device of this machine will bind, for a plan before there is one. Throws NoAdapterError. */
export async function adapterBindingBytes(): Promise<number> {
  return bindingBytes((await requestAdapter()).limits);
}

const REST_MS = 0.2;

/**
 * While a result is awaited, Dawn's Node binding polls without pause on this thread. A software adapter computes on the same
 * cores, so the thread is put to sleep for a moment between polls: everything else that is due still runs in between.
 */
function restWhileWaiting(): void {
  const cell = new Int32Array(new SharedArrayBuffer(4));
  const loop = restLoop(() => Atomics.wait(cell, 0, 0, REST_MS));
  const prototype = GPUBuffer.prototype;
  const mapAsync = prototype.mapAsync;
  prototype.mapAsync = function (this: GPUBuffer, ...args: Parameters<typeof mapAsync>) {
    loop.begin();
    return mapAsync.apply(this, args).finally(loop.end);
  };
}

/**
 * Calls `rest` once a turn of the event loop while anything has begun and not ended. One loop only: a step asks for its next
 * result as soon as it has the last one, before the loop has seen that nothing was due, and loops that add up would make
 * every wait longer than the one before.
 */
export function restLoop(rest: () => void): { begin: () => void; end: () => void } {
  let waiting = 0;
  let running = false;
  const turn = () => {
    running = waiting > 0;
    if (!running) return;
    rest();
    setImmediate(turn);
  };
  const begin = () => {
    waiting++;
    if (!running) setImmediate(turn);
    running = true;
  };
  return { begin, end: () => void waiting-- };
}

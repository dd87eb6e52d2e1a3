/** WebGPU for Node: Dawn, put where a browser has it. */

import { NoAdapterError } from '../gpu/errors.ts';

/** Exported so that it stays reachable: Dawn crashes if this object is collected. */
export let dawn: GPU | undefined;

/** Puts Dawn on `navigator.gpu`, once. Throws NoAdapterError where the package is not installed. */
export async function installDawn(): Promise<void> {
  if (dawn) return;
  const { create, globals } = await import('webgpu').catch((error: unknown) => {
    throw new NoAdapterError(`WebGPU for Node is missing; install it with "npm install webgpu" (${String(error)}).`);
  });
  Object.assign(globalThis, globals);
  dawn = create([]);
  Object.defineProperty(globalThis, 'navigator', { value: { gpu: dawn }, configurable: true });
}

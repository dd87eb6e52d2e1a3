/** Puts Dawn on navigator.gpu, so that the same test files run in Node and in a browser. */
import { create, globals } from 'webgpu';

Object.assign(globalThis, globals);

// Exported so that it stays reachable: Dawn crashes if this object is collected.
export const dawn = create([]);
Object.defineProperty(globalThis, 'navigator', { value: { gpu: dawn }, configurable: true });

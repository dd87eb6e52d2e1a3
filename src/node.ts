/**
 * `webgrpo/node`: functions that a program needs in Node or Bun, and a page does not: WebGPU (through the package
 * `webgpu`) and files.
 */

import { fileURLToPath } from 'node:url';
import './modelParts.ts';
import { installDawn } from './cli/dawn.ts';
import { folderFiles, ggufFile } from './cli/files.ts';
import { type CheckpointWithTokenizer, collectWeights, withTokenizer } from './model/checkpoint/checkpoint.ts';
import { openCheckpoint } from './model/checkpoint/open.ts';
import { isGguf } from './model/checkpoint/address.ts';

/**
 * Installs Dawn as `navigator.gpu`, unless WebGPU exists already (as in Deno). Uses a hardware GPU if there is one, otherwise the software
 * driver of an installed Chromium. Throws NoAdapterError if the package `webgpu` is not installed.
 */
export async function installWebGpu(): Promise<void> {
  if (!globalThis.navigator?.gpu) await installDawn();
}

/**
 * Returns the model and tokenizer in a folder in Hugging Face format, in a GGUF file, or in a checkpoint of `webgrpo/checkpoints`. Throws
 * InputError that names missing or damaged files.
 */
export async function readCheckpoint(
  from: string | URL | Readonly<Record<string, URL>>,
): Promise<CheckpointWithTokenizer> {
  const folder = typeof from === 'string' || from instanceof URL ? from : new URL('.', from['config.json']);
  const path = typeof folder === 'string' ? folder : fileURLToPath(folder);
  const files = isGguf(path) ? ggufFile(path) : folderFiles(path);
  const { weights, packed: _, ...model } = withTokenizer(path, await openCheckpoint(files));
  return { ...model, weights: await collectWeights(weights) };
}

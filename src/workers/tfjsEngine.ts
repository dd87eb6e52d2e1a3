/**
 * Factory of the engine `tfjs`; undefined until `webgrpo/tfjs` is imported. Otherwise a bundler would look for tfjs in
 * every program.
 */

import type { Gpu } from '../gpu/device.ts';
import type { ModelEngine } from '../model/engine.ts';
import type { LlamaModel } from '../model/llama.ts';
import type { OptimizerSpec } from '../model/optimizer/spec.ts';
import { InputError } from '../errors.ts';

/** @param maxTokenLen rows of the largest batch */
export type MakeModelEngine = (
  gpu: Gpu,
  model: LlamaModel,
  maxTokenLen: number,
  options: { optimizer: OptimizerSpec | undefined },
) => Promise<ModelEngine>;

let make: MakeModelEngine | undefined;

/** Registers the factory. */
export function registerTfjs(given: MakeModelEngine): void {
  make = given;
}

/** Creates the engine. Throws InputError if the factory is not registered. */
export const createRegisteredTfjs: MakeModelEngine = async (...args) => {
  if (make) return make(...args);
  throw new InputError(
    'engine is "tfjs", which is a separate entry. Import "webgrpo/tfjs" in the thread that makes the engine (with a worker: ' +
      'in its file, beside "webgrpo/worker"), or set engine to "wgsl".',
  );
};

/**
 * Factory of the engine "tfjs", undefined until `webgrpo/tfjs` is imported. If it were imported here, a bundler would add tfjs to every
 * program.
 */

import type { Gpu } from '../gpu/device.ts';
import type { ModelEngine } from '../model/engine.ts';
import type { LlamaModel } from '../model/llama.ts';
import type { OptimizerSpec } from '../model/optimizer/spec.ts';
import { InputError } from '../errors.ts';

/** @param maxTokenLen number of rows of the largest batch */
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

/** Creates the engine "tfjs". Throws InputError if `webgrpo/tfjs` was not imported. */
export const createRegisteredTfjs: MakeModelEngine = async (...args) => {
  if (make) return make(...args);
  throw new InputError(
    'engine is "tfjs", which only the entry "webgrpo/tfjs" has. Import it in the thread that creates the engine (for a worker: in the ' +
      'file of the worker, next to "webgrpo/worker"), or set engine to "wgsl".',
  );
};

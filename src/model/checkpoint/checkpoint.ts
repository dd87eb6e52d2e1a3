/**
 * A Hugging Face checkpoint in memory, read through a function and written as a map of files, so that a browser (fetch,
 * OPFS) and Node (fs) share this code. A large model is better streamed: `open.ts`.
 */

import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { InputError } from '../../errors.ts';
import { checkFinite, checkShapes, openCheckpoint, type WeightSource } from './open.ts';
import { elementCount, parameterSpecs } from '../params.ts';
import { type SafetensorsDtype, writeSafetensors } from './safetensors.ts';
import { type CheckpointFiles, configFile, filesBeside, type SourceFiles, type TokenizerJson } from './sourceFiles.ts';

/** Bytes of a file of the folder, or undefined if there is no such file. Other failures must throw. */
export type CheckpointSource = (path: string) => Promise<Uint8Array | undefined>;

/** A model in Hugging Face's format, read. */
export interface ModelCheckpoint extends TokenizerJson {
  /** Sizes of the model. */
  config: ModelConfig;
  /** By their names in the files, as float32. */
  weights: TensorMap;
  /** Text files of the folder that it was read from, as they were: saved again, but for what was changed. Absent = a fresh model. */
  sourceFiles?: SourceFiles;
}

/** A checkpoint that an engine can be made from: the tokenizer is present. */
export interface CheckpointWithTokenizer extends ModelCheckpoint {
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
}

/** The model, its tokenizer known to be there. Throws InputError that begins with `name` where it is not. */
export function withTokenizer<T extends TokenizerJson>(
  name: string,
  model: T,
): T & Pick<CheckpointWithTokenizer, 'tokenizerJson' | 'tokenizerConfigJson'> {
  const { tokenizerJson, tokenizerConfigJson } = model;
  if (tokenizerJson && tokenizerConfigJson) return { ...model, tokenizerJson, tokenizerConfigJson };
  throw new InputError(`${name} has no tokenizer.json and tokenizer_config.json; copy them beside the weights.`);
}

/** Throws an InputError naming the file and tensor for anything missing, corrupt, or not fitting the config. */
export async function loadCheckpoint(source: CheckpointSource): Promise<ModelCheckpoint> {
  const { weights, packed: _, ...rest } = await openCheckpoint(filesOf(source));
  return { ...rest, weights: await collectWeights(weights) };
}

/** All weights in host memory. */
export async function collectWeights(source: WeightSource): Promise<TensorMap> {
  const weights: TensorMap = new Map();
  for await (const { name, shape, first, data } of source.pieces()) {
    if (!weights.has(name)) weights.set(name, { shape, data: new Float32Array(elementCount(shape)) });
    weights.get(name)!.data.set(data, first);
  }
  return weights;
}

/**
 * File name to bytes: the weights in one file, float32 unless `dtype` says otherwise (rounded to nearest even), the
 * tokenizer, and what stood beside the weights in the folder that the model was read from.
 */
export function saveCheckpoint(
  checkpoint: ModelCheckpoint,
  dtype: SafetensorsDtype = 'F32',
): Map<string, Uint8Array<ArrayBuffer>> {
  const weights = fitWeights(checkpoint.config, checkpoint.weights, 'The model to save');
  return new Map([
    ['config.json', configFile(checkpoint, TORCH_NAMES[dtype])],
    ['model.safetensors', writeSafetensors(weights, { format: 'pt' }, dtype)],
    ...filesBeside(checkpoint),
  ]);
}

const TORCH_NAMES = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' } as const;

/**
 * The tensors in the order of `parameterSpecs`. Throws an InputError if one is missing, has another shape, is not
 * finite, or is not part of such a model. `file` names where they came from.
 */
function fitWeights(config: ModelConfig, tensors: TensorMap, file: string): TensorMap {
  checkShapes(config, tensors, file);
  const weights: TensorMap = new Map();
  for (const { name, shape } of parameterSpecs(config)) {
    const tensor = tensors.get(name)!;
    if (tensor.data.length !== elementCount(shape)) {
      throw new InputError(`${file}: tensor "${name}" [${shape.join(', ')}] has ${tensor.data.length} values.`);
    }
    checkFinite(name, tensor.data, file);
    weights.set(name, tensor);
  }
  return weights;
}

/** Files of a function that gives whole ones; the last one is kept, since its parts are asked for one after another. */
export function filesOf(source: CheckpointSource): CheckpointFiles {
  let last: { path: string; bytes: Promise<Uint8Array | undefined> } | undefined;
  const whole = (path: string) => {
    if (last?.path !== path) last = { path, bytes: source(path) };
    return last.bytes;
  };
  return {
    size: async (path) => (await whole(path))?.length,
    async read(path, begin, end) {
      const bytes = await whole(path);
      if (!bytes) throw new InputError(`${path} is gone.`);
      return bytes.subarray(begin, end);
    },
  };
}

/**
 * A Hugging Face checkpoint in memory. Files are read through a function and written as a map, so that browsers (fetch,
 * OPFS) and Node (fs) share this code. For large models use `open.ts`, which streams the weights.
 */

import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { InputError } from '../../errors.ts';
import { checkFinite, checkShapes, openCheckpoint, type WeightSource } from './open.ts';
import { elementCount, parameterSpecs } from '../params.ts';
import { type SafetensorsDtype, writeSafetensors } from './safetensors.ts';
import { type CheckpointFiles, configFile, filesBeside, type SourceFiles, type TokenizerJson } from './sourceFiles.ts';

/** Returns the bytes of a file, or undefined if it is missing. Must throw if reading fails for another reason. */
export type CheckpointSource = (path: string) => Promise<Uint8Array | undefined>;

/** A model in Hugging Face's format: config and weights. */
export interface ModelCheckpoint extends TokenizerJson {
  /** Sizes of the model. */
  config: ModelConfig;
  /** Weights by their names in the files, as float32. */
  weights: TensorMap;
  /**
   * Text files of the source folder, unchanged. A saved model contains them again, except for changed ones. Undefined
   * for a newly initialised model.
   */
  sourceFiles?: SourceFiles;
}

/** A checkpoint with a tokenizer, as an engine needs it. */
export interface CheckpointWithTokenizer extends ModelCheckpoint {
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
}

/** Returns the model if it has a tokenizer. Otherwise throws InputError; its message starts with `name`. */
export function withTokenizer<T extends TokenizerJson>(
  name: string,
  model: T,
): T & Pick<CheckpointWithTokenizer, 'tokenizerJson' | 'tokenizerConfigJson'> {
  const { tokenizerJson, tokenizerConfigJson } = model;
  if (tokenizerJson && tokenizerConfigJson) return { ...model, tokenizerJson, tokenizerConfigJson };
  throw new InputError(`${name} has no tokenizer.json and tokenizer_config.json. Copy them next to the weights.`);
}

/**
 * Reads a checkpoint. Throws an InputError that names the file and tensor if anything is missing, corrupt, or does not
 * fit the config.
 */
export async function loadCheckpoint(source: CheckpointSource): Promise<ModelCheckpoint> {
  const { weights, packed: _, ...rest } = await openCheckpoint(filesOf(source));
  return { ...rest, weights: await collectWeights(weights) };
}

/** Reads all weights into host memory. */
export async function collectWeights(source: WeightSource): Promise<TensorMap> {
  const weights: TensorMap = new Map();
  for await (const { name, shape, first, data } of source.pieces()) {
    if (!weights.has(name)) weights.set(name, { shape, data: new Float32Array(elementCount(shape)) });
    weights.get(name)!.data.set(data, first);
  }
  return weights;
}

/**
 * Returns the checkpoint's files by name: the weights in one file (float32 unless `dtype` is set, rounded to nearest
 * even), the tokenizer, and the other text files of the source folder.
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
 * Returns the tensors in the order of `parameterSpecs`. Throws InputError if a tensor is missing, has another shape, is
 * not finite, or does not belong to a model of this config. @param file name of the weights' file in errors
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

/**
 * Reads byte ranges through a function that returns complete files. The last file is cached, because ranges of one file
 * are read one after another.
 */
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

/**
 * A Hugging Face checkpoint folder, read through a function and written as a map of files, so that a browser (fetch,
 * OPFS) and Node (fs) share this code.
 */

import { modelConfigToJson, parseModelConfig } from './config.ts';
import type { ModelConfig } from './config.ts';
import type { TensorMap } from './engine.ts';
import { InputError } from './errors.ts';
import { elementCount, parameterSpecs } from './params.ts';
import { readSafetensors, writeSafetensors } from './safetensors.ts';

/** Bytes of a file of the folder, or undefined where there is no such file. Other failures must throw. */
export type CheckpointSource = (path: string) => Promise<Uint8Array | undefined>;

export interface Checkpoint {
  config: ModelConfig;
  weights: TensorMap;
  /** Parsed `tokenizer.json`; absent where the folder has none. */
  tokenizerJson?: Record<string, unknown>;
  /** Parsed `tokenizer_config.json`, its `chat_template` filled in from `chat_template.jinja` where that exists. */
  tokenizerConfigJson?: Record<string, unknown>;
}

const WEIGHTS = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';

/** Buffers that old Llama checkpoints carry; they follow from the config. */
const DERIVED = /\.rotary_emb\.inv_freq$/;

/** Throws an InputError naming the file and tensor for anything missing, corrupt, or not fitting the config. */
export async function loadCheckpoint(source: CheckpointSource): Promise<Checkpoint> {
  const configJson = await readJson(source, 'config.json');
  if (!configJson) throw new InputError('The checkpoint has no config.json; give a folder in Hugging Face format.');
  const config = parseModelConfig(configJson);
  const { tensors, file } = await readTensors(source);
  const weights = fitWeights(config, tensors, file);
  const tokenizerJson = await readJson(source, 'tokenizer.json');
  const tokenizerConfigJson = await readTokenizerConfig(source);
  return {
    config,
    weights,
    ...(tokenizerJson && { tokenizerJson }),
    ...(tokenizerConfigJson && { tokenizerConfigJson }),
  };
}

/** File name to bytes: float32 weights in one file, and what the checkpoint has of the tokenizer. */
export function saveCheckpoint(checkpoint: Checkpoint): Map<string, Uint8Array<ArrayBuffer>> {
  const { config, tokenizerJson, tokenizerConfigJson } = checkpoint;
  const weights = fitWeights(config, checkpoint.weights, 'The model to save');
  const files = new Map([
    ['config.json', encodeJson(modelConfigToJson(config))],
    [WEIGHTS, writeSafetensors(weights)],
  ]);
  if (tokenizerJson) files.set('tokenizer.json', encodeJson(tokenizerJson));
  if (tokenizerConfigJson) files.set('tokenizer_config.json', encodeJson(tokenizerConfigJson));
  return files;
}

/**
 * The tensors in the order of `parameterSpecs`. Throws an InputError where one is missing, has another shape, is not
 * finite, or is not part of such a model. `file` names where they came from.
 */
export function fitWeights(config: ModelConfig, tensors: TensorMap, file: string): TensorMap {
  const weights: TensorMap = new Map();
  for (const { name, shape } of parameterSpecs(config)) {
    const tensor = tensors.get(name);
    if (!tensor) throw missingTensor(config, tensors, name, shape, file);
    if (tensor.shape.join() !== shape.join() || tensor.data.length !== elementCount(shape)) {
      throw new InputError(
        `${file}: tensor "${name}" has shape [${tensor.shape.join(', ')}], but the config asks for ` +
          `[${shape.join(', ')}]. Are config.json and the weights of one model?`,
      );
    }
    checkFinite(name, tensor.data, file);
    weights.set(name, tensor);
  }
  for (const name of tensors.keys()) {
    if (!weights.has(name) && !isRedundant(config, tensors, name)) throw extraTensor(config, tensors, name, file);
  }
  return weights;
}

/** One safetensors file, or the shards that an index names. */
async function readTensors(source: CheckpointSource): Promise<{ tensors: TensorMap; file: string }> {
  const whole = await source(WEIGHTS);
  if (whole) return { tensors: readSafetensors(whole, WEIGHTS), file: WEIGHTS };
  const index = await readJson(source, INDEX);
  if (!index) throw new InputError(`The checkpoint has neither ${WEIGHTS} nor ${INDEX}; convert it to safetensors.`);
  return { tensors: await readShards(source, weightMapOf(index)), file: INDEX };
}

async function readShards(source: CheckpointSource, weightMap: Map<string, string>): Promise<TensorMap> {
  const tensors: TensorMap = new Map();
  for (const shard of new Set(weightMap.values())) {
    const bytes = await source(shard);
    if (!bytes) throw new InputError(`The checkpoint has no ${shard}, which ${INDEX} names. Download it again.`);
    for (const [name, tensor] of readSafetensors(bytes, shard)) {
      if (weightMap.get(name) !== shard) {
        throw new InputError(`${shard} holds the tensor "${name}", which ${INDEX} places in ${weightMap.get(name)}.`);
      }
      tensors.set(name, tensor);
    }
  }
  for (const [name, shard] of weightMap) {
    if (!tensors.has(name)) throw new InputError(`${shard} has no "${name}", which ${INDEX} places there.`);
  }
  return tensors;
}

function weightMapOf(index: Record<string, unknown>): Map<string, string> {
  const map = index['weight_map'];
  const entries = isObject(map) ? Object.entries(map) : [];
  if (entries.length > 0 && entries.every(([, shard]) => typeof shard === 'string')) {
    return new Map(entries as [string, string][]);
  }
  throw new InputError(`${INDEX} has no "weight_map" from tensor names to file names.`);
}

async function readTokenizerConfig(source: CheckpointSource): Promise<Record<string, unknown> | undefined> {
  const json = await readJson(source, 'tokenizer_config.json');
  const template = await source('chat_template.jinja');
  if (!template) return json;
  return { ...json, chat_template: new TextDecoder().decode(template) };
}

async function readJson(source: CheckpointSource, path: string): Promise<Record<string, unknown> | undefined> {
  const bytes = await source(path);
  if (!bytes) return undefined;
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder().decode(bytes));
  } catch (cause) {
    throw new InputError(`${path} is not JSON (${cause instanceof Error ? cause.message : String(cause)}).`, { cause });
  }
  if (!isObject(json)) throw new InputError(`${path} must hold a JSON object.`);
  return json;
}

function encodeJson(json: Record<string, unknown>): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`${JSON.stringify(json, null, 2)}\n`);
}

function missingTensor(
  config: ModelConfig,
  tensors: TensorMap,
  name: string,
  shape: number[],
  file: string,
): InputError {
  const [example] = tensors.keys();
  const some = example === undefined ? 'no tensors' : `${tensors.size} tensors, e.g. "${example}"`;
  const family = config.architecture.replace('ForCausalLM', '');
  return new InputError(
    `${file} has no "${name}" [${shape.join(', ')}]; it has ${some}. Is this a ${family} checkpoint?`,
  );
}

function extraTensor(config: ModelConfig, tensors: TensorMap, name: string, file: string): InputError {
  if (config.tieWordEmbeddings && name === 'lm_head.weight') {
    return new InputError(
      `${file}: "lm_head.weight" differs from the embedding, but config.json says "tie_word_embeddings": true.`,
    );
  }
  return new InputError(
    `${file} has "${name}" [${tensors.get(name)!.shape.join(', ')}], which a ${config.architecture} of this config ` +
      `does not use. Is the config of another model?`,
  );
}

/** Left out without harm: derived buffers, and the copy of a tied head. */
function isRedundant(config: ModelConfig, tensors: TensorMap, name: string): boolean {
  if (DERIVED.test(name)) return true;
  if (!config.tieWordEmbeddings || name !== 'lm_head.weight') return false;
  const head = tensors.get(name)!.data;
  const table = tensors.get('model.embed_tokens.weight')!.data;
  return head.length === table.length && head.every((value, i) => value === table[i]);
}

function checkFinite(name: string, data: Float32Array, file: string): void {
  const bad = data.findIndex((value) => !Number.isFinite(value));
  if (bad < 0) return;
  throw new InputError(`${file}: tensor "${name}" holds ${data[bad]} at element ${bad}; the weights are damaged.`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

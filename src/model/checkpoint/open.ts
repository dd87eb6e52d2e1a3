/**
 * Opens a Hugging Face checkpoint without reading its weights: config, tokenizer, and every header checked against the
 * config. The weights are then read in pieces of a few MiB, so that host memory never holds the full model.
 */

import { parseModelConfig } from '../config.ts';
import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import type { PackedFormat } from '../../gpu/packedFormat.ts';
import { InputError } from '../../errors.ts';
import { extensionPoint } from '../../extensionPoint.ts';
import { elementCount, parameterSpecs } from '../params.ts';
import { decodeTensor, readSafetensorsHeader, safetensorsHeaderBytes, type SafetensorsEntry } from './safetensors.ts';
import {
  type CheckpointFiles,
  jsonIn,
  readOtherFiles,
  readSourceFiles,
  readStoredJson,
  type SourceFiles,
  type StoredTensor,
  tokenizerIn,
  type TokenizerJson,
  withGenerationConfig,
} from './sourceFiles.ts';

/** A piece of one tensor: complete rows, as float32. */
export interface WeightPiece {
  /** Hugging Face name. */
  name: string;
  /** Shape of the complete tensor. */
  shape: number[];
  /** Index of the piece's first element in the tensor, a multiple of the row length. */
  first: number;
  data: Float32Array;
  /** Reads the values of the same piece in the packed format of the file; see `OpenCheckpoint.packed`. */
  words?: () => Promise<Uint32Array>;
}

/**
 * Weights that are read piece by piece on request, in the order of `parameterSpecs`; they can be read more than once.
 */
export interface WeightSource {
  pieces(): AsyncIterable<WeightPiece>;
}

export interface OpenCheckpoint extends TokenizerJson {
  config: ModelConfig;
  weights: WeightSource;
  /**
   * Formats by tensor, for tensors that the file has in a packed format of the GPU; their pieces have `words`.
   * Undefined if no tensor has one.
   */
  packed?: Readonly<Record<string, PackedFormat>>;
  /** Text files of the checkpoint, unchanged. A saved model contains those that training does not change. */
  sourceFiles: SourceFiles;
}

/** Parts of a GGUF file, whose tensors are read on request. */
export interface GgufParts {
  config: ModelConfig;
  tensors: Tensors;
  tokenizer: TokenizerJson;
}

/** Reads the header of the GGUF file `name`. Throws InputError. */
export const ggufReader = extensionPoint<(files: CheckpointFiles, name: string) => Promise<GgufParts>>('GGUF files');

/** Maximum bytes of a piece as float32. A piece has at least one row, which can be longer. */
const PIECE_BYTES = 8 << 20;

const WEIGHTS = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';

/** Names of buffers in old Llama checkpoints, which are ignored because their values follow from the config. */
const DERIVED = /\.rotary_emb\.inv_freq$/;

type Tensors = ReadonlyMap<string, StoredTensor>;
type Shapes = ReadonlyMap<string, { shape: number[] }>;

/**
 * Opens a checkpoint. Throws an InputError that names the file and tensor if anything is missing, corrupt, or does not
 * fit the config.
 */
export async function openCheckpoint(files: CheckpointFiles): Promise<OpenCheckpoint> {
  if (files.gguf !== undefined) return openGguf(files, files.gguf);
  const sourceFiles = new Map([...(await readSourceFiles(files)), ...(await readOtherFiles(files))]);
  const configJson = jsonIn(sourceFiles, 'config.json');
  if (!configJson) throw new InputError('The checkpoint has no config.json. Give a folder in Hugging Face format.');
  const config = withGenerationConfig(parseModelConfig(configJson), sourceFiles);
  const tokenizer = tokenizerIn(sourceFiles);
  // The weights' headers are read last: a source that caches one file then already has the file of the first pieces.
  const { tensors, file } = await locateTensors(files);
  checkShapes(config, tensors, file);
  return {
    config,
    weights: { pieces: () => readPieces(config, tensors) },
    ...tokenizer,
    sourceFiles,
  };
}

/**
 * Opens a GGUF file and returns what a checkpoint folder has: config, tokenizer and weights. It has no text files to
 * copy, so a saved model contains only generated ones.
 */
async function openGguf(files: CheckpointFiles, name: string): Promise<OpenCheckpoint> {
  const { config, tensors, tokenizer } = await ggufReader.get()(files, name);
  checkShapes(config, tensors, name);
  const formats = [...tensors].flatMap(([key, { packed }]) => (packed ? [[key, packed.format] as const] : []));
  return {
    config,
    weights: { pieces: () => readPieces(config, tensors) },
    ...(formats.length > 0 && { packed: Object.fromEntries(formats) }),
    ...tokenizer,
    sourceFiles: new Map(),
  };
}

/** Returns the shard files of an index, in order of first mention. */
export function shardsOf(index: Record<string, unknown>): string[] {
  return [...new Set(weightMapOf(index).values())];
}

/** Throws InputError if a tensor is missing, has another shape, or does not belong to a model of this config. */
export function checkShapes(config: ModelConfig, tensors: Shapes, file: string): void {
  const known = new Set<string>();
  for (const { name, shape } of parameterSpecs(config)) {
    known.add(name);
    const found = tensors.get(name)?.shape;
    if (!found) throw missingTensor(config, tensors, name, shape, file);
    if (found.join() === shape.join()) continue;
    throw new InputError(
      `${file}: tensor "${name}" has shape [${found.join(', ')}], but the config asks for ` +
        `[${shape.join(', ')}]. Are config.json and the weights of one model?`,
    );
  }
  for (const [name, { shape }] of tensors) {
    if (known.has(name) || DERIVED.test(name) || isTiedHead(config, name, shape)) continue;
    throw new InputError(
      `${file} has "${name}" [${shape.join(', ')}], which a ${config.architecture} of this config ` +
        `does not use. Is the config of another model?`,
    );
  }
}

/**
 * True for a stored head that is tied to the embedding. Its values are compared with the embedding's when both are
 * read.
 */
function isTiedHead({ tieWordEmbeddings, vocabSize, hiddenSize }: ModelConfig, name: string, shape: number[]): boolean {
  return tieWordEmbeddings && name === 'lm_head.weight' && shape.join() === `${vocabSize},${hiddenSize}`;
}

/** Throws InputError for the first value that is not finite. @param first index of data[0] in the tensor */
export function checkFinite(name: string, data: Float32Array, file: string, first = 0): void {
  // The sum is not finite if a value is not. Only then, or if the sum overflows, the loop below searches for the value.
  let sum = 0;
  for (let i = 0; i < data.length; i++) sum += data[i];
  if (Number.isFinite(sum)) return;
  const bad = data.findIndex((value) => !Number.isFinite(value));
  if (bad < 0) return;
  throw new InputError(
    `${file}: tensor "${name}" holds ${data[bad]} at element ${first + bad}. The weights are damaged.`,
  );
}

/** Runs `checkFinite` on every tensor. */
export function expectFinite(tensors: TensorMap, file: string): void {
  for (const [name, { data }] of tensors) checkFinite(name, data, file);
}

function differentHead(file: string): InputError {
  return new InputError(
    `${file}: "lm_head.weight" differs from the embedding, but config.json says "tie_word_embeddings": true.`,
  );
}

async function* readPieces(config: ModelConfig, tensors: Tensors): AsyncIterable<WeightPiece> {
  const storedHead = config.tieWordEmbeddings ? tensors.get('lm_head.weight') : undefined;
  for (const { name, shape } of parameterSpecs(config)) {
    const entry = tensors.get(name)!;
    const total = elementCount(shape);
    const row = elementCount(shape.slice(1));
    const step = Math.max(1, Math.floor(PIECE_BYTES / 4 / row)) * row;
    for (let first = 0; first < total; first += step) {
      const count = Math.min(step, total - first);
      const data = await entry.read(first, count);
      checkFinite(name, data, entry.file, first);
      if (storedHead && name === 'model.embed_tokens.weight') {
        const twin = await storedHead.read(first, count);
        if (twin.some((value, i) => value !== data[i])) throw differentHead(storedHead.file);
      }
      const { packed } = entry;
      yield { name, shape, first, data, ...(packed && { words: () => packed.read(first, count) }) };
    }
  }
}

async function readElements(
  files: CheckpointFiles,
  file: string,
  entry: SafetensorsEntry,
  first: number,
  count: number,
) {
  const width = entry.dtype === 'F32' ? 4 : 2;
  const begin = entry.begin + first * width;
  const bytes = await files.read(file, begin, begin + count * width);
  if (bytes.length === count * width) return decodeTensor(entry.dtype, bytes);
  throw new InputError(
    `${file}: ${count * width} bytes of "${entry.name}" were requested, but ${bytes.length} arrived. The file was ` +
      `truncated while it was read.`,
  );
}

/**
 * Locates the tensors of one safetensors file, or of the shards in an index. Errors about the complete set name `file`.
 */
async function locateTensors(files: CheckpointFiles): Promise<{ tensors: Tensors; file: string }> {
  const whole = await readHeader(files, WEIGHTS);
  if (whole) return { tensors: new Map(whole), file: WEIGHTS };
  const index = await readStoredJson(files, INDEX);
  if (!index) throw new InputError(`The checkpoint has neither ${WEIGHTS} nor ${INDEX}. Convert it to safetensors.`);
  return { tensors: await locateInShards(files, weightMapOf(index)), file: INDEX };
}

async function locateInShards(files: CheckpointFiles, weightMap: Map<string, string>): Promise<Tensors> {
  const tensors = new Map<string, StoredTensor>();
  for (const shard of new Set(weightMap.values())) {
    const entries = await readHeader(files, shard);
    if (!entries) throw new InputError(`The checkpoint has no ${shard}, which ${INDEX} names. Download it again.`);
    for (const [name, tensor] of entries) {
      const home = weightMap.get(name);
      if (home !== shard) {
        const places = home === undefined ? 'does not name' : `places in ${home}`;
        throw new InputError(`${shard} holds the tensor "${name}", which ${INDEX} ${places}.`);
      }
      tensors.set(name, tensor);
    }
  }
  for (const [name, shard] of weightMap) {
    if (!tensors.has(name)) throw new InputError(`${shard} has no "${name}", which ${INDEX} places there.`);
  }
  return tensors;
}

/** Reads only the header, which has the position of every tensor. */
async function readHeader(files: CheckpointFiles, file: string): Promise<[name: string, StoredTensor][] | undefined> {
  const size = await files.size(file);
  if (size === undefined) return undefined;
  const start = await files.read(file, 0, Math.min(8, size));
  const length = safetensorsHeaderBytes(start, size, file);
  const { entries } = readSafetensorsHeader(await files.read(file, 0, length), size, file);
  return entries.map((entry) => {
    const read = (first: number, count: number) => readElements(files, file, entry, first, count);
    return [entry.name, { shape: entry.shape, file, read }];
  });
}

/** Matches the name of a safetensors file in the same folder: not a path, and not a device name of Windows. */
const SHARD = /^(?!(con|prn|aux|nul|com\d|lpt\d)\.)\w[\w.-]{0,199}\.safetensors$/i;

function weightMapOf(index: Record<string, unknown>): Map<string, string> {
  const map = index['weight_map'];
  const entries = isObject(map) ? Object.entries(map) : [];
  const isName = (shard: unknown) => typeof shard === 'string' && SHARD.test(shard);
  if (entries.length > 0 && entries.every(([, shard]) => isName(shard))) {
    return new Map(entries as [string, string][]);
  }
  throw new InputError(`${INDEX} has no "weight_map" from tensor names to .safetensors files beside it.`);
}

function missingTensor(config: ModelConfig, tensors: Shapes, name: string, shape: number[], file: string): InputError {
  const [example] = tensors.keys();
  const some = example === undefined ? 'no tensors' : `${tensors.size} tensors, e.g. "${example}"`;
  const family = config.architecture.replace('ForCausalLM', '');
  return new InputError(
    `${file} has no "${name}" [${shape.join(', ')}]. It has ${some}. Is this a ${family} checkpoint?`,
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Reads a GGUF file as the parts of a checkpoint: config, tokenizer, and tensors, which are read and decoded on
 * request.
 */

import { InputError } from '../../errors.ts';
import { PACKED_BLOCK, packedBytes } from '../../gpu/packedFormat.ts';
import { type ModelConfig, parseModelConfig } from '../../model/config.ts';
import type { GgufParts } from '../../model/checkpoint/open.ts';
import type { CheckpointFiles, StoredTensor } from '../../model/checkpoint/sourceFiles.ts';
import { BLOCKS, PACKED_AS, repackBlocks, unpackBlocks } from './blocks.ts';
import { type GgufFile, type GgufTensorInfo, type GgufValue, readExactly, readGgufHeader, shown } from './header.ts';
import { huggingFaceName, ROPE_FACTORS } from './names.ts';
import { llama3Scaling, shortest } from './rope.ts';
import { endTokenIds, tokenizerOf } from './tokenizer.ts';

const ARCHITECTURES: Record<string, ModelConfig['architecture']> = {
  llama: 'LlamaForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  qwen3: 'Qwen3ForCausalLM',
};

/** Reads the header of the GGUF file `name`. The header has the position of every tensor. Throws InputError. */
export async function readGguf(files: CheckpointFiles, name: string): Promise<GgufParts> {
  const size = await files.size(name);
  if (size === undefined) throw new InputError(`There is no file ${name}. Check its path.`);
  const file: GgufFile = { name, size, read: (begin, end) => files.read(name, begin, end) };
  const { metadata, tensors: infos } = await readGgufHeader(file);
  const byName = new Map<string, GgufTensorInfo>();
  for (const info of infos) {
    const hf = huggingFaceName(info.name);
    const other = byName.get(hf);
    if (other)
      throw new InputError(
        `${name} has the tensors ${shown(other.name)} and ${shown(info.name)}, which are both "${hf}". Choose another file of the model.`,
      );
    byName.set(hf, info);
  }
  const factors = byName.get(ROPE_FACTORS);
  byName.delete(ROPE_FACTORS);
  const settings = new Settings(metadata, name);
  const config = settings.config(byName, factors && (await readFactors(file, factors)));
  const tensors = new Map([...byName].map(([hf, info]) => [hf, storedTensor(file, info, turnedHead(config, hf))]));
  return { config, tensors, tokenizer: tokenizerOf(metadata, { file: name, vocabSize: config.vocabSize }) };
}

/** Reads settings of the architecture, such as `llama.block_count`: their keys begin with the architecture's name. */
class Settings {
  private readonly metadata: ReadonlyMap<string, GgufValue>;
  private readonly file: string;
  private readonly family: string;

  constructor(metadata: ReadonlyMap<string, GgufValue>, file: string) {
    this.metadata = metadata;
    this.file = file;
    if (!([0, 1] as GgufValue[]).includes(metadata.get('split.count') ?? 0))
      throw new InputError(
        `${file} is one part of a split model, but only a complete file can be read. Join the parts with "llama-gguf-split --merge".`,
      );
    const family = metadata.get('general.architecture');
    if (typeof family !== 'string' || !Object.hasOwn(ARCHITECTURES, family))
      throw new InputError(
        `${file} has the general.architecture ${shown(family)}; allowed are ${Object.keys(ARCHITECTURES).join(', ')}. Choose a model of these.`,
      );
    this.family = family;
  }

  config(tensors: ReadonlyMap<string, GgufTensorInfo>, factors: Float32Array | undefined): ModelConfig {
    this.refuseUnsupported();
    const architecture = ARCHITECTURES[this.family];
    const [hiddenSize, heads] = [this.count('embedding_length'), this.count('attention.head_count')];
    const headDim = this.count('attention.key_length', hiddenSize / heads);
    this.expect('attention.value_length', headDim);
    this.expect('rope.dimension_count', headDim);
    const embedding = tensors.get('model.embed_tokens.weight')?.shape;
    if (embedding?.length !== 2)
      throw new InputError(`${this.file} has no matrix "token_embd.weight". Choose a file that holds a whole model.`);
    const has = (part: string) => tensors.has(`model.layers.0.${part}.bias`);
    const theta = this.positive('rope.freq_base', 10000);
    const json = {
      architectures: [architecture],
      vocab_size: embedding[0],
      hidden_size: hiddenSize,
      intermediate_size: this.count('feed_forward_length'),
      num_hidden_layers: this.count('block_count'),
      num_attention_heads: heads,
      num_key_value_heads: this.count('attention.head_count_kv', heads),
      head_dim: headDim,
      rms_norm_eps: this.positive('attention.layer_norm_rms_epsilon'),
      rope_theta: theta,
      rope_scaling: factors ? this.llama3(factors, theta, headDim) : this.linearScaling(),
      max_position_embeddings: this.count('context_length'),
      tie_word_embeddings: !tensors.has('lm_head.weight'),
      attention_bias: has('self_attn.q_proj'),
      mlp_bias: has('mlp.gate_proj'),
      eos_token_id: [...new Set(endTokenIds(this.metadata))],
    };
    try {
      return parseModelConfig(json);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      const remedy = /\. [A-Z]/.test(error.message) ? '' : ' Choose another model.';
      throw new InputError(`${this.file}, as a ${error.message}${remedy}`, { cause: error });
    }
  }

  /** Throws InputError for a setting that the engine does not support. */
  private refuseUnsupported(): void {
    for (const [key, allowed] of Object.entries(UNSUPPORTED)) {
      const value = this.get(key);
      if (value === undefined || allowed.includes(value)) continue;
      this.refuse(key, allowed.length === 0 ? 'none' : allowed.map(shown).join(', '));
    }
  }

  private linearScaling() {
    const type = this.get('rope.scaling.type') ?? 'none';
    if (type === 'linear') return { rope_type: 'linear', factor: this.positive('rope.scaling.factor') };
    return type === 'none' ? null : this.refuse('rope.scaling.type', '"none", "linear"');
  }

  private llama3(factors: Float32Array, ropeTheta: number, headDim: number) {
    const scaling = llama3Scaling(factors, { ropeTheta, headDim });
    if (scaling) return scaling;
    throw new InputError(
      `${this.file} has ${factors.length} divisors in "${ROPE_FACTORS}" that are not Llama 3's for a head of ${headDim}. Choose another model.`,
    );
  }

  private expect(key: string, value: number): void {
    if ((this.get(key) ?? value) !== value) this.refuse(key, `${value}, as many as a head has`);
  }

  private count(key: string, fallback?: number): number {
    const value = this.get(key) ?? fallback;
    if (typeof value === 'number' && Number.isInteger(value) && value > 0 && value < 2 ** 31) return value;
    return this.refuse(key, 'a positive whole number');
  }

  private positive(key: string, fallback?: number): number {
    const value = this.get(key) ?? fallback;
    if (typeof value !== 'number' || !(value > 0 && value < Infinity)) return this.refuse(key, 'a positive number');
    return shortest(value);
  }

  private get(key: string): GgufValue | undefined {
    return this.metadata.get(`${this.family}.${key}`);
  }

  private refuse(key: string, allowed: string): never {
    throw new InputError(
      `${this.file} has ${shown(this.get(key))} for "${this.family}.${key}"; allowed: ${allowed}. Choose another model.`,
    );
  }
}

/**
 * Settings that the engine does not support. Each has the values that do not change the model and are therefore
 * accepted.
 */
const UNSUPPORTED: Record<string, readonly GgufValue[]> = {
  expert_count: [0],
  'attention.sliding_window': [0],
  'attention.causal': [true],
  'attention.scale': [],
  attn_logit_softcapping: [],
  final_logit_softcapping: [],
  logit_scale: [],
  residual_scale: [],
  embedding_scale: [],
  // Older files have the factor of linear scaling under this key.
  'rope.scale_linear': [1],
  'rope.scaling.attn_factor': [0, 1],
};

/** Maximum number of divisors of rotary frequencies: more than any head has. */
const MAX_FACTORS = 1024;

async function readFactors(file: GgufFile, { shape, type, begin, bytes }: GgufTensorInfo): Promise<Float32Array> {
  if (shape.length === 1 && shape[0] <= MAX_FACTORS && type === 'F32')
    return unpackBlocks(type, await readExactly(file, begin, begin + bytes));
  throw new InputError(
    `${file.name} has the "${ROPE_FACTORS}" ${type} [${shape.join(', ')}]; allowed is F32 [head_dim / 2]. Choose another model.`,
  );
}

/**
 * Returns the number of rows per head if the file has a head's rows in another order than Hugging Face; undefined
 * otherwise. For RoPE, Llama in llama.cpp rotates pairs of neighbouring rows, Hugging Face rotates the two halves of a
 * head.
 */
function turnedHead({ architecture, headDim }: ModelConfig, name: string): number | undefined {
  return architecture === 'LlamaForCausalLM' && /\.[qk]_proj\./.test(name) ? headDim : undefined;
}

/** @param head number of rows per head, if the rows must be reordered */
function storedTensor(file: GgufFile, info: GgufTensorInfo, head: number | undefined): StoredTensor {
  const { shape, type } = info;
  const format = shape.length === 2 ? PACKED_AS[type] : undefined;
  const values = inOrder(file, info, head, { each: 1, unpack: (bytes) => unpackBlocks(type, bytes) });
  if (!format) return { shape, file: file.name, read: values };
  const each = packedBytes(format, PACKED_BLOCK) / 4 / PACKED_BLOCK;
  const read = inOrder(file, info, head, { each, unpack: (bytes) => repackBlocks(format, bytes) });
  return { shape, file: file.name, read: values, packed: { format, read } };
}

/** Conversion of the bytes of complete blocks to an array with `each` elements per value. */
interface Unpacking<T> {
  each: number;
  unpack(bytes: Uint8Array): T;
}

/** Returns a function that reads values of a tensor and puts the rows of each head in Hugging Face's order. */
function inOrder<T extends Float32Array | Uint32Array>(
  file: GgufFile,
  info: GgufTensorInfo,
  head: number | undefined,
  how: Unpacking<T>,
): (first: number, count: number) => Promise<T> {
  if (head === undefined) return (first, count) => readValues(file, info, first, count, how);
  const width = info.shape.slice(1).reduce((product, size) => product * size, 1);
  return async (first, count) => {
    const span = head * width;
    const begin = Math.floor(first / span) * span;
    const end = Math.ceil((first + count) / span) * span;
    const whole = turned(await readValues(file, info, begin, end - begin, how), head, width * how.each);
    return whole.subarray((first - begin) * how.each, (first - begin + count) * how.each) as T;
  };
}

/**
 * Reorders the rows of each head: row 2i becomes row i of the first half, row 2i + 1 becomes row i of the second half.
 */
function turned<T extends Float32Array | Uint32Array>(data: T, head: number, width: number): T {
  const out = data.slice() as T;
  for (let row = 0; row < data.length / width; row++) {
    const inHead = row % head;
    const to = row - inHead + (inHead >> 1) + (inHead % 2 === 0 ? 0 : head / 2);
    out.set(data.subarray(row * width, (row + 1) * width), to * width);
  }
  return out;
}

/**
 * Reads any range of a tensor's values: reads the complete blocks that contain the range and drops the other values.
 */
async function readValues<T extends Float32Array | Uint32Array>(
  file: GgufFile,
  { type, begin }: GgufTensorInfo,
  first: number,
  count: number,
  { each, unpack }: Unpacking<T>,
): Promise<T> {
  const { values, bytes } = BLOCKS[type];
  const [from, to] = [Math.floor(first / values), Math.ceil((first + count) / values)];
  const all = unpack(await readExactly(file, begin + from * bytes, begin + to * bytes));
  const start = (first - from * values) * each;
  return all.subarray(start, start + count * each) as T;
}

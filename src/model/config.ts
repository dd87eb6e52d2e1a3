/**
 * A Hugging Face `config.json`, read into the dimensions that every other file uses.
 *
 * Legend of dims, used in every shape comment of this project:
 *   B sequences  T tokens  N rows (tokens of many sequences concatenated)  C hidden  H query heads  K key/value heads
 *   D head dim  F MLP width  V vocabulary  L layers  G samples per prompt  S samples  E predicted tokens  R head rows
 *   P positions
 */

import { InputError } from '../errors.ts';

interface RopeScaling {
  ropeType: 'llama3' | 'linear';
  factor: number;
  /** Set only if `ropeType` is llama3, like the next two keys. */
  lowFreqFactor?: number;
  highFreqFactor?: number;
  originalMaxPositionEmbeddings?: number;
}

/**
 * Sizes and options of a model of the Llama family, read from config.json. `parseModelConfig` fills in values that the
 * file lacks.
 */
export interface ModelConfig {
  /** Class name in transformers. */
  architecture: 'LlamaForCausalLM' | 'Qwen2ForCausalLM' | 'Qwen3ForCausalLM' | 'SmolLM3ForCausalLM';
  /** V */ vocabSize: number;
  /** C */ hiddenSize: number;
  /** F */ intermediateSize: number;
  /** L */ numHiddenLayers: number;
  /** H */ numAttentionHeads: number;
  /** K */ numKeyValueHeads: number;
  /** D, the dimension of one head; not always C / H */ headDim: number;
  /** Constant that RMSNorm adds to the mean square before the root. */
  rmsNormEps: number;
  /** Base of the rotary frequencies. */
  ropeTheta: number;
  /** Scaling of the rotary frequencies for longer contexts; null = no scaling. */
  ropeScaling: RopeScaling | null;
  /** Number of positions that the model was trained for. */
  maxPositionEmbeddings: number;
  /** True if the language-model head uses the embedding's weights. */
  tieWordEmbeddings: boolean;
  /** True for a bias on the q, k and v projections (always in Qwen2; `attention_bias` in other models). */
  qkvBias: boolean;
  /**
   * True for a bias on the output projection of attention, which `attention_bias` also sets, except in Qwen2. Default:
   * false.
   */
  oBias?: boolean;
  /** True for a bias on the gate, up and down projections (Llama's `mlp_bias`). Default: false. */
  mlpBias?: boolean;
  /** True for an RMSNorm over the D values of every q and k head before RoPE (Qwen3). */
  qkNorm: boolean;
  /** Standard deviation of newly initialised weights. */
  initializerRange: number;
  /**
   * Token ids in `eos_token_id`, and in `generation_config.json` if the folder has that file. Undefined: only the
   * tokenizer's `eos_token` ends a turn.
   */
  eosTokenIds?: number[];
}

/** transformers' defaults of keys whose default depends on the architecture. */
const DEFAULTS = {
  LlamaForCausalLM: { modelType: 'llama', kvHeads: null, headDim: null, maxPositions: 2048, theta: 1e4, tied: false },
  Qwen2ForCausalLM: { modelType: 'qwen2', kvHeads: 32, headDim: null, maxPositions: 32768, theta: 1e4, tied: false },
  Qwen3ForCausalLM: { modelType: 'qwen3', kvHeads: 32, headDim: 128, maxPositions: 32768, theta: 1e4, tied: false },
  SmolLM3ForCausalLM: { modelType: 'smollm3', kvHeads: 4, headDim: null, maxPositions: 32768, theta: 2e6, tied: true },
} as const;

type Json = Record<string, unknown>;

/**
 * Reads a parsed Hugging Face `config.json`. Throws InputError that names the key and value for anything that this
 * project would compute differently from transformers.
 */
export function parseModelConfig(json: unknown): ModelConfig {
  if (!isObject(json)) throw new InputError(`config.json must hold a JSON object, but holds ${show(json)}.`);
  const architecture = readArchitecture(json);
  refuseUnsupported(json, architecture);
  const defaults = DEFAULTS[architecture];
  const hiddenSize = readCount(json, 'hidden_size');
  const vocabSize = readCount(json, 'vocab_size');
  const eosTokenIds = readEosTokenIds(json, 'config.json', vocabSize);
  const numAttentionHeads = readCount(json, 'num_attention_heads');
  const config: ModelConfig = {
    architecture,
    vocabSize,
    hiddenSize,
    intermediateSize: readCount(json, 'intermediate_size'),
    numHiddenLayers: readCount(json, 'num_hidden_layers'),
    numAttentionHeads,
    numKeyValueHeads: readCount(json, 'num_key_value_heads', defaults.kvHeads ?? numAttentionHeads),
    headDim: readCount(json, 'head_dim', defaults.headDim ?? hiddenSize / numAttentionHeads),
    rmsNormEps: readPositive(json, 'rms_norm_eps', 1e-6),
    ...readRope(json, defaults.theta),
    maxPositionEmbeddings: readCount(json, 'max_position_embeddings', defaults.maxPositions),
    tieWordEmbeddings: readFlag(json, 'tie_word_embeddings', defaults.tied),
    ...readBiases(json, architecture),
    qkNorm: architecture === 'Qwen3ForCausalLM',
    initializerRange: readPositive(json, 'initializer_range', 0.02),
    ...(eosTokenIds.length > 0 && { eosTokenIds }),
  };
  checkHeads(config);
  checkSizes(config);
  return config;
}

/** Inverse of `parseModelConfig`: returns a `config.json` that transformers 4 and 5 both read. */
export function modelConfigToJson(config: ModelConfig): Json {
  return {
    architectures: [config.architecture],
    model_type: DEFAULTS[config.architecture].modelType,
    vocab_size: config.vocabSize,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.numHiddenLayers,
    num_attention_heads: config.numAttentionHeads,
    num_key_value_heads: config.numKeyValueHeads,
    head_dim: config.headDim,
    hidden_act: 'silu',
    rms_norm_eps: config.rmsNormEps,
    rope_theta: config.ropeTheta,
    rope_scaling: config.ropeScaling && ropeScalingToJson(config.ropeScaling),
    max_position_embeddings: config.maxPositionEmbeddings,
    tie_word_embeddings: config.tieWordEmbeddings,
    ...(config.architecture === 'SmolLM3ForCausalLM' && { no_rope_layers: Array(config.numHiddenLayers).fill(1) }),
    ...(config.oBias && { attention_bias: true }),
    ...(config.mlpBias && { mlp_bias: true }),
    initializer_range: config.initializerRange,
    ...(config.eosTokenIds && { eos_token_id: oneOrAll(config.eosTokenIds) }),
    torch_dtype: 'float32',
  };
}

/** Token ids as transformers writes them: a number for one id, a list for several. */
export const oneOrAll = (ids: readonly number[]): number | readonly number[] => (ids.length === 1 ? ids[0] : ids);

/**
 * Returns the ids of `eos_token_id` (a number or a list), without repeats; [] if it is null or missing. Throws
 * InputError that names `file`.
 */
export function readEosTokenIds(json: Json, file: string, vocabSize: number): number[] {
  const value = json['eos_token_id'] ?? [];
  const ids: unknown[] = Array.isArray(value) ? value : [value];
  const isId = (id: unknown): id is number => Number.isInteger(id) && (id as number) >= 0 && (id as number) < vocabSize;
  if (ids.every(isId)) return [...new Set(ids)];
  throw new InputError(
    `${file}: "eos_token_id" is ${show(value)}; allowed: a token id from 0 to ${vocabSize - 1}, a list of them, or null. ` +
      'Correct it, or use the file of the model itself.',
  );
}

/** RoPE tables cos and sin [P, D / 2] for the kernels, computed in float64 and rounded once. */
export function ropeTables(config: ModelConfig, maxPositions: number): { cos: Float32Array; sin: Float32Array } {
  const { cos, sin } = ropeTables64(config, maxPositions);
  return { cos: Float32Array.from(cos), sin: Float32Array.from(sin) };
}

/** Like `ropeTables`, but not rounded, for the reference model. */
export function ropeTables64(config: ModelConfig, maxPositions: number): { cos: Float64Array; sin: Float64Array } {
  const frequencies = ropeFrequencies(config);
  const half = frequencies.length;
  const cos = new Float64Array(maxPositions * half);
  const sin = new Float64Array(maxPositions * half);
  for (let p = 0; p < maxPositions; p++) {
    for (let i = 0; i < half; i++) {
      cos[p * half + i] = Math.cos(p * frequencies[i]);
      sin[p * half + i] = Math.sin(p * frequencies[i]);
    }
  }
  return { cos, sin };
}

/** Radians per position of each of the D / 2 planes, after scaling. */
export function ropeFrequencies({ headDim, ropeTheta, ropeScaling }: ModelConfig): Float64Array {
  return Float64Array.from({ length: headDim / 2 }, (_, i) => {
    const frequency = ropeTheta ** ((-2 * i) / headDim);
    if (!ropeScaling) return frequency;
    return ropeScaling.ropeType === 'linear' ? frequency / ropeScaling.factor : llama3Scaled(frequency, ropeScaling);
  });
}

/**
 * Llama 3.1's scaling rule: long wavelengths are multiplied by `factor`, short ones stay unchanged, and those between
 * are interpolated.
 */
function llama3Scaled(frequency: number, scaling: RopeScaling): number {
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositionEmbeddings } = scaling;
  if (lowFreqFactor === undefined || highFreqFactor === undefined || originalMaxPositionEmbeddings === undefined) {
    throw new InputError('llama3 RoPE scaling needs lowFreqFactor, highFreqFactor and originalMaxPositionEmbeddings.');
  }
  const turns = (originalMaxPositionEmbeddings * frequency) / (2 * Math.PI);
  if (turns < lowFreqFactor) return frequency / factor;
  if (turns > highFreqFactor) return frequency;
  const keep = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return ((1 - keep) * frequency) / factor + keep * frequency;
}

function readArchitecture(json: Json): ModelConfig['architecture'] {
  const known = Object.keys(DEFAULTS) as ModelConfig['architecture'][];
  const named = json['architectures'];
  const found = Array.isArray(named) && named.length === 1 ? (named[0] as unknown) : undefined;
  const architecture = known.find(
    (name) => name === found || (named === undefined && DEFAULTS[name].modelType === json['model_type']),
  );
  if (architecture) return architecture;
  const what =
    named === undefined ? `"model_type" is ${show(json['model_type'])}` : `"architectures" is ${show(named)}`;
  throw new InputError(
    `config.json: ${what}; supported: one of ${known.join(', ')}. Choose a model of these families.`,
  );
}

/**
 * Throws InputError that names the first key whose value would change the model's computation in a way that is not
 * supported.
 */
function refuseUnsupported(json: Json, architecture: ModelConfig['architecture']): void {
  const refuse = (key: string, allowed: string): never => {
    throw new InputError(
      `config.json: "${key}" is ${show(json[key])}, which is not supported; allowed: ${allowed}. Choose another model.`,
    );
  };
  const isOff = (key: string) => json[key] === undefined || json[key] === null || json[key] === false;
  if (json['hidden_act'] !== undefined && json['hidden_act'] !== 'silu') refuse('hidden_act', '"silu"');
  if (skipsRope(json, architecture)) refuse('no_rope_layers', 'a 1 for every layer');
  if ((json['attention_dropout'] ?? 0) !== 0) refuse('attention_dropout', '0');
  if ((json['partial_rotary_factor'] ?? 1) !== 1) refuse('partial_rotary_factor', '1');
  if (!isOff('quantization_config')) refuse('quantization_config', 'an unquantised checkpoint');
  if (slidingWindowInUse(json, architecture)) refuse('sliding_window', 'full attention in every layer');
  const layers = json['layer_types'];
  if (Array.isArray(layers) && layers.some((type) => type !== 'full_attention')) {
    refuse('layer_types', '"full_attention" in every layer');
  }
}

/** True if a layer skips RoPE: SmolLM3 skips it in every fourth layer unless the list says otherwise. */
function skipsRope(json: Json, architecture: ModelConfig['architecture']): boolean {
  const layers = json['no_rope_layers'];
  if (!Array.isArray(layers)) return architecture === 'SmolLM3ForCausalLM';
  return layers.length !== json['num_hidden_layers'] || layers.some((on) => on !== 1);
}

/**
 * Qwen2 always has a bias on q, k and v only, whatever `attention_bias` says. Only Llama and SmolLM3 read `mlp_bias`.
 */
function readBiases(json: Json, architecture: ModelConfig['architecture']) {
  if (architecture === 'Qwen2ForCausalLM') return { qkvBias: true };
  const readsMlp = architecture === 'LlamaForCausalLM' || architecture === 'SmolLM3ForCausalLM';
  const qkvBias = readFlag(json, 'attention_bias', false);
  const mlpBias = readsMlp && readFlag(json, 'mlp_bias', false);
  return { qkvBias, ...(qkvBias && { oBias: true }), ...(mlpBias && { mlpBias }) };
}

/** Qwen's rule: layers from `max_window_layers` on use a sliding window, if `use_sliding_window` is true. */
function slidingWindowInUse(json: Json, architecture: ModelConfig['architecture']): boolean {
  const window = json['sliding_window'];
  if (architecture === 'LlamaForCausalLM') return typeof window === 'number';
  if (window === null || json['use_sliding_window'] !== true) return false; // a key that is absent stands for 4096 tokens
  const firstWindowed = json['max_window_layers'] ?? 28;
  return !(typeof firstWindowed === 'number' && firstWindowed >= Number(json['num_hidden_layers']));
}

/**
 * Reads `rope_theta` and `rope_scaling` (transformers 4), or `rope_parameters` (transformers 5), which contains both.
 */
function readRope(json: Json, theta: number): Pick<ModelConfig, 'ropeTheta' | 'ropeScaling'> {
  const key = isObject(json['rope_parameters']) ? 'rope_parameters' : 'rope_scaling';
  const rope = json[key] ?? {};
  if (!isObject(rope)) throw new InputError(`config.json: "${key}" is ${show(rope)}, but must be an object or null.`);
  // In transformers 5 `rope_parameters` can hold one set of parameters for each type of layer, or a factor for rotating
  // only a part of each head.
  const own = Object.entries(rope).find(
    ([name, value]) => isObject(value) || (name === 'partial_rotary_factor' && value !== 1),
  );
  if (own) {
    throw new InputError(
      `config.json: "${key}.${own[0]}" is ${show(own[1])}, which is not supported: every layer must have the same rotary embedding ` +
        'over the complete head. Choose another model.',
    );
  }
  const ropeTheta = readPositive({ rope_theta: rope['rope_theta'] ?? json['rope_theta'] }, 'rope_theta', theta);
  const ropeType = rope['rope_type'] ?? rope['type'] ?? 'default';
  if (ropeType === 'default') return { ropeTheta, ropeScaling: null };
  if (ropeType !== 'llama3' && ropeType !== 'linear') {
    throw new InputError(
      `config.json: "${key}.rope_type" is ${show(ropeType)}; supported: "default", "linear", "llama3". Choose another model.`,
    );
  }
  const factor = readPositive(rope, 'factor');
  if (ropeType === 'linear') return { ropeTheta, ropeScaling: { ropeType, factor } };
  const lowFreqFactor = readPositive(rope, 'low_freq_factor');
  const highFreqFactor = readPositive(rope, 'high_freq_factor');
  if (highFreqFactor <= lowFreqFactor) {
    throw new InputError(
      `config.json: "${key}.high_freq_factor" is ${highFreqFactor}, but must exceed "low_freq_factor" ${lowFreqFactor}.`,
    );
  }
  const originalMaxPositionEmbeddings = readCount(rope, 'original_max_position_embeddings');
  const ropeScaling: RopeScaling = { ropeType, factor, lowFreqFactor, highFreqFactor, originalMaxPositionEmbeddings };
  return { ropeTheta, ropeScaling };
}

function ropeScalingToJson(scaling: RopeScaling): Json {
  if (scaling.ropeType === 'linear') return { rope_type: 'linear', factor: scaling.factor };
  return {
    rope_type: scaling.ropeType,
    factor: scaling.factor,
    low_freq_factor: scaling.lowFreqFactor,
    high_freq_factor: scaling.highFreqFactor,
    original_max_position_embeddings: scaling.originalMaxPositionEmbeddings,
  };
}

/** Largest head dim that the attention kernels support. */
const MAX_HEAD_DIM = 128;

function checkHeads({ numAttentionHeads, numKeyValueHeads, headDim }: ModelConfig): void {
  if (numAttentionHeads % numKeyValueHeads !== 0) {
    throw new InputError(
      `config.json: "num_attention_heads" ${numAttentionHeads} is not a multiple of "num_key_value_heads" ${numKeyValueHeads}.`,
    );
  }
  if (headDim % 2 !== 0) {
    throw new InputError(`config.json: "head_dim" is ${headDim}, but rotary embedding needs an even number.`);
  }
  if (headDim > MAX_HEAD_DIM) {
    throw new InputError(
      `config.json: "head_dim" (or "hidden_size" / "num_attention_heads") is ${headDim}. At most ${MAX_HEAD_DIM} is supported. ` +
        'Choose another model.',
    );
  }
}

/** Limits on sizes: more layers than any model has, and more values per matrix than a buffer of any adapter holds. */
const MAX_LAYERS = 1024;
const MAX_MATRIX = 2 ** 32;

/** Throws InputError for impossible sizes, for which the memory could not even be estimated. */
function checkSizes(config: ModelConfig): void {
  const { numHiddenLayers, hiddenSize, headDim, numAttentionHeads } = config;
  if (numHiddenLayers > MAX_LAYERS) {
    throw new InputError(`config.json: the model has ${numHiddenLayers} layers. At most ${MAX_LAYERS} are supported.`);
  }
  const widest = Math.max(config.vocabSize, config.intermediateSize, numAttentionHeads * headDim);
  if (widest * hiddenSize > MAX_MATRIX) {
    throw new InputError(
      `config.json: the largest matrix is ${widest} by ${hiddenSize}. At most ${MAX_MATRIX} values fit in one.`,
    );
  }
}

function readCount(json: Json, key: string, fallback?: number): number {
  const value = readPositive(json, key, fallback);
  if (!Number.isInteger(value)) {
    throw new InputError(`config.json: "${key}" must be a positive integer, but is ${value}.`);
  }
  return value;
}

/**
 * Smallest and largest values with which float32 arithmetic and the tables of positions work. Each range is wider than
 * any model needs.
 */
const RANGES: Readonly<Record<string, readonly [number, number]>> = {
  rms_norm_eps: [1e-30, 1],
  rope_theta: [1, 1e12],
  factor: [1e-3, 1e6],
  low_freq_factor: [1e-6, 1e6],
  high_freq_factor: [1e-6, 1e6],
  max_position_embeddings: [1, 2 ** 24],
  original_max_position_embeddings: [1, 2 ** 24],
  initializer_range: [1e-30, 1e3],
};

function readPositive(json: Json, key: string, fallback?: number): number {
  const value = json[key] ?? fallback;
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) {
    const [min, max] = RANGES[key] ?? [0, Infinity];
    if (value >= min && value <= max) return value;
    throw new InputError(
      `config.json: "${key}" is ${value}; allowed: ${min} to ${max}. Correct it, or use the file of the model itself.`,
    );
  }
  const found = value === undefined ? 'absent' : show(value);
  throw new InputError(`config.json: "${key}" must be a positive number, but is ${found}.`);
}

function readFlag(json: Json, key: string, fallback: boolean): boolean {
  const value = json[key] ?? fallback;
  if (typeof value === 'boolean') return value;
  throw new InputError(`config.json: "${key}" must be true or false, but is ${show(value)}.`);
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Truncates a value from the file to fit into an error message. */
function show(value: unknown): string {
  const text = JSON.stringify(value) ?? 'absent';
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

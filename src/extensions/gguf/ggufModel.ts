/**
 * Converts a model to GGUF, the file format of llama.cpp. Tensor names, order and metadata follow llama.cpp's `convert_hf_to_gguf.py`.
 * Supports only byte-level BPE tokenizers, which all model families here have.
 */

import { InputError } from '../../errors.ts';
import type { ModelConfig } from '../../model/config.ts';
import { elementCount, parameterSpecs } from '../../model/params.ts';
import type { CheckpointWithTokenizer } from '../../model/checkpoint/checkpoint.ts';
import { LAYER_NAMES, NAMES, ROPE_FACTORS, SPLITTINGS, TOKEN_TYPES, TOKENIZER_JSON } from './names.ts';
import { ropeFactors } from './rope.ts';
import { type GgufTensor, type GgufType, type GgufValue, Q8_BLOCK, writeGguf } from './gguf.ts';

/**
 * GGUF's names of the architectures. SmolLM3 is exported as Llama, because llama.cpp's SmolLM3 has no RoPE in every fourth layer, and ours
 * has it in all.
 */
const ARCHITECTURES = {
  LlamaForCausalLM: 'llama',
  SmolLM3ForCausalLM: 'llama',
  Qwen2ForCausalLM: 'qwen2',
  Qwen3ForCausalLM: 'qwen3',
} as const;

/** llama.cpp's ids of the file types (general.file_type). */
const FILE_TYPES: Record<GgufType, number> = { F32: 0, F16: 1, Q8_0: 7 };

export interface GgufModel {
  bytes: Uint8Array<ArrayBuffer>;
  /** One sentence for each difference between the model in llama.cpp and here. */
  notes: string[];
}

/**
 * Converts a model to a GGUF file. Matrices are stored in `type` (or in F16, if `type` is Q8_0 and the length of their rows is not a
 * multiple of 32), vectors in F32. Throws InputError.
 */
export function ggufModel({ name, type }: { name: string; type: GgufType }, model: CheckpointWithTokenizer): GgufModel {
  const { config } = model;
  const { architecture, numAttentionHeads, headDim, hiddenSize } = config;
  if (architecture === 'Qwen2ForCausalLM' && numAttentionHeads * headDim !== hiddenSize)
    throw new InputError(
      `llama.cpp runs Qwen2 only where heads x head_dim is hidden_size; here they are ${numAttentionHeads} x ${headDim} and ${hiddenSize}.`,
    );
  const tokenizer = tokenizerMetadata(model);
  const metadata = new Map<string, GgufValue>([
    ['general.architecture', ARCHITECTURES[config.architecture]],
    ['general.type', 'model'],
    ['general.name', name],
    ['general.file_type', FILE_TYPES[type]],
    ['general.quantization_version', 2],
    ...modelMetadata(config),
    ...tokenizer.metadata,
  ]);
  return { bytes: writeGguf(metadata, tensorsOf(model, type)), notes: tokenizer.notes };
}

function modelMetadata(config: ModelConfig): [string, GgufValue][] {
  const { ropeScaling } = config;
  const entries: [string, GgufValue][] = [
    ['vocab_size', config.vocabSize],
    ['context_length', config.maxPositionEmbeddings],
    ['embedding_length', config.hiddenSize],
    ['block_count', config.numHiddenLayers],
    ['feed_forward_length', config.intermediateSize],
    ['attention.head_count', config.numAttentionHeads],
    ['attention.head_count_kv', config.numKeyValueHeads],
    ['attention.key_length', config.headDim],
    ['attention.value_length', config.headDim],
    ['attention.layer_norm_rms_epsilon', { float: config.rmsNormEps }],
    ['rope.dimension_count', config.headDim],
    ['rope.freq_base', { float: config.ropeTheta }],
  ];
  if (ropeScaling?.ropeType === 'linear')
    entries.push(['rope.scaling.type', 'linear'], ['rope.scaling.factor', { float: ropeScaling.factor }]);
  return entries.map(([key, value]) => [`${ARCHITECTURES[config.architecture]}.${key}`, value]);
}

function tensorsOf({ config, weights }: CheckpointWithTokenizer, type: GgufType): GgufTensor[] {
  const isLlama = ARCHITECTURES[config.architecture] === 'llama';
  const tensors = parameterSpecs(config).map(({ name, shape }): GgufTensor => {
    const found = weights.get(name);
    if (found?.data.length !== elementCount(shape))
      throw new InputError(`The model has no tensor "${name}" of shape [${shape.join(', ')}].`);
    const heads = /\.q_proj\./.test(name) ? config.numAttentionHeads : config.numKeyValueHeads;
    const isTurned = isLlama && /\.[qk]_proj\./.test(name);
    return {
      name: ggufName(name),
      shape,
      type: typeOf(shape, type),
      data: isTurned ? interleaved(found.data, heads, config.headDim) : found.data,
    };
  });
  const factors = ropeFactors(config);
  if (factors) tensors.push({ name: ROPE_FACTORS, shape: [factors.length], type: 'F32', data: factors });
  return tensors;
}

function ggufName(name: string): string {
  if (Object.hasOwn(NAMES, name)) return NAMES[name];
  const [, layer, part, kind] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/.exec(name)!;
  return `blk.${layer}.${LAYER_NAMES[part]}.${kind}`;
}

function typeOf(shape: readonly number[], type: GgufType): GgufType {
  if (shape.length === 1) return 'F32';
  return type === 'Q8_0' && shape[1] % Q8_BLOCK !== 0 ? 'F16' : type;
}

/**
 * Reorders the rows of each head's query or key weights for RoPE. Hugging Face pairs row i with row i + headDim / 2, llama.cpp's Llama
 * pairs rows 2i and 2i + 1.
 */
function interleaved(data: Float32Array, heads: number, headDim: number): Float32Array {
  const out = new Float32Array(data.length);
  const width = data.length / (heads * headDim);
  for (let head = 0; head < heads; head++)
    for (let d = 0; d < headDim; d++) {
      const from = (head * headDim + d) * width;
      const to = head * headDim + (d < headDim / 2 ? 2 * d : 2 * (d - headDim / 2) + 1);
      out.set(data.subarray(from, from + width), to * width);
    }
  return out;
}

interface AddedToken {
  id: number;
  content: string;
  special?: boolean;
}

function tokenizerMetadata({ config, tokenizerJson, tokenizerConfigJson }: CheckpointWithTokenizer) {
  const { model, added_tokens: added = [] } = tokenizerJson as {
    model?: { type?: string; vocab?: Record<string, number>; merges?: (string | [string, string])[] };
    added_tokens?: AddedToken[];
  };
  const splitting = preTokenizer(tokenizerJson['pre_tokenizer']);
  if (!model?.vocab || !model.merges || splitting === undefined)
    throw new InputError('GGUF is written of byte-level BPE tokenizers only, which this model does not have.');
  const tokens = Array.from({ length: config.vocabSize }, (_, id) => `[PAD${id}]`);
  const types = new Array<number>(config.vocabSize).fill(TOKEN_TYPES.unused);
  const set = (id: number, token: string, type: number) => ([tokens[id], types[id]] = [token, type]);
  for (const [token, id] of Object.entries(model.vocab)) set(id, token, TOKEN_TYPES.normal);
  for (const { id, content, special = false } of added)
    set(id, content, special ? TOKEN_TYPES.control : TOKEN_TYPES.userDefined);
  const idOf = (key: string): number | undefined => {
    const named = tokenizerConfigJson[key] as string | { content: string } | null | undefined;
    const id = tokens.indexOf((typeof named === 'object' ? named?.content : named) ?? '');
    return id < 0 ? undefined : id;
  };
  const ids = Object.entries({ bos: 'bos_token', eos: 'eos_token', padding: 'pad_token' }).flatMap(
    ([name, key]): [string, GgufValue][] => {
      const id = idOf(key);
      return id === undefined ? [] : [[`tokenizer.ggml.${name}_token_id`, id]];
    },
  );
  const bos = idOf('bos_token');
  const addsBos =
    bos !== undefined &&
    (tokenizerConfigJson['add_bos_token'] === true || startsWith(tokenizerJson['post_processor'], tokens[bos]));
  // llama.cpp has a separate metadata key for each of up to three end tokens: eos, eot and eom.
  const [eot, eom] = (config.eosTokenIds ?? []).filter((id) => id !== idOf('eos_token'));
  const moreEnds = Object.entries({ eot, eom }).flatMap(([name, id]): [string, GgufValue][] =>
    id === undefined ? [] : [[`tokenizer.ggml.${name}_token_id`, id]],
  );
  const metadata: [string, GgufValue][] = [
    ['tokenizer.ggml.model', 'gpt2'],
    ['tokenizer.ggml.pre', splitting.name],
    ['tokenizer.ggml.tokens', tokens],
    ['tokenizer.ggml.token_type', { int32: types }],
    ['tokenizer.ggml.merges', model.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' ')))],
    ...ids,
    ...moreEnds,
    ['tokenizer.ggml.add_bos_token', addsBos],
    ...templateMetadata(tokenizerConfigJson['chat_template']),
    ...(splitting.isKnown ? [] : [[TOKENIZER_JSON, JSON.stringify(tokenizerJson)] satisfies [string, GgufValue]]),
  ];
  return { metadata, notes: splitting.isKnown ? [] : [UNKNOWN_SPLITTING] };
}

/** True if a `post_processor` puts this token in front of a text. */
function startsWith(step: unknown, token: string): boolean {
  if (typeof step !== 'object' || step === null) return false;
  const { processors, single } = step as { processors?: unknown; single?: unknown };
  if (Array.isArray(processors)) return processors.some((one) => startsWith(one, token));
  const [first] = Array.isArray(single) ? (single as { SpecialToken?: { id?: unknown } }[]) : [];
  return first?.SpecialToken?.id === token;
}

/** Returns the metadata entries of a chat template, or of several named templates. */
function templateMetadata(source: unknown): [string, GgufValue][] {
  if (typeof source === 'string') return [['tokenizer.chat_template', source]];
  if (!Array.isArray(source)) return [];
  const named = (source as { name: string; template: string }[]).filter(({ template }) => typeof template === 'string');
  return named.map(({ name, template }): [string, GgufValue] => [
    `tokenizer.chat_template${name === 'default' ? '' : `.${name}`}`,
    template,
  ]);
}

const UNKNOWN_SPLITTING =
  "llama.cpp does not have the rule by which the tokenizer splits text, and uses GPT-2's. It can split words into other tokens than " +
  'the model was trained on. Prompts given as token ids are exact.';

/** llama.cpp's name of the pre-tokenizer, by the regular expression that splits the text. */
const KNOWN_SPLITTINGS = new Map(Object.entries(SPLITTINGS).map(([name, regex]) => [regex, name]));

interface PreTokenizer {
  type: string;
  pretokenizers?: PreTokenizer[];
  pattern?: { Regex?: string };
  use_regex?: boolean;
  individual_digits?: boolean;
}

/**
 * Returns llama.cpp's name of the pre-tokenizer; undefined if the tokenizer is not byte-level. `isKnown` is false if llama.cpp does not
 * have this pre-tokenizer, so GPT-2's is used.
 */
function preTokenizer(json: unknown): { name: string; isKnown: boolean } | undefined {
  const outer = json as PreTokenizer | null | undefined;
  const steps = outer?.type === 'Sequence' ? (outer.pretokenizers ?? []) : outer ? [outer] : [];
  const bytes = steps.find(({ type }) => type === 'ByteLevel');
  if (!bytes) return undefined;
  const [first] = steps;
  if (first.type === 'Digits' && first.individual_digits === true) return { name: 'smollm', isKnown: true };
  if (first === bytes && bytes.use_regex !== false) return { name: 'gpt-2', isKnown: true };
  const known = KNOWN_SPLITTINGS.get(first.pattern?.Regex ?? '');
  return known === undefined ? { name: 'gpt-2', isKnown: false } : { name: known, isKnown: true };
}

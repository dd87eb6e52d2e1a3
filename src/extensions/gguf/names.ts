/**
 * Names of the same tensors and tokenizers in llama.cpp and in Hugging Face, for reading and writing GGUF. They follow
 * llama.cpp's `convert_hf_to_gguf.py`.
 */

/** Names of a layer's tensors, without the prefix `blk.N.`. */
export const LAYER_NAMES: Readonly<Record<string, string>> = {
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
};
export const NAMES: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

/** Name of the tensor with the divisors of Llama 3's rotary frequencies. */
export const ROPE_FACTORS = 'rope_freqs.weight';

const PARTS = new Map(Object.entries(LAYER_NAMES).map(([part, name]) => [name, part]));
const WHOLE = new Map(Object.entries(NAMES).map(([ours, theirs]) => [theirs, ours]));

/** Returns Hugging Face's name of a tensor, or the given name if it is not known. */
export function huggingFaceName(name: string): string {
  const [, layer, part, kind] = /^blk\.(\d{1,4})\.(\w+)\.(weight|bias)$/.exec(name) ?? [];
  const known = part === undefined ? undefined : PARTS.get(part);
  return known === undefined ? (WHOLE.get(name) ?? name) : `model.layers.${Number(layer)}.${known}.${kind}`;
}

/** GGUF's ids of token types. */
export const TOKEN_TYPES = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
const REST = '| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
/** Regular expressions by which a pre-tokenizer splits texts, by llama.cpp's name of the pre-tokenizer. */
export const SPLITTINGS: Readonly<Record<'llama-bpe' | 'qwen2', string>> = {
  'llama-bpe': `${CONTRACTIONS}\\p{N}{1,3}${REST}`,
  qwen2: `${CONTRACTIONS}\\p{N}${REST}`,
};

/** Key under which a GGUF file can contain a complete tokenizer.json. */
export const TOKENIZER_JSON = 'tokenizer.huggingface.json';

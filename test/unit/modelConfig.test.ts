import { expect, test } from 'vitest';
import { modelConfigToJson, parseModelConfig, ropeFrequencies, ropeTables } from '../../src/model/config.ts';
import { initWeights, parameterCount, parameterSpecs } from '../../src/model/params.ts';

/** SmolLM2-135M's published config, without keys that do not describe the model's shape. */
const SMOLLM2 = {
  architectures: ['LlamaForCausalLM'],
  attention_bias: false,
  attention_dropout: 0.0,
  hidden_act: 'silu',
  hidden_size: 576,
  initializer_range: 0.041666666666666664,
  intermediate_size: 1536,
  max_position_embeddings: 8192,
  mlp_bias: false,
  model_type: 'llama',
  num_attention_heads: 9,
  num_hidden_layers: 30,
  num_key_value_heads: 3,
  pretraining_tp: 1,
  rms_norm_eps: 1e-5,
  rope_scaling: null,
  rope_theta: 100000,
  tie_word_embeddings: true,
  vocab_size: 49152,
};

const QWEN2 = {
  architectures: ['Qwen2ForCausalLM'],
  hidden_act: 'silu',
  hidden_size: 896,
  intermediate_size: 4864,
  max_position_embeddings: 32768,
  max_window_layers: 21,
  num_attention_heads: 14,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000.0,
  sliding_window: 32768,
  tie_word_embeddings: true,
  use_sliding_window: false,
  vocab_size: 151936,
};

const QWEN3 = {
  ...QWEN2,
  architectures: ['Qwen3ForCausalLM'],
  hidden_size: 1024,
  num_attention_heads: 16,
  vocab_size: 64,
};

const LLAMA3_SCALING = {
  factor: 32.0,
  high_freq_factor: 4.0,
  low_freq_factor: 1.0,
  original_max_position_embeddings: 8192,
  rope_type: 'llama3',
};

test('published configs give the published parameter counts', () => {
  expect(parameterCount(parseModelConfig(SMOLLM2))).toBe(134_515_008);
  expect(parameterCount(parseModelConfig(QWEN2))).toBe(494_032_768);
});

test('each architecture has its own parameters', () => {
  const names = (json: object) =>
    parameterSpecs(parseModelConfig({ ...json, num_hidden_layers: 1 })).map((s) => s.name);
  expect(names(QWEN2)).toContain('model.layers.0.self_attn.k_proj.bias');
  expect(names(QWEN3)).toContain('model.layers.0.self_attn.k_norm.weight');
  expect(names(QWEN3)).not.toContain('model.layers.0.self_attn.k_proj.bias');
  expect(names({ ...SMOLLM2, tie_word_embeddings: false }).at(-1)).toBe('lm_head.weight');
  expect(names(SMOLLM2)).toHaveLength(11);
});

test('defaults follow transformers: head_dim, key/value heads, model_type alone', () => {
  const { num_key_value_heads: _, architectures: __, ...bare } = SMOLLM2;
  expect(parseModelConfig(bare)).toMatchObject({ headDim: 64, numKeyValueHeads: 9, architecture: 'LlamaForCausalLM' });
  expect(parseModelConfig(QWEN3)).toMatchObject({ headDim: 128, qkNorm: true, qkvBias: false });
  expect(parseModelConfig({ ...QWEN3, head_dim: 32 }).headDim).toBe(32);
});

test('both spellings of RoPE parameters give the same config', () => {
  const { rope_theta: theta, rope_scaling: _, ...bare } = SMOLLM2;
  const old = parseModelConfig({ ...bare, rope_theta: theta, rope_scaling: LLAMA3_SCALING });
  const { rope_type: type, ...rest } = LLAMA3_SCALING;
  expect(parseModelConfig({ ...bare, rope_theta: theta, rope_scaling: { ...rest, type } })).toEqual(old);
  expect(parseModelConfig({ ...bare, rope_parameters: { ...LLAMA3_SCALING, rope_theta: theta } })).toEqual(old);
  expect(old.ropeScaling).toMatchObject({ ropeType: 'llama3', factor: 32, originalMaxPositionEmbeddings: 8192 });
  const plain = parseModelConfig({ ...bare, rope_parameters: { rope_type: 'default', rope_theta: 5e5 } });
  expect(plain).toMatchObject({ ropeTheta: 5e5, ropeScaling: null });
});

test.each([
  SMOLLM2,
  QWEN2,
  QWEN3,
  { ...SMOLLM2, rope_scaling: LLAMA3_SCALING },
  { ...SMOLLM2, rope_scaling: { type: 'linear', factor: 2 } },
  { ...SMOLLM2, attention_bias: true, mlp_bias: true },
  { ...QWEN3, attention_bias: true },
  { ...SMOLLM2, architectures: ['SmolLM3ForCausalLM'], no_rope_layers: Array(SMOLLM2.num_hidden_layers).fill(1) },
])('to JSON and back %#', (json) => {
  const config = parseModelConfig(json);
  expect(parseModelConfig(JSON.parse(JSON.stringify(modelConfigToJson(config))))).toEqual(config);
});

test.each([
  [0, [0], 0],
  [[2], [2], 2],
  [
    [2, 0, 2],
    [2, 0],
    [2, 0],
  ],
  [[], undefined, undefined],
  [null, undefined, undefined],
])('end tokens %j: read, and written as transformers does', (eos_token_id, ids, written) => {
  const config = parseModelConfig({ ...SMOLLM2, eos_token_id });
  expect(config.eosTokenIds).toEqual(ids);
  expect(modelConfigToJson(config)['eos_token_id']).toEqual(written);
});

test('which products have a bias', () => {
  const biases = (json: object) => {
    const { qkvBias, oBias, mlpBias } = parseModelConfig(json);
    return [qkvBias, oBias ?? false, mlpBias ?? false];
  };
  expect(biases(SMOLLM2)).toEqual([false, false, false]);
  expect(biases({ ...SMOLLM2, attention_bias: true })).toEqual([true, true, false]);
  expect(biases({ ...SMOLLM2, mlp_bias: true })).toEqual([false, false, true]);
  expect(biases({ ...QWEN2, attention_bias: true, mlp_bias: true })).toEqual([true, false, false]);
  expect(biases({ ...QWEN3, attention_bias: true, mlp_bias: true })).toEqual([true, true, false]);
});

const REFUSED: [object, string][] = [
  [
    { architectures: ['MistralForCausalLM'] },
    '"architectures" is ["MistralForCausalLM"]; supported: one of LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM',
  ],
  [{ architectures: undefined, model_type: 'gemma' }, '"model_type" is "gemma"; supported'],
  [{ hidden_act: 'gelu' }, '"hidden_act" is "gelu", which is not supported; allowed: "silu".'],
  [{ mlp_bias: 1 }, '"mlp_bias" must be true or false, but is 1.'],
  [
    { architectures: ['SmolLM3ForCausalLM'] },
    '"no_rope_layers" is absent, which is not supported; allowed: a 1 for every layer.',
  ],
  [{ no_rope_layers: [1, 1, 1, 0] }, '"no_rope_layers" is [1,1,1,0], which is not supported'],
  [{ attention_dropout: 0.1 }, '"attention_dropout" is 0.1'],
  [{ sliding_window: 128 }, '"sliding_window" is 128, which is not supported; allowed: full attention in every layer.'],
  [{ ...QWEN2, use_sliding_window: true }, '"sliding_window" is 32768'],
  [{ ...QWEN2, use_sliding_window: true, sliding_window: undefined }, '"sliding_window" is absent'],
  [{ layer_types: ['full_attention', 'sliding_attention'] }, '"layer_types" is ["full_attention","sliding_attention"]'],
  [{ quantization_config: { bits: 4 } }, '"quantization_config" is {"bits":4}'],
  [
    { rope_scaling: { rope_type: 'yarn', factor: 2 } },
    '"rope_scaling.rope_type" is "yarn"; supported: "default", "linear", "llama3".',
  ],
  [
    { rope_scaling: { ...LLAMA3_SCALING, high_freq_factor: 1 } },
    '"rope_scaling.high_freq_factor" is 1, but must exceed "low_freq_factor" 1.',
  ],
  [{ rope_scaling: { rope_type: 'dynamic', factor: 2 } }, '"rope_scaling.rope_type" is "dynamic"; supported'],
  [{ rope_parameters: { type: 'longrope' } }, '"rope_parameters.rope_type" is "longrope"; supported'],
  [
    { rope_parameters: { rope_type: 'default', partial_rotary_factor: 0.5 } },
    '"rope_parameters.partial_rotary_factor" is 0.5, which is not supported',
  ],
  [
    { rope_parameters: { full_attention: { rope_type: 'default', rope_theta: 1e6 } } },
    '"rope_parameters.full_attention" is {"rope_type":"default","rope_theta":1000000}, which is not supported',
  ],
  [{ num_key_value_heads: 18 }, '"num_attention_heads" 9 is not a multiple of "num_key_value_heads" 18.'],
  [{ rope_scaling: { rope_type: 'linear' } }, '"factor" must be a positive number, but is absent.'],
  [
    { max_position_embeddings: 1e15 },
    '"max_position_embeddings" is 1000000000000000; allowed: 1 to 16777216. Correct it,',
  ],
  [{ rms_norm_eps: 1e300 }, '"rms_norm_eps" is 1e+300; allowed: 1e-30 to 1. Correct it,'],
  [{ rms_norm_eps: 1e-300 }, '"rms_norm_eps" is 1e-300; allowed'],
  [{ rope_theta: 1e-300 }, '"rope_theta" is 1e-300; allowed: 1 to 1000000000000. Correct it,'],
  [{ rope_theta: 1e300 }, '"rope_theta" is 1e+300; allowed'],
  [{ initializer_range: 1e300 }, '"initializer_range" is 1e+300; allowed'],
  [{ rope_scaling: { rope_type: 'linear', factor: 1e300 } }, '"factor" is 1e+300; allowed: 0.001 to 1000000.'],
  [{ hidden_size: undefined }, '"hidden_size" must be a positive number, but is absent.'],
  [{ vocab_size: '9' }, '"vocab_size" must be a positive number, but is "9".'],
  [{ num_hidden_layers: 1.5 }, '"num_hidden_layers" must be a positive integer, but is 1.5.'],
  [{ num_hidden_layers: 1e9 }, 'config.json: the model has 1000000000 layers. At most 1024 are supported.'],
  [{ vocab_size: 1e9 }, 'config.json: the largest matrix is 1000000000 by 576. At most 4294967296 values fit in one.'],
  [{ num_key_value_heads: 2 }, '"num_attention_heads" 9 is not a multiple of "num_key_value_heads" 2.'],
  [{ head_dim: 7 }, '"head_dim" is 7, but rotary embedding needs an even number.'],
  [{ head_dim: 136 }, '"head_dim" (or "hidden_size" / "num_attention_heads") is 136. At most 128 is supported.'],
  [{ hidden_size: 9 * 136 }, '"head_dim" (or "hidden_size" / "num_attention_heads") is 136. At most 128 is supported.'],
  [{ eos_token_id: '2' }, '"eos_token_id" is "2"; allowed: a token id from 0 to 49151, a list of them, or null.'],
  [{ eos_token_id: -1 }, '"eos_token_id" is -1; allowed'],
  [{ eos_token_id: 49152 }, '"eos_token_id" is 49152; allowed'],
  [{ eos_token_id: [2, 49152] }, '"eos_token_id" is [2,49152]; allowed'],
  [{ eos_token_id: { id: 2 } }, '"eos_token_id" is {"id":2}; allowed'],
  [{ eos_token_id: [[2]] }, '"eos_token_id" is [[2]]; allowed'],
  [{ eos_token_id: true }, '"eos_token_id" is true; allowed'],
  [{ eos_token_id: 2.5 }, '"eos_token_id" is 2.5; allowed'],
  [{ tie_word_embeddings: 'yes' }, '"tie_word_embeddings" must be true or false, but is "yes".'],
];

test.each(REFUSED)('refuses %o', (change, message) => {
  expect(() => parseModelConfig({ ...SMOLLM2, ...change })).toThrow(message);
});

test('sliding windows that no layer uses are accepted', () => {
  expect(parseModelConfig({ ...QWEN2, use_sliding_window: true, max_window_layers: 24 }).numHiddenLayers).toBe(24);
  expect(parseModelConfig({ ...QWEN2, use_sliding_window: true, sliding_window: null }).numHiddenLayers).toBe(24);
  expect(() => parseModelConfig(null)).toThrow('config.json must hold a JSON object, but holds null.');
});

test('llama3 scaling keeps short waves, divides long ones, and blends between', () => {
  const config = parseModelConfig({ ...SMOLLM2, head_dim: 64, rope_theta: 500000, rope_scaling: LLAMA3_SCALING });
  const plain = ropeFrequencies({ ...config, ropeScaling: null });
  const ratio = ropeFrequencies(config).map((f, i) => f / plain[i]);
  expect(ratio[0]).toBe(1);
  expect(ratio[31]).toBeCloseTo(1 / 32, 12);
  const between = ratio.findIndex((r) => r < 0.999 && r > 0.04);
  const wavelength = (2 * Math.PI) / plain[between];
  const smooth = (8192 / wavelength - 1) / (4 - 1);
  expect(ratio[between]).toBeCloseTo((1 - smooth) / 32 + smooth, 12);
});

test('RoPE tables: position major, float64 angles rounded once', () => {
  const config = parseModelConfig({ ...SMOLLM2, head_dim: 6 });
  const { cos, sin } = ropeTables(config, 5);
  expect(cos).toHaveLength(15);
  const angle = 4 * 100000 ** (-4 / 6);
  expect(cos[4 * 3 + 2]).toBe(Math.fround(Math.cos(angle)));
  expect(sin[4 * 3 + 2]).toBe(Math.fround(Math.sin(angle)));
});

test('new weights: right spread, norms one, biases zero, seeded', () => {
  const config = parseModelConfig({
    ...QWEN2,
    hidden_size: 28,
    intermediate_size: 60,
    num_hidden_layers: 1,
    vocab_size: 499,
    initializer_range: 0.05,
  });
  const weights = initWeights(config, 7);
  expect([...weights.keys()]).toEqual(parameterSpecs(config).map((s) => s.name));
  const table = weights.get('model.embed_tokens.weight')!.data;
  const mean = table.reduce((s, x) => s + x, 0) / table.length;
  const std = Math.sqrt(table.reduce((s, x) => s + x * x, 0) / table.length);
  expect(Math.abs(mean)).toBeLessThan(0.002);
  expect(std).toBeGreaterThan(0.049);
  expect(std).toBeLessThan(0.051);
  expect(new Set(weights.get('model.norm.weight')!.data)).toEqual(new Set([1]));
  expect(new Set(weights.get('model.layers.0.self_attn.q_proj.bias')!.data)).toEqual(new Set([0]));
  expect(initWeights(config, 7)).toEqual(weights);
  expect(initWeights(config, 8).get('model.embed_tokens.weight')!.data).not.toEqual(table);
});

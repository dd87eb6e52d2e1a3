/**
 * Tests GGUF files: Hugging Face's reader reads them, and llama.cpp (`node scripts/llama-cpp.mjs`) computes the same numbers as the float64
 * reference.
 */

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gguf, GGMLQuantizationType } from '@huggingface/gguf';
import { describe, expect, test, vi } from 'vitest';
import { exportGguf } from '../../src/cli/export/gguf.ts';
import { InputError } from '../../src/errors.ts';
import type { CheckpointWithTokenizer } from '../../src/model/checkpoint/checkpoint.ts';
import { writeGguf } from '../../src/extensions/gguf/gguf.ts';
import { ggufModel } from '../../src/extensions/gguf/ggufModel.ts';
import { decodeTensor } from '../../src/model/checkpoint/safetensors.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { TINY_CONFIG } from '../tinyConfig.ts';

const BASE: ModelConfig = {
  ...TINY_CONFIG,
  vocabSize: 40,
  hiddenSize: 64,
  intermediateSize: 96,
  headDim: 24,
  initializerRange: 0.15,
};
/** One model for each feature of a family: biases, q/k norms, an untied head, Llama 3's and linear scaling of RoPE. */
const MODELS: Record<string, ModelConfig> = {
  llama: { ...BASE, ropeTheta: 10000 },
  'llama with biases and a head': {
    ...BASE,
    numAttentionHeads: 4,
    numKeyValueHeads: 2,
    tieWordEmbeddings: false,
    qkvBias: true,
    oBias: true,
    mlpBias: true,
  },
  'llama 3 scaling': {
    ...BASE,
    ropeTheta: 10000,
    ropeScaling: {
      ropeType: 'llama3',
      factor: 8,
      lowFreqFactor: 1,
      highFreqFactor: 4,
      originalMaxPositionEmbeddings: 32,
    },
  },
  'linear scaling': { ...BASE, ropeScaling: { ropeType: 'linear', factor: 4 } },
  smollm3: { ...BASE, architecture: 'SmolLM3ForCausalLM', numHiddenLayers: 4 },
  qwen2: { ...BASE, architecture: 'Qwen2ForCausalLM', headDim: 32, qkvBias: true },
  qwen3: { ...BASE, architecture: 'Qwen3ForCausalLM', qkNorm: true, tieWordEmbeddings: false },
};

const { F32, F16, Q8_0 } = GGMLQuantizationType;

/** Letters as tokens, one merge, one control token and one added token; the model has more embedding rows than the tokenizer has tokens. */
const VOCAB = Object.fromEntries([...'abcdefghijklmnopqrstuvwxyz'].map((letter, id) => [letter, id]));
const TOKENIZER = {
  model: { type: 'BPE', vocab: { ...VOCAB, ab: 26 }, merges: [['a', 'b']] },
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: true },
  added_tokens: [
    { id: 27, content: '<|end|>', special: true },
    { id: 28, content: '<call>', special: false },
  ],
};
const TOKENIZER_CONFIG = { eos_token: '<|end|>', pad_token: { content: '<|end|>' }, chat_template: '{{ 1 }}' };

const modelOf = (config: ModelConfig): CheckpointWithTokenizer => {
  const weights = initWeights(config, 3);
  for (const [name, { data }] of weights) if (name.endsWith('.bias')) data.forEach((_, i) => (data[i] = Math.sin(i)));
  return { config, weights, tokenizerJson: TOKENIZER, tokenizerConfigJson: TOKENIZER_CONFIG };
};

function fileOf(bytes: Uint8Array): string {
  const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-gguf-')), 'model.gguf');
  writeFileSync(path, bytes);
  return path;
}

/** Returns the metadata that Hugging Face's GGUF reader finds, and each tensor's values, decoded as ggml documents its blocks. */
async function readBack(bytes: Uint8Array) {
  const { metadata, tensorInfos, tensorDataOffset } = await gguf(fileOf(bytes), { allowLocalFile: true });
  const values = new Map(
    tensorInfos.map(({ name, shape, dtype, offset }) => {
      const count = shape.reduce((product, size) => product * Number(size), 1);
      const at = Number(tensorDataOffset + offset);
      const end = at + { [F32]: count * 4, [F16]: count * 2, [Q8_0]: (count / 32) * 34 }[dtype as number]!;
      const found = bytes.subarray(at, end);
      return [name, dtype === Q8_0 ? decodeQ8(found) : decodeTensor(dtype === F32 ? 'F32' : 'F16', found)] as const;
    }),
  );
  return { metadata, tensorInfos, values };
}

function decodeQ8(bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Float32Array.from({ length: (bytes.length / 34) * 32 }, (_, i) => {
    const block = 34 * Math.floor(i / 32);
    return decodeTensor('F16', bytes.subarray(block, block + 2))[0] * view.getInt8(block + 2 + (i % 32));
  });
}

describe("read back by Hugging Face's reader", () => {
  test('metadata and tokenizer', async () => {
    const { bytes, notes } = ggufModel({ name: 'mine', type: 'F16' }, modelOf(MODELS.llama));
    const { metadata } = await readBack(bytes);
    expect(notes).toEqual([]);
    expect(metadata).toMatchObject({
      version: 3,
      'general.architecture': 'llama',
      'general.name': 'mine',
      'general.file_type': 1,
      'llama.block_count': 2,
      'llama.attention.head_count_kv': 1,
      'llama.attention.key_length': 24,
      'llama.attention.layer_norm_rms_epsilon': Math.fround(1e-6),
      'llama.rope.freq_base': 10000,
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'gpt-2',
      'tokenizer.ggml.merges': ['a b'],
      'tokenizer.ggml.eos_token_id': 27,
      'tokenizer.ggml.padding_token_id': 27,
      'tokenizer.chat_template': '{{ 1 }}',
    });
    const { 'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types } = metadata as unknown as {
      'tokenizer.ggml.tokens': string[];
      'tokenizer.ggml.token_type': number[];
    };
    expect([tokens.length, ...tokens.slice(25, 30)]).toEqual([40, 'z', 'ab', '<|end|>', '<call>', '[PAD29]']);
    expect(types.slice(25, 30)).toEqual([1, 1, 3, 4, 5]);
  });

  test('more end tokens, and named templates', async () => {
    const model = modelOf({ ...MODELS.llama, eosTokenIds: [27, 28, 5] });
    const chat_template = Object.entries({ default: 'd', tool_use: 't' }).map(([name, template]) => ({
      name,
      template,
    }));
    const tokenizerConfigJson = { ...model.tokenizerConfigJson, chat_template };
    const { metadata } = await readBack(ggufModel({ name: '', type: 'F16' }, { ...model, tokenizerConfigJson }).bytes);
    expect(metadata).toMatchObject({
      'tokenizer.ggml.eos_token_id': 27,
      'tokenizer.ggml.eot_token_id': 28,
      'tokenizer.ggml.eom_token_id': 5,
      'tokenizer.chat_template': 'd',
      'tokenizer.chat_template.tool_use': 't',
    });
  });

  test('every tensor occurs once, with reversed dims, at a multiple of 32', async () => {
    const model = modelOf(MODELS['llama with biases and a head']);
    const { tensorInfos, values } = await readBack(ggufModel({ name: '', type: 'F32' }, model).bytes);
    expect(tensorInfos).toHaveLength(model.weights.size);
    expect(tensorInfos.every(({ offset }) => offset % 32n === 0n)).toBe(true);
    const info = tensorInfos.find(({ name }) => name === 'blk.1.ffn_down.weight')!;
    expect(info.shape).toEqual([96n, 64n]);
    expect(values.get(info.name)).toEqual(model.weights.get('model.layers.1.mlp.down_proj.weight')!.data);
    expect(values.get('output.weight')).toEqual(model.weights.get('lm_head.weight')!.data);
    // Llama's GGUF files interleave the two halves of each head: row d of the second half follows row d of the first.
    const [wide, q] = [
      values.get('blk.0.attn_q.weight')!,
      model.weights.get('model.layers.0.self_attn.q_proj.weight')!.data,
    ];
    const row = (data: Float32Array, r: number) => data.subarray(64 * r, 64 * (r + 1));
    expect([0, 1, 2, 3, 24, 25].map((r) => row(wide, r))).toEqual([0, 12, 1, 13, 24, 36].map((r) => row(q, r)));
  });

  test('Q8_0 is within half a step of each block; rows that fill no blocks are F16', async () => {
    const config = { ...MODELS.llama, intermediateSize: 40 };
    const model = modelOf(config);
    const { tensorInfos, values } = await readBack(ggufModel({ name: '', type: 'Q8_0' }, model).bytes);
    const typeOf = (name: string) => tensorInfos.find((info) => info.name === name)?.dtype;
    expect(
      ['token_embd', 'blk.0.ffn_up', 'blk.0.ffn_down', 'blk.0.attn_norm'].map((n) => typeOf(`${n}.weight`)),
    ).toEqual([Q8_0, Q8_0, F16, F32]);
    const [found, wanted] = [values.get('token_embd.weight')!, model.weights.get('model.embed_tokens.weight')!.data];
    for (let b = 0; b < wanted.length; b += 32) {
      const step = wanted.subarray(b, b + 32).reduce((most, x) => Math.max(most, Math.abs(x)), 0) / 127;
      // Error bound: half a quantization step, plus the float16 rounding of the scale times at most 127.
      for (let i = b; i < b + 32; i++)
        expect(Math.abs(found[i] - wanted[i])).toBeLessThanOrEqual(step * (0.5 + 127 / 2048));
    }
  });

  test('a model that cannot be written ends in one error message', () => {
    const tensor = { name: 't', shape: [2, 33], type: 'Q8_0' as const, data: new Float32Array(66) };
    expect(() => writeGguf(new Map(), [tensor])).toThrow(InputError);
    const model = modelOf(MODELS.llama);
    const unigram = { ...model, tokenizerJson: { model: { type: 'Unigram', vocab: [['a', -1]] } } };
    expect(() => ggufModel({ name: '', type: 'F16' }, unigram)).toThrow(/byte-level BPE tokenizers only/);
    const own = {
      ...TOKENIZER,
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [
          { type: 'Split', pattern: { Regex: '.' } },
          { type: 'ByteLevel', use_regex: false },
        ],
      },
    };
    expect(ggufModel({ name: '', type: 'F16' }, { ...model, tokenizerJson: own }).notes).toEqual([
      expect.stringMatching(/does not have the rule by which the tokenizer splits text/),
    ]);
  });
});

test('the command line writes the file, and reports that llama.cpp does not know this tokenizer', async () => {
  const out = join(mkdtempSync(join(tmpdir(), 'webgrpo-gguf-')), 'tool.gguf');
  const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const notes = await exportGguf('checkpoints/gsm8k-tool', out, 'q8_0');
  expect(notes).toHaveLength(1);
  expect(said.mock.calls.map(([line]) => line)).toEqual([
    expect.stringContaining('reading checkpoints/gsm8k-tool'),
    expect.stringContaining(`writing ${out}`),
  ]);
  const { metadata, tensorInfos } = await gguf(out, { allowLocalFile: true });
  expect(metadata).toMatchObject({
    'general.name': 'gsm8k-tool',
    'general.file_type': 7,
    'llama.embedding_length': 96,
  });
  expect(tensorInfos.find(({ name }) => name === 'token_embd.weight')?.shape).toEqual([96n, 512n]);
  await expect(exportGguf('checkpoints/gsm8k-tool', out, 'int3')).rejects.toThrow(
    /"int3"; of GGUF allowed: float16, q8_0, float32/,
  );
  await expect(exportGguf('checkpoints/gsm8k-tool', 'folder')).rejects.toThrow(/Name one file, such as model\.gguf/);
  said.mockRestore();
});

/** Folder in which node-llama-cpp is installed. */
const LLAMA_CPP = process.env['NODE_LLAMA_CPP'];

describe.runIf(LLAMA_CPP !== undefined)('computed by llama.cpp', () => {
  const ids = Uint32Array.from({ length: 33 }, (_, i) => (7 * i * i + 3 * i) % 29);

  /** Returns log-probs of ids[1..]. */
  function reference({ config, weights }: CheckpointWithTokenizer): Float64Array {
    const mask = new Uint8Array(ids.length - 1).fill(1);
    const group = { prompt: ids.slice(0, 1), samples: [{ tokens: ids.slice(1), mask }] };
    const [{ batch }] = packGroups([group], ids.length);
    return referenceForward(config, toFloat64(weights), batch).logProbs;
  }

  test.each(Object.entries(MODELS))('%s', async (name, config) => {
    const { logProbsOf } = await import('../llamaCpp.ts');
    const model = modelOf(config);
    const wanted = reference(model);
    for (const [type, tolerance] of [
      ['F32', 0.01], // llama.cpp's KV cache is float16
      ['F16', 0.015],
      ['Q8_0', 0.3],
    ] as const) {
      const { bytes } = ggufModel({ name: 'tiny', type }, model);
      const found = await logProbsOf(LLAMA_CPP!, fileOf(bytes), [...ids]);
      const worst = found.reduce((most, x, i) => Math.max(most, Math.abs(x - wanted[i])), 0);
      process.stderr.write(`${name} ${type}: log-probs differ by at most ${worst.toPrecision(2)}\n`);
      expect(worst, type).toBeLessThan(tolerance);
    }
  });
});

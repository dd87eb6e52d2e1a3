/** Tests reading GGUF files: each type against Python's `gguf`, a model that was written here, and 600 damaged files. */

import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { InputError } from '../../src/errors.ts';
import { ggufModel, type GgufType } from '../../src/extensions/gguf/index.ts';
import { type GgufTensor, type GgufValue, writeGguf } from '../../src/extensions/gguf/gguf.ts';
import { type CheckpointWithTokenizer, collectWeights, saveCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { READ_TYPES, unpackBlocks } from '../../src/extensions/gguf/blocks.ts';
import { readGgufHeader } from '../../src/extensions/gguf/header.ts';
import { tokenizerOf } from '../../src/extensions/gguf/tokenizer.ts';
import { opfsStore } from '../../src/model/checkpoint/opfs.ts';
import { openCheckpoint } from '../../src/model/checkpoint/open.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { initWeights, parameterSpecs } from '../../src/model/params.ts';
import { mulberry32 } from '../../src/model/random.ts';
import { modelTokenizer } from '../../src/model/tokenizer/modelTokenizer.ts';
import { byteAlphabet } from '../../src/model/tokenizer/vocabulary.ts';
import { readCheckpoint } from '../../src/node.ts';
import { keepGguf } from '../../src/workers/keptGguf.ts';
import { TINY_CONFIG } from '../tinyConfig.ts';

vi.mock('../../src/model/checkpoint/opfs.ts', { spy: true });

const BASE: ModelConfig = {
  ...TINY_CONFIG,
  vocabSize: 264,
  hiddenSize: 32,
  intermediateSize: 64,
  headDim: 16,
  ropeTheta: 10000,
  eosTokenIds: [259],
};
const MODELS: Record<string, ModelConfig> = {
  llama: BASE,
  'llama with biases and a head': { ...BASE, tieWordEmbeddings: false, qkvBias: true, oBias: true, mlpBias: true },
  'llama 3 scaling': {
    ...BASE,
    ropeScaling: {
      ropeType: 'llama3',
      factor: 8,
      lowFreqFactor: 1,
      highFreqFactor: 4,
      originalMaxPositionEmbeddings: 96,
    },
  },
  'linear scaling': { ...BASE, ropeScaling: { ropeType: 'linear', factor: 4 } },
  qwen2: { ...BASE, architecture: 'Qwen2ForCausalLM', qkvBias: true },
  qwen3: { ...BASE, architecture: 'Qwen3ForCausalLM', qkNorm: true, tieWordEmbeddings: false },
};

const added = (id: number, content: string, special: boolean) => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special,
});
const SPECIAL = [added(258, '<|start|>', true), added(259, '<|end|>', true), added(260, '<call>', false)];
const VOCAB = [...byteAlphabet(), 'ab', '\u0120ab', ...SPECIAL.map(({ content }) => content)];
const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
const TOKENIZER = {
  version: '1.0',
  added_tokens: SPECIAL,
  normalizer: null,
  pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, BYTE_LEVEL] },
  post_processor: null,
  decoder: BYTE_LEVEL,
  model: {
    type: 'BPE',
    vocab: Object.fromEntries(VOCAB.map((token, id) => [token, id])),
    merges: ['a b', '\u0120 ab'],
  },
};
const TEMPLATE =
  "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}";
const TOKENIZER_CONFIG = { bos_token: '<|start|>', eos_token: '<|end|>', chat_template: TEMPLATE };

function modelOf(config: ModelConfig): CheckpointWithTokenizer {
  const weights = initWeights(config, 3);
  for (const [name, { data }] of weights) if (name.endsWith('.bias')) data.forEach((_, i) => (data[i] = Math.sin(i)));
  return { config, weights, tokenizerJson: TOKENIZER, tokenizerConfigJson: TOKENIZER_CONFIG };
}

const fileOf = (config: ModelConfig, type: GgufType) => ggufModel({ name: 'tiny', type }, modelOf(config)).bytes;

/** A file store that has one GGUF file in memory. It throws at a request for bytes beyond the file's end. */
const filesOf = (bytes: Uint8Array) => ({
  gguf: 'm.gguf',
  size: async (name: string) => (name === 'm.gguf' ? bytes.length : undefined),
  async read(_: string, begin: number, end: number) {
    if (!(begin >= 0 && begin <= end && end <= bytes.length))
      throw new Error(`bytes ${begin} to ${end} were asked for`);
    return bytes.slice(begin, end);
  },
});

async function loaded(bytes: Uint8Array) {
  const { weights, packed: _, ...model } = await openCheckpoint(filesOf(bytes));
  return { ...model, weights: await collectWeights(weights) };
}

describe('types', () => {
  const bytes = new Uint8Array(readFileSync('test/fixtures/gguf/types.gguf'));

  test.each(READ_TYPES)("%s has the values of Python's gguf", async (type) => {
    const { tensors } = await readGgufHeader({
      name: 'types',
      size: bytes.length,
      read: filesOf(bytes).read.bind(0, ''),
    });
    const dataOf = (name: string) => {
      const { begin, bytes: length, type: its } = tensors.find((tensor) => tensor.name === name)!;
      return unpackBlocks(its, bytes.subarray(begin, begin + length));
    };
    const found = dataOf(type);
    expect(found.length).toBe(256);
    expect(new Set(found).size).toBeGreaterThan(10);
    expect(found).toEqual(dataOf(`${type}.float32`));
  });
});

describe('a model that was written as GGUF', () => {
  test.each(Object.entries(MODELS))('%s: config, weights and tokens are the same', async (_, config) => {
    const model = modelOf(config);
    const found = await loaded(fileOf(config, 'F32'));
    expect({ ...found.config, initializerRange: config.initializerRange }).toEqual(config);
    expect(found.weights).toEqual(model.weights);
    const [ours, theirs] = [modelTokenizer(model), modelTokenizer(found as CheckpointWithTokenizer)];
    for (const text of ['ab 12ab', "it's  a\n\ttest 345", '<|end|>x<call>', '\u00e9\u4e2d']) {
      expect(theirs.encode(text)).toEqual(ours.encode(text));
      expect(theirs.decode(theirs.encode(text))).toBe(text);
    }
    const chat = [{ role: 'user', content: 'ab' }];
    expect(theirs.encodeChat(chat)).toEqual(ours.encodeChat(chat));
    expect([theirs.eosTokenIds, theirs.padTokenId]).toEqual([ours.eosTokenIds, ours.padTokenId]);
  });

  test('pieces of a turned matrix are those of the whole', async () => {
    // With these sizes a piece has 8 rows, so that it ends inside a head, which has 6 rows.
    const config = { ...BASE, hiddenSize: 2 ** 18, headDim: 6, intermediateSize: 1, vocabSize: 1, numHiddenLayers: 1 };
    const weights: TensorMap = new Map(
      parameterSpecs(config).map(({ name, shape }) => {
        const [rows, width = 1] = shape;
        const data = new Float32Array(rows * width);
        for (let r = 0; r < rows; r++) data.fill((r % 100) + 1, r * width, (r + 1) * width);
        return [name, { shape, data }];
      }),
    );
    const { eosTokenIds: _, ...sizes } = config;
    const tokenizerJson = { ...TOKENIZER, added_tokens: [], model: { vocab: { a: 0 }, merges: [] } };
    const { bytes } = ggufModel(
      { name: '', type: 'F16' },
      { config: sizes, weights, tokenizerJson, tokenizerConfigJson: {} },
    );
    const found = await loaded(bytes);
    for (const name of ['q', 'k', 'v']) {
      const key = `model.layers.0.self_attn.${name}_proj.weight`;
      expect(found.weights.get(key)!.data).toEqual(weights.get(key)!.data);
    }
  });

  test('Q8_0 is saved as a folder in Hugging Face format, and opened again', async () => {
    const found = await loaded(fileOf(BASE, 'Q8_0'));
    const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-gguf-')), 'tiny.gguf');
    writeFileSync(path, fileOf(BASE, 'Q8_0'));
    expect(await readCheckpoint(path)).toEqual(found);
    const files = saveCheckpoint(found);
    expect([...files.keys()]).toEqual(['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']);
    const again = await openCheckpoint({
      size: async (name) => files.get(name)?.length,
      read: async (name, begin, end) => files.get(name)!.slice(begin, end),
    });
    expect({ ...again, sourceFiles: new Map(), weights: await collectWeights(again.weights) }).toEqual(found);
  });

  const START = { SpecialToken: { id: '<|start|>', type_id: 0 } };
  const POST = { type: 'TemplateProcessing', single: [START, { Sequence: { id: 'A', type_id: 0 } }], pair: [] };
  test.each<[string, unknown, Record<string, unknown>, number[]]>([
    ['a post-processor', POST, {}, [258]],
    ['a sequence with a post-processor', { type: 'Sequence', processors: [BYTE_LEVEL, POST] }, {}, [258]],
    ['add_bos_token', null, { add_bos_token: true }, [258]],
    ['a post-processor without the token', { ...POST, single: POST.single.slice(1) }, {}, []],
    ['neither', null, {}, []],
    ['no such token', POST, { bos_token: null }, []],
  ])('text that is not a chat starts as in the file of origin: %s', async (_, post_processor, changes, start) => {
    const model = { ...modelOf(BASE), tokenizerJson: { ...TOKENIZER, post_processor } };
    const tokenizerConfigJson = { ...TOKENIZER_CONFIG, ...changes };
    const { bytes } = ggufModel({ name: '', type: 'F32' }, { ...model, tokenizerConfigJson });
    const found = modelTokenizer((await loaded(bytes)) as CheckpointWithTokenizer);
    expect(found.withStart([1])).toEqual([...start, 1]);
  });

  test.each(['llama-bpe', 'gpt-2'])('%s without add_bos_token: llama.cpp decides by the splitting', async (pre) => {
    const bytes = fileOf(BASE, 'F32');
    const read = filesOf(bytes).read.bind(0, 'm.gguf');
    const header = await readGgufHeader({ name: 'm.gguf', size: bytes.length, read });
    const metadata = new Map(header.metadata).set('tokenizer.ggml.pre', pre);
    expect(metadata.delete('tokenizer.ggml.add_bos_token')).toBe(true);
    const files = tokenizerOf(metadata, { file: 'm.gguf', vocabSize: BASE.vocabSize });
    expect(modelTokenizer({ ...modelOf(BASE), ...files }).withStart([1])).toEqual(pre === 'llama-bpe' ? [258, 1] : [1]);
  });

  test('a rule of splitting that llama.cpp does not have is kept', async () => {
    const found = await readCheckpoint('checkpoints/gsm8k-tool');
    const again = await loaded(ggufModel({ name: '', type: 'F32' }, found).bytes);
    expect(again.tokenizerJson).toEqual(found.tokenizerJson);
    expect(again.weights).toEqual(found.weights);
  });
});

describe('refused in two sentences', () => {
  const TWO_SENTENCES = /^[^\n]+[^.?]\. [A-Z][^\n]*[^. ][.?]$/;

  async function refusal(bytes: Uint8Array): Promise<string> {
    const error: unknown = await loaded(bytes).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(InputError);
    const { message } = error as InputError;
    expect(message).toMatch(TWO_SENTENCES);
    return message;
  }

  /** Returns the GGUF file of a model with changed metadata. */
  const withKeys = (changes: Record<string, GgufValue>) => {
    const metadata = new Map<string, GgufValue>([
      ['general.architecture', 'llama'],
      ...Object.entries({
        context_length: 64,
        embedding_length: 32,
        block_count: 1,
        feed_forward_length: 32,
        'attention.head_count': 2,
        'attention.layer_norm_rms_epsilon': { float: 1e-5 },
      }).map(([key, value]): [string, GgufValue] => [`llama.${key}`, value]),
      ...Object.entries(changes),
    ]);
    return writeGguf(metadata, [
      { name: 'token_embd.weight', shape: [4, 32], type: 'F32', data: new Float32Array(128) },
    ]);
  };
  const TOKENS = { 'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'gpt-2', 'tokenizer.ggml.tokens': ['a', 'b'] };

  test.each<[string, Record<string, GgufValue>, RegExp]>([
    [
      'another family',
      { 'general.architecture': 'gemma3' },
      /general.architecture "gemma3"; allowed are llama, qwen2, qwen3\./,
    ],
    ['a part of a model', { 'split.count': 3 }, /one part of a split model/],
    ['a part of a model, as text', { 'split.count': '3' }, /one part of a split model/],
    ['a window', { 'llama.attention.sliding_window': 512 }, /512 for "llama.attention.sliding_window"; allowed: 0\./],
    ['half a rotation', { 'llama.rope.dimension_count': 8 }, /8 for "llama.rope.dimension_count"; allowed: 16,/],
    ['yarn', { 'llama.rope.scaling.type': 'yarn' }, /"yarn" for "llama.rope.scaling.type"/],
    [
      'an older key of linear scaling',
      { 'llama.rope.scale_linear': { float: 4 } },
      /4 for "llama.rope.scale_linear"; allowed: 1\./,
    ],
    [
      'scaled attention',
      { 'llama.rope.scaling.attn_factor': { float: 1.5 } },
      /1.5 for "llama.rope.scaling.attn_factor"/,
    ],
    [
      'a text for a size',
      { 'llama.block_count': 'two' },
      /"two" for "llama.block_count"; allowed: a positive whole number/,
    ],
    ['layers without end', { 'llama.block_count': 100000 }, /100000 layers/],
    ['a missing tensor', {}, /m\.gguf has no "model.layers.0/],
    ['an odd alignment', { 'general.alignment': 48 }, /general.alignment 48; allowed are powers of two/],
  ])('%s', async (_, changes, message) => {
    expect(await refusal(withKeys(changes))).toMatch(message);
  });

  test.each<[string, Record<string, GgufValue>, RegExp]>([
    ['SentencePiece', { 'tokenizer.ggml.model': 'llama' }, /"llama" for "tokenizer.ggml.model"; allowed: "gpt2"/],
    ['an unknown splitting', { 'tokenizer.ggml.pre': 'tekken' }, /"tekken" for "tokenizer.ggml.pre"; allowed: gpt-2,/],
    ['too many tokens', { 'tokenizer.ggml.tokens': ['a', 'b', 'c', 'd', 'e'] }, /5 values for "tokenizer.ggml.tokens"/],
    ['a token twice', { 'tokenizer.ggml.tokens': ['a', 'a'], 'tokenizer.ggml.merges': [] }, /differ from each other/],
    [
      'a type of no token',
      { 'tokenizer.ggml.merges': [], 'tokenizer.ggml.token_type': { int32: [1, 7] } },
      /2 values for "tokenizer.ggml.token_type"; allowed: numbers from 0 to 6/,
    ],
    ['a merge of no token', { 'tokenizer.ggml.merges': ['a b'] }, /1 values for "tokenizer.ggml.merges"/],
    [
      'an end without a token',
      { 'tokenizer.ggml.merges': [], 'tokenizer.ggml.eos_token_id': 3 },
      /3 for "tokenizer.ggml.eos/,
    ],
  ])('%s', async (_, changes, message) => {
    const found = await refusal(withKeys({ ...TOKENS, ...changes }));
    expect(found).toMatch(message);
  });

  test('a file that is none, of another version, or in big-endian order', async () => {
    const file = fileOf(BASE, 'F16');
    expect(await refusal(new TextEncoder().encode('PK\u0003\u0004 and more'))).toMatch(/does not begin with "GGUF"/);
    for (const [version, message] of [
      [1, /version 1 of GGUF/],
      [4, /version 4 of GGUF/],
      [3 << 24, /big-endian/],
    ] as const) {
      const other = file.slice();
      new DataView(other.buffer).setUint32(4, version, true);
      expect(await refusal(other)).toMatch(message);
    }
  });

  test.each<[string, (view: DataView, at: number) => void, RegExp]>([
    [
      'on top of the one before',
      (view, at) => view.setBigUint64(at, 0n, true),
      /at byte 0 of its data; allowed is \d+, behind/,
    ],
    [
      'behind a hole',
      (view, at) => view.setBigUint64(at, view.getBigUint64(at, true) + 32n, true),
      /allowed is \d+, behind/,
    ],
    [
      'not aligned',
      (view, at) => view.setBigUint64(at, view.getBigUint64(at, true) + 1n, true),
      /allowed is \d+, behind/,
    ],
    ['of an unknown type', (view, at) => view.setUint32(at - 4, 16, true), /ggml type 16; allowed are F32, F16, Q4_0/],
    [
      'of rows that are no blocks',
      (view, at) => view.setBigUint64(at - 12, 33n, true),
      /rows of 33 .* multiples of 32/,
    ],
    ['of no dimension', (view, at) => view.setUint32(at - 16, 0, true), /has 0 sizes .* allowed are 1 to 4/],
  ])('a tensor %s', async (_, change, message) => {
    const bytes = fileOf(BASE, 'Q8_0');
    const name = 'blk.1.attn_norm.weight';
    const at = Buffer.from(bytes).indexOf(name) + name.length + 4 + 8 + 4;
    const matrix = 'blk.1.attn_v.weight';
    const atMatrix = Buffer.from(bytes).indexOf(matrix) + matrix.length + 4 + 16 + 4;
    const place = /33/.test(message.source) ? atMatrix - 8 : at;
    expect(await refusal(changed(bytes, (view) => change(view, place)))).toMatch(message);
  });

  test.each(['blk.00.attn_q.weight', 'model.layers.0.self_attn.q_proj.weight'])(
    'a second name of a tensor: %s',
    async (second) => {
      const tensors = ['token_embd.weight', 'blk.0.attn_q.weight', second].map((name): GgufTensor => ({
        name,
        shape: [4, 32],
        type: 'F32',
        data: new Float32Array(128),
      }));
      const bytes = writeGguf(new Map([['general.architecture', 'llama']]), tensors);
      expect(await refusal(bytes)).toBe(
        `m.gguf has the tensors "blk.0.attn_q.weight" and "${second}", which are both "model.layers.0.self_attn.q_proj.weight". Choose another file of the model.`,
      );
    },
  );

  test('bytes behind the last tensor', async () => {
    const bytes = fileOf(BASE, 'F16');
    expect(await refusal(new Uint8Array([...bytes, ...new Uint8Array(64)]))).toMatch(
      /has \d+ bytes after its last tensor/,
    );
  });

  test('damaged files, by seed: one error, or the same values where they were not touched', async () => {
    const originals = await Promise.all(
      (['F32', 'F16', 'Q8_0'] as const).map(async (type) => {
        const bytes = fileOf({ ...BASE, numHiddenLayers: 1 }, type);
        const { tensors } = await readGgufHeader({
          name: '',
          size: bytes.length,
          read: filesOf(bytes).read.bind(0, ''),
        });
        return { bytes, start: tensors[0].begin, weights: (await loaded(bytes)).weights };
      }),
    );
    const count = process.env['FULL_TESTS'] === '1' ? 600 : 150;
    const outcomes = { refused: 0, loaded: 0 };
    for (let seed = 0; seed < count; seed++) {
      const random = mulberry32(seed);
      const below = (n: number) => Math.floor(random() * n);
      const { bytes, start, weights } = originals[seed % 3];
      const place = below(random() < 0.8 ? start : bytes.length);
      const damaged = [
        () => bytes.slice(0, place), // truncated
        () => changed(bytes, (view) => view.setUint8(place, view.getUint8(place) ^ (1 << below(8)))),
        () => changed(bytes, (view) => view.setUint8(place, below(256))),
        () => changed(bytes, (view) => enlarge(view, [8, 16, Math.min(place, start - 8)][below(3)], random)),
      ][Math.floor(seed / 3) % 4]();
      const found = await loaded(damaged).catch((error: unknown) => {
        expect(error, `seed ${seed}`).toBeInstanceOf(InputError);
        expect((error as InputError).message, `seed ${seed}`).toMatch(TWO_SENTENCES);
      });
      outcomes[found ? 'loaded' : 'refused']++;
      if (!found) continue;
      expect(damaged.length, `seed ${seed}`).toBe(bytes.length);
      expect(differing(weights, found.weights), `seed ${seed}`).toBeLessThanOrEqual(place < start ? 0 : 32);
    }
    expect(outcomes.refused).toBeGreaterThan((5 / 6) * count);
    expect(outcomes.loaded).toBeGreaterThan(count / 12);
  });

  function changed(bytes: Uint8Array<ArrayBuffer>, change: (view: DataView) => void): Uint8Array {
    const copy = bytes.slice();
    change(new DataView(copy.buffer));
    return copy;
  }

  function enlarge(view: DataView, at: number, random: () => number): void {
    const sizes = [2n ** 64n - 1n, 2n ** 63n, 2n ** 53n, 2n ** 32n, 2n ** 31n - 1n, 2n ** 20n];
    view.setBigUint64(at, random() < 0.3 ? view.getBigUint64(at, true) + 1n : sizes[Math.floor(random() * 6)], true);
  }

  function differing(before: TensorMap, after: TensorMap): number {
    expect([...after.keys()]).toEqual([...before.keys()]);
    let count = 0;
    for (const [name, { data }] of before)
      data.forEach((x, i) => (count += Number(!Object.is(x, after.get(name)!.data[i]))));
    return count;
  }
});

test('a file that is kept never replaces another one, and the same file is kept once', async () => {
  const kept = new Map<string, Uint8Array>([['empty.gguf', new Uint8Array()]]);
  vi.mocked(opfsStore).mockResolvedValue({
    size: (name) => Promise.resolve(kept.get(name)?.length),
    read: (name, begin, end) => Promise.resolve(kept.get(name)!.slice(begin, end)),
    writer: (name) =>
      Promise.resolve({
        write: (bytes) => Promise.resolve(void kept.set(name, bytes)),
        close: () => Promise.resolve(),
      }),
  });
  const keep = (name: string, ...bytes: number[]) => keepGguf(new File([Uint8Array.from(bytes)], name));
  expect(await keep('my model.gguf', 1, 2)).toBe('my-model.gguf');
  expect(await keep('my-model.gguf', 1, 3)).toBe('my-model-2.gguf');
  expect(await keep('my-model.gguf', 1)).toBe('my-model-3.gguf');
  expect(await keep('my model.GGUF', 1, 3)).toBe('my-model-2.gguf');
  expect(await keep('empty.gguf', 7)).toBe('empty.gguf');
  expect(kept.get('my-model.gguf')).toEqual(Uint8Array.of(1, 2));
});

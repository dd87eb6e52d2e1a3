/** Untrusted checkpoints and adapters: headers, indexes and weights with wrong values. */

import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { initLora } from '../../src/model/lora/weights.ts';
import { saveAdapter } from '../../src/model/lora/adapter.ts';
import { loraModules } from '../../src/model/lora/config.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { readSafetensors, writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { ADAPTED, type ModelInput } from './input.ts';
import { encodeJson, mutatedBytes, mutatedJson, ODD } from './mutate.ts';

export interface Case {
  name: string;
  input: ModelInput;
}

const FOLDER = 'test/fixtures/tiny-qwen2';
const WEIGHTS = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
const read = (file: string) => new Uint8Array(readFileSync(`${FOLDER}/${file}`));

interface Base {
  config: Record<string, unknown>;
  weights: Uint8Array;
  header: Record<string, unknown>;
  data: Uint8Array;
}

function base(): Base {
  const weights = read(WEIGHTS);
  const length = Number(new DataView(weights.buffer).getBigUint64(0, true));
  const text = new TextDecoder().decode(weights.subarray(8, 8 + length));
  return {
    config: JSON.parse(new TextDecoder().decode(read('config.json'))) as Record<string, unknown>,
    weights,
    header: JSON.parse(text) as Record<string, unknown>,
    data: weights.slice(8 + length),
  };
}

/** Returns a file with this header text, even if its length field says something else. */
function withHeader(text: Uint8Array, data: Uint8Array, length = BigInt(text.length)): Uint8Array {
  const bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt.asUintN(64, length), true);
  bytes.set(text, 8);
  bytes.set(data, 8 + text.length);
  return bytes;
}

const utf8 = (text: string) => new TextEncoder().encode(text);
const checkpoint = (config: unknown, more: [string, Uint8Array][]): ModelInput => ({
  kind: 'checkpoint',
  files: new Map([['config.json', encodeJson(config)], ...more]),
});

function handmadeWeights({ config, weights, header, data }: Base): Case[] {
  const files = (name: string, bytes: Uint8Array) => ({ name, input: checkpoint(config, [[WEIGHTS, bytes]]) });
  const [first] = Object.keys(header).filter((name) => name !== '__metadata__');
  const entry = header[first] as Record<string, unknown>;
  const withEntry = (name: string, change: Record<string, unknown>) =>
    files(name, withHeader(encodeJson({ ...header, [first]: { ...entry, ...change } }), data));
  const valued = (value: number) => {
    const tensors = readSafetensors(weights);
    [...tensors.values()][1].data[3] = value;
    return files(`a weight is ${value}`, writeSafetensors(tensors));
  };
  return [
    ...[0n, 1n, 7n, 2n ** 31n, 2n ** 32n, 2n ** 53n, 2n ** 63n, -1n, 99_999_999n].map((length) =>
      files(`header of ${length} bytes`, withHeader(encodeJson(header), data, length)),
    ),
    ...['', '[]', 'null', '7', '{', '{}', '[['.repeat(50_000), '{"a":'.repeat(50_000), '\u0000'].map((text) =>
      files(`header ${text.slice(0, 10)}`, withHeader(utf8(text), data)),
    ),
    files('header not UTF-8', withHeader(Uint8Array.of(0xff, 0xfe, 0x7b), data)),
    files('metadata of 20 MB', withHeader(encodeJson({ __metadata__: { a: 'x'.repeat(20e6) }, ...header }), data)),
    files('metadata of escapes', withHeader(encodeJson({ __metadata__: { a: '\\"'.repeat(5e5) }, ...header }), data)),
    files(
      '300,000 empty tensors',
      withHeader(
        encodeJson({
          ...header,
          ...Object.fromEntries(
            Array.from({ length: 300_000 }, (_, i) => [`t${i}`, { dtype: 'F32', shape: [0], data_offsets: [0, 0] }]),
          ),
        }),
        data,
      ),
    ),
    files('nothing but white space', withHeader(utf8(' '.repeat(30e6)), data)),
    ...[
      [2 ** 31, 2 ** 31],
      [2 ** 53, 2 ** 53, 2 ** 53, 0],
      [1e308, 1e308],
      [-1],
      [0.5],
      [],
      Array(100_000).fill(1),
      '2',
      null,
    ].map((shape, i) => withEntry(`shape ${i}`, { shape })),
    ...[[0, 2 ** 53], [10, 0], [-4, 0], [0], [0, 4, 8], ['0', '4'], [0.5, 4.5], null].map((data_offsets, i) =>
      withEntry(`offsets ${i}`, { data_offsets }),
    ),
    ...['F64', 'I8', 'f32', 'BOOL', '', 'toString', '__proto__', 7, null, 'F16'].map((dtype) =>
      withEntry(`dtype ${String(dtype)}`, { dtype }),
    ),
    files(
      'a tensor named twice',
      withHeader(utf8(`{"x":{},${new TextDecoder().decode(encodeJson({ x: 1 })).slice(1)}`), data),
    ),
    files(
      'a tensor named __proto__',
      withHeader(utf8('{"__proto__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'), data),
    ),
    ...[NaN, Infinity, -Infinity, 3e38].map(valued),
    { name: 'no weights', input: checkpoint(config, []) },
    { name: 'a web page for weights', input: checkpoint(config, [[WEIGHTS, utf8('<!doctype html><html></html>')]]) },
    {
      name: 'a web page for the config',
      input: { kind: 'checkpoint', files: new Map([['config.json', utf8('<html>')]]) },
    },
    { name: 'no files', input: { kind: 'checkpoint', files: new Map() } },
  ];
}

const SHARDS = [
  ...['../model.safetensors', '/etc/passwd', 'C:\\model.safetensors', '..\\x', 'a/b', '', '.', '..', 'x\u0000', 'NUL'],
  ...[
    'con',
    'aux.safetensors',
    'COM1',
    'a:b',
    'a.',
    'x'.repeat(300),
    'config.json',
    'absent.safetensors',
    WEIGHTS,
    INDEX,
  ],
];

function handmadeIndexes({ config, weights, header }: Base): Case[] {
  const names = Object.keys(header).filter((name) => name !== '__metadata__');
  const indexed = (name: string, index: unknown, more: [string, Uint8Array][] = []) => ({
    name: `index: ${name}`,
    input: checkpoint(config, [[INDEX, encodeJson(index)], ['w.safetensors', weights], ...more]),
  });
  const mapped = (shard: unknown) => Object.fromEntries(names.map((name) => [name, shard]));
  return [
    ...[...SHARDS, ...ODD].map((shard, i) => indexed(`shard ${i}`, { weight_map: mapped(shard) })),
    ...ODD.map((weight_map, i) => indexed(`weight_map ${i}`, { weight_map })),
    indexed('fits', { weight_map: mapped('w.safetensors') }),
    indexed('one missing', { weight_map: Object.fromEntries(names.slice(1).map((n) => [n, 'w.safetensors'])) }),
    indexed('one too many', { weight_map: { ...mapped('w.safetensors'), more: 'w.safetensors' } }),
    indexed('100,000 shards', {
      weight_map: Object.fromEntries(Array.from({ length: 1e5 }, (_, i) => [`t${i}`, `s${i}`])),
    }),
  ];
}

/** Returns `count` cases of safetensors, indexes and config.json. */
export function weightCases(seed: number, count: number): Case[] {
  const from = base();
  const { config, header, data, weights } = from;
  const headerBytes = weights.length - data.length;
  const of = (numRuns: number, arbitrary: fc.Arbitrary<ModelInput>, name: string): Case[] =>
    fc.sample(arbitrary, { seed, numRuns }).map((input, i) => ({ name: `${name} ${i} of seed ${seed}`, input }));
  const made = [...handmadeWeights(from), ...handmadeIndexes(from)];
  const rest = Math.max(0, count - made.length);
  return [
    ...made.slice(0, count),
    ...of(
      Math.ceil(rest / 2),
      mutatedBytes(weights, headerBytes).map((bytes) => checkpoint(config, [[WEIGHTS, bytes]])),
      'bytes',
    ),
    ...of(
      Math.floor(rest / 2),
      mutatedJson(header).map((json) => checkpoint(config, [[WEIGHTS, withHeader(encodeJson(json), data)]])),
      'header',
    ),
  ];
}

const CONFIG_KEYS = [
  ...['architectures', 'model_type', 'vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'head_dim'],
  ...['num_attention_heads', 'num_key_value_heads', 'rms_norm_eps', 'rope_theta', 'rope_scaling', 'rope_parameters'],
  ...[
    'max_position_embeddings',
    'tie_word_embeddings',
    'attention_bias',
    'mlp_bias',
    'initializer_range',
    'hidden_act',
  ],
  ...[
    'sliding_window',
    'use_sliding_window',
    'layer_types',
    'no_rope_layers',
    'quantization_config',
    'max_window_layers',
  ],
];

export function configCases(seed: number, count: number): Case[] {
  const { config, weights } = base();
  const file = (json: unknown): ModelInput => checkpoint(json, [[WEIGHTS, weights]]);
  const made = CONFIG_KEYS.flatMap((key) =>
    ODD.map((odd, i) => ({ name: `${key} = odd value ${i}`, input: file({ ...config, [key]: odd }) })),
  );
  const texts = ['', '{', '[]', 'null', '[['.repeat(50_000), '\u0000', '{"a":1e999}', `{"a":"${'x'.repeat(5e6)}"}`].map(
    (text, i): Case => ({
      name: `text ${i}`,
      input: {
        kind: 'checkpoint',
        files: new Map([
          ['config.json', utf8(text)],
          [WEIGHTS, weights],
        ]),
      },
    }),
  );
  // If not all cases are run, take cases from all parts of the list.
  const step = Math.max(1, made.length / Math.max(1, count * 0.7));
  const some = made.filter((_, i) => Math.floor(i / step) !== Math.floor((i - 1) / step));
  const drawn = fc
    .sample(mutatedJson(config), { seed, numRuns: Math.max(0, count - some.length - texts.length) })
    .map((json, i) => ({ name: `config.json ${i} of seed ${seed}`, input: file(json) }));
  return [...texts, ...some, ...drawn];
}

export function adapterCases(seed: number, count: number): Case[] {
  const lora = { rank: 2, alpha: 4, dropout: 0, useRslora: false, targetModules: loraModules('all-linear'), seed: 1 };
  const tensors = initLora(parseModelConfig(ADAPTED), lora);
  const [[configName, configBytes], [weightsName, weights]] = [...saveAdapter({ lora, tensors })];
  const json = JSON.parse(new TextDecoder().decode(configBytes)) as Record<string, unknown>;
  const adapter = (config: Uint8Array, bytes: Uint8Array): ModelInput => ({
    kind: 'adapter',
    files: new Map([
      [configName, config],
      [weightsName, bytes],
    ]),
  });
  const keys = [
    'peft_type',
    'r',
    'lora_alpha',
    'lora_dropout',
    'target_modules',
    'use_rslora',
    'base_model_name_or_path',
  ];
  const more = ['use_dora', 'bias', 'rank_pattern', 'modules_to_save', 'init_lora_weights', 'fan_in_fan_out'];
  const made = [...keys, ...more].flatMap((key) =>
    ODD.map((odd, i) => ({
      name: `adapter: ${key} = odd value ${i}`,
      input: adapter(encodeJson({ ...json, [key]: odd }), weights),
    })),
  );
  const step = Math.max(1, made.length / Math.max(1, count / 2));
  const some = made.filter((_, i) => Math.floor(i / step) !== Math.floor((i - 1) / step));
  const rest = Math.max(0, count - some.length);
  const drawn = fc.sample(
    fc.oneof(
      mutatedBytes(weights, Math.min(weights.length, 3000)).map((bytes) => adapter(configBytes, bytes)),
      mutatedBytes(configBytes).map((bytes) => adapter(bytes, weights)),
      mutatedJson(json).map((changed) => adapter(encodeJson(changed), weights)),
    ),
    { seed, numRuns: rest },
  );
  return [...some, ...drawn.map((input, i) => ({ name: `adapter ${i} of seed ${seed}`, input }))];
}

/** Tests `webgrpo score` like a user calls it: a process, a folder, a file of tokens, numbers on standard output. */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { longest, readSequences } from '../../src/cli/commands/score.ts';
import { type ModelConfig, parseModelConfig } from '../../src/model/config.ts';
import { InputError } from '../../src/errors.ts';
import { packGroups } from '../../src/model/packing.ts';
import { elementCount, parameterSpecs } from '../../src/model/params.ts';
import { referenceForward, toFloat64 } from '../../src/model/reference/model.ts';
import { writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { webgrpo } from '../commandLine.ts';
import { rng } from '../random.ts';

const folder = mkdtempSync(join(tmpdir(), 'webgrpo-score-'));

function wordsOf(model: string, tokens: unknown) {
  const file = join(folder, 'tokens.json');
  writeFileSync(file, typeof tokens === 'string' ? tokens : JSON.stringify(tokens));
  return ['score', '--model', model, '--tokens', file];
}

/** Writes a model in bfloat16, in two shards, with llama3 scaling, a bias on every product of attention, and an untied head. */
function writeModel(): string {
  const json = {
    architectures: ['LlamaForCausalLM'],
    vocab_size: 97,
    hidden_size: 40,
    intermediate_size: 52,
    num_hidden_layers: 2,
    head_dim: 12,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    max_position_embeddings: 64,
    attention_bias: true,
    tie_word_embeddings: false,
    rope_theta: 10000,
    torch_dtype: 'bfloat16',
    rope_scaling: {
      rope_type: 'llama3',
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 32,
    },
  };
  const random = rng(5);
  const tensors = parameterSpecs(parseModelConfig(json)).map(({ name, shape }) => {
    const values = random.normals(elementCount(shape), 0.2);
    return [name, { shape, data: Float32Array.from(values, (v) => v + Number(name.endsWith('norm.weight'))) }] as const;
  });
  const path = join(folder, 'model');
  mkdirSync(path, { recursive: true });
  writeFileSync(join(path, 'config.json'), JSON.stringify(json));
  const weightMap: Record<string, string> = {};
  for (const [s, part] of [tensors.slice(0, 7), tensors.slice(7)].entries()) {
    const shard = `model-0000${s + 1}-of-00002.safetensors`;
    writeFileSync(join(path, shard), writeSafetensors(new Map(part), { format: 'pt' }, 'BF16'));
    for (const [name] of part) weightMap[name] = shard;
  }
  writeFileSync(join(path, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map: weightMap }));
  return path;
}

test('the numbers of the float64 reference to 1e-4, in the shape of the input', { timeout: 120_000 }, async () => {
  const path = writeModel();
  const random = rng(3);
  const ids = (n: number) => Array.from({ length: n }, () => Math.floor(random.uniform() * 97));
  const sequences = [ids(2), ids(64), ids(1), ids(33)];
  // A separate process, so that standard output contains only numbers, and a GPU is used.
  const args = ['scripts/webgrpo.mjs', ...wordsOf(path, sequences)];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  const said = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('setup: '));
  expect(said[0]).toMatch(/^memory plan: \d+\.\d MiB on the GPU$/);
  expect(said.at(-1)).toMatch(/^adapter: /);
  expect(status).toBe(0);
  const scores = JSON.parse(stdout) as number[][];
  expect(scores.map((s) => s.length)).toEqual([1, 63, 0, 32]);

  const { config, weights } = await loadCheckpoint((name) =>
    Promise.resolve(name.startsWith('model') || name === 'config.json' ? readIfThere(join(path, name)) : undefined),
  );
  for (const [s, [first, ...rest]] of sequences.entries()) {
    if (rest.length === 0) continue;
    const samples = [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }];
    const [{ batch }] = packGroups([{ prompt: Uint32Array.of(first), samples }], 4096);
    const { logProbs } = referenceForward(config, toFloat64(weights), batch);
    logProbs.forEach((want, t) => expect(Math.abs(scores[s][t] / want - 1)).toBeLessThan(1e-4));
  }
});

function readIfThere(path: string): Uint8Array | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

const CONFIG = { vocabSize: 97, maxPositionEmbeddings: 4 } as ModelConfig;
const REFUSED: [unknown, string][] = [
  [[], 't.json must hold a JSON array of arrays of token ids, such as [[1, 5, 2]].'],
  [[1, 2], 't.json must hold a JSON array of arrays of token ids, such as [[1, 5, 2]].'],
  [[[1], []], 't.json has no tokens in sequence 1. Every sequence needs at least one.'],
  [[[1, 1, 1, 1, 1]], 't.json has 5 tokens in sequence 0, but the model has 4 positions.'],
  [[[1, -1]], 't.json has -1 as token 1 of sequence 0; allowed: integers from 0 to 96.'],
  [[[[[1]]]], 't.json has [[1]] as token 0 of sequence 0; allowed: integers from 0 to 96.'],
  [[[null]], 't.json has null as token 0 of sequence 0; allowed: integers from 0 to 96.'],
  [{ length: 1 }, 't.json must hold a JSON array of arrays of token ids, such as [[1, 5, 2]].'],
  [[['1']], 't.json has "1" as token 0 of sequence 0; allowed: integers from 0 to 96.'],
];

test('more sequences than a call takes arguments', () => {
  const many = Array.from({ length: 200_000 }, (_, i) => Array<number>(1 + (i % 3)).fill(1));
  expect(longest(readSequences(many, CONFIG, 't.json'))).toBe(3);
});

test.each(REFUSED)('refuses %j', (tokens, sentence) => {
  expect(() => readSequences(tokens, CONFIG, 't.json')).toThrow(new InputError(sentence));
});

test.each([
  ['an id out of range', [[1, 2], [3, 97]], /tokens\.json has 97 as token 1 of sequence 1; allowed: integers from 0 to 96\.$/], // oxfmt-ignore
  ['what is not JSON', '[[1, 2', /tokens\.json is not JSON: /],
] as [string, unknown, RegExp][])('refuses %s with exit code 2 and one sentence', async (_, tokens, sentence) => {
  const { status, stdout, said } = await webgrpo(wordsOf(writeModel(), tokens));
  expect(said).toHaveLength(1);
  expect(said[0]).toMatch(sentence);
  expect(stdout).toBe('');
  expect(status).toBe(2);
});

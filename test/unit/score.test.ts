/**
 * Tests `webgrpo score` as a user calls it: in a process, with a checkpoint folder and a file of tokens, and numbers on standard output.
 */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { loadCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { conversationIds, longest, readSequences, scoreSequences } from '../../src/cli/commands/score.ts';
import { type ModelConfig, parseModelConfig } from '../../src/model/config.ts';
import { InputError } from '../../src/errors.ts';
import { packGroups } from '../../src/model/packing.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { elementCount, parameterSpecs } from '../../src/model/params.ts';
import { referenceForward, toFloat64, type Weights64 } from '../../src/extensions/verify/reference/model.ts';
import { writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { webgrpo } from '../commandLine.ts';
import { tokenizer } from '../scriptedTurns.ts';
import { rng } from '../random.ts';
import { stub } from '../stub.ts';

const isFull = process.env['FULL_TESTS'] === '1';
const folder = mkdtempSync(join(tmpdir(), 'webgrpo-score-'));

interface Loaded {
  config: ModelConfig;
  weights: Weights64;
}

function wordsOf(model: string, tokens: unknown) {
  const file = join(folder, 'tokens.json');
  writeFileSync(file, typeof tokens === 'string' ? tokens : JSON.stringify(tokens));
  return ['score', '--model', model, '--tokens', file];
}

/** Writes a model in bfloat16 and two shards, with llama3 RoPE scaling, biases on all attention projections, and an untied head. */
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

const random = rng(3);
const ids = (n: number) => Array.from({ length: n }, () => Math.floor(random.uniform() * 97));
const sequences = [ids(2), ids(64), ids(1), ids(33)];

/** Expects the log-probs of each sequence alone, by the float64 reference, in the shape of the input. */
async function expectScores(path: string, scoresOf: (model: Loaded) => number[][] | Promise<number[][]>) {
  const { config, weights } = await loadCheckpoint((name) =>
    Promise.resolve(name.startsWith('model') || name === 'config.json' ? readIfThere(join(path, name)) : undefined),
  );
  const model = { config, weights: toFloat64(weights) };
  const scores = await scoresOf(model);
  expect(scores.map((s) => s.length)).toEqual([1, 63, 0, 32]);
  for (const [s, [first, ...rest]] of sequences.entries()) {
    if (rest.length === 0) continue;
    const samples = [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }];
    const [{ batch }] = packGroups([{ prompt: Uint32Array.of(first), samples }], 4096);
    const { logProbs } = referenceForward(model.config, model.weights, batch);
    logProbs.forEach((want, t) => expect(Math.abs(scores[s][t] / want - 1)).toBeLessThan(1e-4));
  }
}

test('the scores of packed sequences are those of each alone, in the shape of the input', () =>
  expectScores(writeModel(), ({ config, weights }) => {
    const logProbs: Parameters<typeof scoreSequences>[0]['model']['logProbs'] = (batch) => {
      const { logProbs, entropy } = referenceForward(config, weights, batch);
      return Promise.resolve({ logProbs: Float32Array.from(logProbs), entropy: Float32Array.from(entropy) });
    };
    return scoreSequences({ model: { logProbs } }, sequences, 70, () => {}); // more than one pass
  }));

// Only with FULL_TESTS=1: modelShapes.test.ts compares the same kernels with the same reference every day.
test.runIf(isFull)('a process prints the numbers of the float64 reference to 1e-4', () => {
  const path = writeModel();
  // Runs the command in a separate process, so that standard output contains only numbers, and a GPU is used.
  const args = ['scripts/webgrpo.mjs', ...wordsOf(path, sequences)];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  const said = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('setup: '));
  expect(said[0]).toMatch(/^memory plan: \d+\.\d MiB on the GPU$/);
  expect(said.at(-1)).toMatch(/^adapter: /);
  expect(status).toBe(0);
  return expectScores(path, () => JSON.parse(stdout) as number[][]);
});

function readIfThere(path: string): Uint8Array | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

const CONFIG = stub<ModelConfig>({ vocabSize: 97, maxPositionEmbeddings: 4 });
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

describe('conversations', () => {
  const SHIPPED = 'checkpoints/gsm8k-tool';
  const asked = { role: 'user', content: 'What is 12 times 4?' };
  const said = { role: 'assistant', content: '#### 48' };
  const call = { id: '1', type: 'function', function: { name: 'calculator', arguments: '{"expression": "12*4"}' } };
  const result = { role: 'tool', tool_call_id: '1', content: '48' };
  const chatOf = (conversations: unknown) => {
    const file = join(folder, 'chat.json');
    writeFileSync(file, JSON.stringify(conversations));
    return ['score', '--model', SHIPPED, '--chat', file];
  };

  // Only with FULL_TESTS=1, because the test starts two processes, each of which loads the command line and opens a device.
  test.runIf(isFull)('ids are the template, a number for each, the same as of those ids', () => {
    const schema = { type: 'function', function: { name: 'f', description: 'F', parameters: { type: 'object' } } };
    const conversations = [[asked, said], { messages: [asked], tools: [schema] }];
    const run = (args: string[]): unknown => {
      const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/webgrpo.mjs', ...args], {
        encoding: 'utf8',
      });
      expect(status, stderr).toBe(0);
      return JSON.parse(stdout);
    };
    const scored = run(chatOf(conversations)) as { ids: number[]; logprobs: (number | null)[] }[];
    const options = { addGenerationPrompt: false };
    expect(scored.map(({ ids }) => ids)).toEqual([
      tokenizer.encode(tokenizer.applyChatTemplate([asked, said], options)),
      tokenizer.encode(tokenizer.applyChatTemplate([asked], { ...options, tools: [schema] })),
    ]);
    const again = run(
      wordsOf(
        SHIPPED,
        scored.map(({ ids }) => ids),
      ),
    ) as number[][];
    expect(scored.map(({ logprobs }) => logprobs)).toEqual(again.map((numbers) => [null, ...numbers]));
  });

  test('text parts, calls as text or object, and names of control tokens that a user writes', () => {
    const ids = (...conversation: unknown[]) => conversationIds([conversation], tokenizer, 'c.json')[0];
    expect(ids({ role: 'user', content: [{ type: 'text', text: 'a ' }, { text: 'b' }] })).toEqual(
      ids({ role: 'user', content: 'a b' }),
    );
    const hostile = ids({ role: 'user', content: '<|im_end|>' });
    expect(hostile.filter((id) => id === tokenizer.idOf('<|im_end|>'))).toHaveLength(1);
    const [CALLS, NONE] = [
      '{{ m.tool_calls[0].function.arguments.expression if m.tool_calls else m.content }}<|im_end|>',
      '{{ m.content }}',
    ];
    const own = (turn: string) => templated(`{% for m in messages %}<|im_start|>{{ m.role }}\n${turn}{% endfor %}`);
    const object = { ...call, function: { name: 'calculator', arguments: { expression: '12*4' } } };
    const caller = (given: object) => [[asked, { role: 'assistant', content: null, tool_calls: [given] }, result]];
    const rendered = conversationIds(caller(call), own(CALLS), 'c.json');
    expect(tokenizer.decode(rendered[0])).toContain('assistant\n12*4<|im_end|>');
    expect(conversationIds(caller(object), own(CALLS), 'c.json')).toEqual(rendered);
    const notes: string[] = [];
    conversationIds(caller(call), own(NONE), 'c.json', (note) => void notes.push(note));
    expect(notes).toEqual([
      expect.stringMatching(/^The chat template leaves out tool calls: they are not scored\. Use a/),
    ]);
  });

  test.each<[unknown, string]>([
    [{}, 'holds no list of conversations'],
    [[], 'holds no list of conversations'],
    [[asked], 'has no messages in conversation 0'],
    [[[asked], []], 'has no messages in conversation 1'],
    [[{ messages: [asked], tools: {} }], 'has "tools" in conversation 0 that are not a list'],
    [[[asked, { role: 'user' }]], 'has {"role":"user"} as message 1 of conversation 0'],
    [
      [[{ role: 'user', content: [{ type: 'image' }] }]],
      'has {"role":"user","content":[{"type":"image"}]} as message 0',
    ],
  ])('refuses %j', (json, words) => {
    expect(() => conversationIds(json, tokenizer, 'c.json')).toThrow(
      new RegExp(`^c\\.json ${words.replace(/[[\]{}]/g, '\\$&')}`),
    );
    expect(() => conversationIds(json, tokenizer, 'c.json')).toThrow(/\. Give a JSON array of conversations, /);
  });

  test('one of --tokens and --chat', async () => {
    const both = await webgrpo([...wordsOf(SHIPPED, [[1]]), '--chat', 'c.json']);
    expect(both.said).toEqual(['Both --tokens and --chat are given. Leave one out.']);
    expect((await webgrpo(['score', '--model', SHIPPED])).said).toEqual([
      '--tokens and --chat are missing. Give --tokens FILE or --chat FILE.',
    ]);
  });
});

function templated(chat_template: string): ChatTokenizer {
  const json = (name: string) =>
    JSON.parse(readFileSync(`checkpoints/gsm8k-tool/${name}`, 'utf8')) as Record<string, unknown>;
  return new ChatTokenizer(json('tokenizer.json'), { ...json('tokenizer_config.json'), chat_template });
}

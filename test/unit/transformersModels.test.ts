/** Tests rewards from real transformers.js pipelines, on tiny ONNX files that this test writes. */

import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ModelConfig } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import { referenceForward, toFloat64, type Weights64 } from '../../src/extensions/verify/reference/model.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { discriminativeScorer } from '../../src/extensions/rewards/modelReward.ts';
import { openGenerator } from '../../src/extensions/rewards/transformersModels.ts';
import { bagClassifier, bagLogits, writeClassifier, writeGenerator } from '../onnxModels.ts';
import { TINY_CONFIG } from '../tinyConfig.ts';
import { scored } from '../samples.ts';

const readJson = (name: string) =>
  JSON.parse(readFileSync(`checkpoints/gsm8k-tool/${name}`, 'utf8')) as Record<string, unknown>;
const FILES = { tokenizer: readJson('tokenizer.json'), config: readJson('tokenizer_config.json') };
const tokenizer = new ChatTokenizer(FILES.tokenizer, FILES.config);
const folder = () => mkdtempSync(join(tmpdir(), 'webgrpo-onnx-'));

const RESPONSES = ['2 + 2 is 4. #### 4', 'I do not know', '#### 5', 'x'];

const textOf = (response: string) => `What is 2 + 2?\n${response}`;

test('a classifier: the probability of the label, by hand', async () => {
  const model = bagClassifier(tokenizer.vocabSize, ['good', 'bad', 'ugly']);
  const path = folder();
  writeClassifier(path, model, FILES);
  const score = discriminativeScorer({ model: path, label: 'bad' });
  const likeliest = discriminativeScorer({ model: path });
  const got = await Promise.all(RESPONSES.map((response) => score(scored(response))));
  RESPONSES.forEach((response, i) => {
    const powers = bagLogits(model, tokenizer.encode(textOf(response))).map(Math.exp);
    expect(got[i]).toBeCloseTo(powers[1] / powers.reduce((a, b) => a + b), 6);
  });
  const powers = bagLogits(model, tokenizer.encode(textOf('x'))).map(Math.exp);
  expect(await likeliest(scored('x'))).toBeCloseTo(Math.max(...powers) / powers.reduce((a, b) => a + b), 6);
  expect(await score(scored('word '.repeat(1100))), 'over model_max_length').toBeNaN();
  await expect(discriminativeScorer({ model: path, label: 'fine' })(scored('x'))).rejects.toThrow(
    `The reward model ${path} has no label "fine". It has `,
  );
});

test('a reward model of one output gives its sigmoid', async () => {
  const model = bagClassifier(tokenizer.vocabSize, ['reward']);
  const path = folder();
  writeClassifier(path, model, FILES);
  const score = discriminativeScorer({ model: path });
  for (const response of RESPONSES) {
    const [logit] = bagLogits(model, tokenizer.encode(textOf(response)));
    expect(await score(scored(response))).toBeCloseTo(1 / (1 + Math.exp(-logit)), 6);
  }
});

test('a folder without a model ends in one error message', async () => {
  await expect(discriminativeScorer({ model: './no/such/model' })(scored('x'))).rejects.toThrow(
    /^reward\.model\.path \.\/no\/such\/model cannot be opened by transformers\.js: .+$/,
  );
});

const LLAMA: ModelConfig = { ...TINY_CONFIG, vocabSize: 512, hiddenSize: 32, headDim: 16, maxPositionEmbeddings: 128 };

/** Returns the most likely next token, computed in float64. */
function nextToken(weights: Weights64, ids: number[]): number {
  const [N, V] = [ids.length, LLAMA.vocabSize];
  const all = Uint32Array.from({ length: V }, (_, i) => i);
  const { logProbs } = referenceForward(LLAMA, weights, {
    tokens: Uint32Array.from(ids),
    positions: Uint32Array.from(ids, (_, i) => i),
    ranges: Uint32Array.from(ids.flatMap((_, i) => [0, 0, 0, i + 1])),
    queryEnd: new Uint32Array(N).fill(N),
    headRows: Uint32Array.of(N - 1),
    rowStart: Uint32Array.of(0, V),
    rowEntries: all,
    entryRow: new Uint32Array(V),
    targets: all,
    seqStart: Uint32Array.of(0, N),
  });
  return logProbs.indexOf(Math.max(...logProbs));
}

function greedy(weights: Weights64, prompt: string, count: number): string {
  const context = [...tokenizer.encodeChat([{ role: 'user', content: prompt }])];
  const said: number[] = [];
  while (said.length < count) {
    const next = nextToken(weights, [...context, ...said]);
    said.push(next);
    if (tokenizer.eosTokenIds.includes(next)) break;
  }
  return tokenizer.decode(said, { skipSpecialTokens: true });
}

test('a generator replies as the float64 model does, greedily, through its cache', async () => {
  const weights = initWeights(LLAMA, 5);
  const path = folder();
  writeGenerator(path, LLAMA, weights, FILES, tokenizer.eosTokenIds[0]);
  const reply = await openGenerator(path, { maxPromptLength: 60, maxNewTokens: 8 });
  const prompts = ['How good is 4?', 'x', 'What is 17 plus 4?'];
  const got = await Promise.all(prompts.map(reply));
  expect(got).toEqual(prompts.map((prompt) => greedy(toFloat64(weights), prompt, 8)));
  expect(new Set(got).size).toBe(3);
  expect(await reply('4<|im_end|>')).toBe(greedy(toFloat64(weights), '4< |im_end|>', 8));
  expect(await reply('word '.repeat(100))).toBeUndefined();
});

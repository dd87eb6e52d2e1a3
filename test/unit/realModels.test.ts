/** Tests the configs for real models against the shapes of those models, which were written into test/fixtures by hand. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { withLowered } from '../../src/grpo/generate/trainingSet.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { parameterCount } from '../../src/model/params.ts';
import { gsm8kJsonlTask, parseGsm8kJsonl } from '../../src/extensions/tasks/gsm8k/jsonl.ts';
import { checkParser, type PromptOptions } from '../../src/extensions/tasks/gsm8k/prompt.ts';
import { gsm8kReward } from '../../src/tasks/gsm8k/reward.ts';
import type { ScoredSample } from '../../src/tasks/task.ts';
import { answerSizes, otherEngineOf, engineSizes, policySizes } from '../../src/workers/engineSpec.ts';
import {
  checkBindings,
  checkPlan,
  fitted,
  type PlanItem,
  planMemory,
  planSavings,
  type Sizes,
  totalBytes,
} from '../../src/workers/memoryPlan.ts';
import { splitSpecs } from '../../src/workers/splitEngine.ts';
import { stub } from '../stub.ts';

const shapeOf = (name: string) =>
  parseModelConfig(JSON.parse(readFileSync(`test/fixtures/${name}/config.json`, 'utf8')));
const read = (file: string) => readFileSync(`configs/${file}.yaml`, 'utf8');

const isFull = process.env['FULL_TESTS'] === '1';

test.each([
  [undefined, 64],
  ['float16', 64],
  ['float16', 1],
] as const)('a cache of dtype %s with %i prompts is refused from the size of its buffer on', (dtype, maxPrompts) => {
  const config = { ...shapeOf('smollm2-135m-instruct'), vocabSize: 100 };
  const lengths = { slotCapacity: 1024, maxPromptLength: 512, maxBatchedTokens: 512 };
  const rollout = { maxNumSeqs: 64, maxPrompts, ...lengths };
  const sizes: Sizes = { config, dtype, use: 'generate', maxTokenLen: 0, maxPositions: 1536, rollout };
  const { bytes } = planMemory(sizes).find(({ name }) => name === 'KV cache')!;
  const layer = bytes / config.numHiddenLayers;
  expect(() => checkBindings(sizes, layer)).not.toThrow();
  expect(() => checkBindings(sizes, layer - 1)).toThrow(`The keys and values of a layer's cache need ${layer} bytes`);
});

test('the shapes are those of the models', () => {
  expect(parameterCount(shapeOf('smollm2-135m-instruct'))).toBe(134_515_008);
  expect(parameterCount(shapeOf('qwen2.5-0.5b-instruct'))).toBe(494_032_768);
});

test.each([
  ['gsm8k-smollm2-135m', 'smollm2-135m-instruct'],
  ['gsm8k-qwen2.5-0.5b-tool', 'qwen2.5-0.5b-instruct'],
  ...(isFull
    ? [
        ['gsm8k-smollm2-135m-tool', 'smollm2-135m-instruct'],
        ['gsm8k-qwen2.5-0.5b', 'qwen2.5-0.5b-instruct'],
      ]
    : []),
])('configs/%s fits %s: positions, buffers of 1 GiB, a plan that quantization makes smaller', (file, model) => {
  const config = parseTrainConfig(read(file), { source: file });
  const shape = shapeOf(model);
  expect(config.model.path.toLowerCase()).toContain(model);
  expect(config.data.maxPromptLength + config.data.maxResponseLength).toBeLessThanOrEqual(shape.maxPositionEmbeddings);
  const sizes = { ...engineSizes(config), config: shape };
  expect(() => checkBindings(sizes, 2 ** 30)).not.toThrow();
  const plan = planMemory(sizes);
  expect(plan.find(({ name }) => name === 'weights')!.bytes).toBeGreaterThan(4 * parameterCount(shape));
  expect(planSavings(sizes).map(({ change }) => change)).toContain('model.quantization=int4');
  expect(totalBytes(planMemory({ ...sizes, weightFormat: 'int8' }))).toBeLessThan(totalBytes(plan));
  expect(() => checkPlan(sizes, totalBytes(plan))).not.toThrow();
  expect(() => checkPlan(sizes, totalBytes(plan) - 1)).toThrow(
    /the machine has .*Each alone would save: .*rollout\.maxNumSeqs=.* It fits with /,
  );
  checkParser((config.task.options as Partial<PromptOptions>).parser);
  expect(read(file)).toContain('Not run by us');
});

test.each([
  ['a KL term', ['actor.useKlLoss=true']],
  ['a reference that judges', ['reward.judge.weight=1']],
  ['the weights of an asynchronous pipeline', ['trainer.pipeline=one-step-off']],
])('an evaluation has no memory for training: %s', (_, overrides) => {
  const config = parseTrainConfig('name: x\nmodel: {path: x}\n', { source: 'x', overrides });
  const linesFor = (sizes: Omit<Sizes, 'config'>) =>
    planMemory({ ...sizes, config: shapeOf('smollm2-135m-instruct') }).map(({ name }) => name);
  const generating = ['weights', 'KV cache', 'rollout activations', 'staging'];
  expect(linesFor(engineSizes(config)).length).toBeGreaterThan(generating.length);
  expect(linesFor(policySizes(config, 'generate')).sort()).toEqual(generating.sort());
  expect(linesFor(policySizes(config, 'score'))).not.toContain('KV cache');
});

test.each<[overrides: string[], advised: string | undefined]>([
  [['actor.useKlLoss=true'], 'actor.useKlLoss=false'],
  [['algorithm.useKlInReward=true'], 'algorithm.useKlInReward=false'],
  [['actor.useKlLoss=true', 'trainer.refUpdateFreq=5'], 'actor.useKlLoss=false and trainer.refUpdateFreq=0'],
  [['actor.useKlLoss=true', 'reward.judge.weight=1'], undefined],
  [['actor.useKlLoss=true', 'model.loraRank=8'], undefined],
])('the advised changes remove the reference: %s', (overrides, advised) => {
  const resolved = (more: string[] = []) => {
    const given = ['actor.useKlLoss=false', ...overrides, ...more];
    return engineSizes(parseTrainConfig('name: x\nmodel: {path: x}\n', { source: 'x', overrides: given }));
  };
  const sizes = { ...resolved(), config: shapeOf('smollm2-135m-instruct') };
  expect(sizes.withReference).toBe(true);
  const savings = planSavings(sizes).filter(({ change }) => /useKl|refUpdate|judge/.test(change));
  expect(savings.map(({ change }) => change)).toEqual(advised === undefined ? [] : [advised]);
  if (advised !== undefined) expect(resolved(advised.split(' and ')).withReference).toBe(false);
});

test('quantization is not advised to the rollout device of weights that are trained', () => {
  const config = parseTrainConfig('name: x\nmodel: {path: x}\n', {
    source: 'x',
    overrides: ['trainer.placement=split'],
  });
  const { train, rollout } = splitSpecs({ ...engineSizes(config), config: shapeOf('smollm2-135m-instruct') });
  for (const sizes of [train, rollout] as Sizes[])
    expect(
      planSavings(sizes)
        .map(({ change }) => change)
        .join(),
    ).not.toContain('model.quantization');
});

test('engines that train, evaluate or answer have the limit of memory', () => {
  const config = resolveTrainConfig({ name: 'x', model: { path: 'x', maxMemoryMib: 700 } });
  const shape = shapeOf('smollm2-135m-instruct');
  const all = [engineSizes(config), policySizes(config, 'generate'), answerSizes(config, shape, { start: false })];
  expect(all.map(({ maxMemoryMib }) => maxMemoryMib)).toEqual([700, 700, 700]);
});

describe('engines on one adapter share the limit of memory', () => {
  const shape = shapeOf('smollm2-135m-instruct');
  const sizesOf = (): Sizes => {
    const config = parseTrainConfig('name: x\nmodel: {path: x, loraRank: 8}\n', { source: 'x' });
    return { ...engineSizes(config), config: shape };
  };
  const checking = otherEngineOf(policySizes(resolveTrainConfig({ name: 'x', model: { path: 'x' } }), 'score'));
  const bytes = ({ otherEngines: _, ...alone }: Sizes) => totalBytes(planMemory(alone));

  test('split, with a model that verifies: each plan has the sum, and is refused above the limit', () => {
    const { train, rollout } = splitSpecs({ ...sizesOf(), otherEngines: [checking] });
    const others = train.otherEngines.slice(1).map((other) => bytes({ ...other, config: shape }));
    const sum = [bytes(train), bytes(rollout), ...others].reduce((a, b) => a + b, 0);
    for (const sizes of [train, rollout]) {
      expect(totalBytes(planMemory(sizes))).toBe(sum);
      expect(() => checkPlan(sizes, sum)).not.toThrow();
      expect(() => checkPlan(sizes, sum - 1)).toThrow(
        /^This run needs .*, other engines of the run [\d.]+ MiB\)\. Each/,
      );
    }
  });

  test('both lower the same settings to the same values, and fit together', () => {
    const { train, rollout } = splitSpecs(sizesOf());
    const limit = Math.floor(0.6 * totalBytes(planMemory(train)));
    expect(limit).toBeGreaterThan(bytes(rollout));
    const [trains, generates] = [train, rollout].map((sizes) => fitted(sizes, limit));
    expect(trains.lowered).toBeDefined();
    expect(generates.lowered!.values).toEqual(trains.lowered!.values);
    expect(bytes(trains) + bytes(generates)).toBeLessThanOrEqual(limit);
  });
});

describe('settings that are not written are lowered until the run fits', () => {
  const smol = shapeOf('smollm2-135m-instruct');
  const sizesOf = (model = smol, ...overrides: string[]) => {
    const config = parseTrainConfig('name: x\nmodel: {path: x, loraRank: 8}\n', { source: 'x', overrides });
    return { ...engineSizes(config), config: model };
  };
  const GIB = 2 ** 30;

  test('the defaults stay if they fit', () => {
    const sizes = sizesOf();
    expect(fitted(sizes, 64 * GIB)).toBe(sizes);
    expect(fitted(sizes, totalBytes(planMemory(sizes)))).toBe(sizes);
  });

  test.each([
    ['4 GiB of memory', smol, [], 4 * GIB, Infinity, /the plan of [\d.]+ MiB is above the 4096\.0 MiB of the machine/],
    ['a cap', smol, ['model.maxMemoryMib=2500'], 2500 * 2 ** 20, Infinity, /2500\.0 MiB of model\.maxMemoryMib/],
    [
      'a huge vocabulary and small bindings',
      { ...smol, vocabSize: 1 << 21 },
      [],
      1e15,
      GIB / 4,
      /maxNumSeqs=32 instead of 128, because the device binds at most/,
    ],
    [
      'a small binding for the MLP',
      { ...smol, intermediateSize: 49152 },
      [],
      1e15,
      GIB / 2,
      /ppoMaxTokenLenPerGpu=1024 instead of 4096/,
    ],
    [
      'a model of 256 positions',
      { ...smol, maxPositionEmbeddings: 256 },
      [],
      1e15,
      Infinity,
      /maxResponseLength=96 instead of 160, because the model has 256 positions/,
    ],
    ['long prompts', smol, ['data.maxPromptLength=6000'], 20 * GIB, Infinity, /maxNumSeqs=\d+ instead of 128/],
  ] as const)('%s', (_, model, overrides, maxBytes, maxArenaBytes, note) => {
    const sizes: Sizes = { ...sizesOf(model, ...overrides), maxArenaBytes };
    const found = fitted(sizes, maxBytes);
    const { lowered } = found;
    expect(lowered!.note).toMatch(note);
    expect(totalBytes(planMemory(found))).toBeLessThanOrEqual(maxBytes);
    expect(() => checkBindings(found, maxArenaBytes)).not.toThrow();
    expect(found.maxTokenLen).toBeGreaterThanOrEqual(found.maxPositions);
    expect(found.maxPositions).toBeLessThanOrEqual(model.maxPositionEmbeddings);
    expect(Object.keys(lowered!.values).every((key) => lowered!.note.includes(key))).toBe(true);
    expect(fitted(found, maxBytes)).toBe(found);
  });

  test('a written value stays, and the refusal says what fits', () => {
    const written = sizesOf(
      smol,
      'rollout.maxNumSeqs=128',
      'actor.ppoMaxTokenLenPerGpu=4096',
      'data.maxResponseLength=160',
    );
    expect(fitted(written, 3 * GIB)).toBe(written);
    expect(() => checkPlan(written, 3 * GIB)).toThrow(/It fits with (?=.*actor\.ppoMaxTokenLenPerGpu=\d+)/);
    const slots = sizesOf(smol, 'rollout.maxNumSeqs=128');
    expect(fitted(slots, 3 * GIB)).toMatchObject({ rollout: { maxNumSeqs: 128 } });
    const none = sizesOf(smol, 'model.lowerToFit=none');
    expect(fitted(none, 3 * GIB)).toBe(none);
  });

  test('no values fit', () => {
    const sizes = sizesOf({ ...smol, numHiddenLayers: 1 });
    expect(fitted(sizes, 2 ** 20)).toBe(sizes);
    expect(() => checkPlan(sizes, 2 ** 20)).toThrow(/Each alone would save: (?!.* It fits with )/);
  });

  test('a run has the lowered values, and a config that is written again keeps what may be lowered', () => {
    const config = parseTrainConfig('name: x\nmodel: {path: x}\nrollout: {maxNumSeqs: 64}\n', { source: 'x' });
    expect(config.model.lowerToFit).toEqual(['actor.ppoMaxTokenLenPerGpu', 'data.maxResponseLength']);
    expect(resolveTrainConfig(config)).toEqual(config);
    const lowered = withLowered(config, { 'actor.ppoMaxTokenLenPerGpu': 512, 'data.maxResponseLength': 40 });
    expect([lowered.actor.ppoMaxTokenLenPerGpu, lowered.data.maxResponseLength, lowered.rollout.maxNumSeqs]).toEqual([
      512, 40, 64,
    ]);
    expect(withLowered(config)).toBe(config);
  });
});

test('the memory in docs/guides/models.md is what is planned', () => {
  const docs = readFileSync('docs/guides/models.md', 'utf8');
  const planOf = (file: string, model: string): PlanItem[] =>
    planMemory({ ...engineSizes(parseTrainConfig(read(file), { source: file })), config: shapeOf(model) });
  const mib = (bytes: number) => Math.round(bytes / 2 ** 20).toLocaleString('en-US');
  for (const model of ['smollm2-135m', 'qwen2.5-0.5b']) {
    const plan = planOf(`gsm8k-${model}`, `${model}-instruct`);
    expect(docs).toContain(`gsm8k-${model}.yaml\` (${mib(totalBytes(plan))} MiB`);
  }
});

test("the optimizers' memory in docs/guides/speed-and-memory.md is what is planned", () => {
  const docs = readFileSync('docs/guides/speed-and-memory.md', 'utf8');
  const bytes = (optimizer: string) => {
    const overrides = ['model.loraRank=0', `actor.optim.optimizer=${optimizer}`];
    const config = parseTrainConfig(read('gsm8k-smollm2-135m'), { source: 'x', overrides });
    const plan = planMemory({ ...engineSizes(config), config: shapeOf('smollm2-135m-instruct') });
    return plan.filter(({ name }) => /AdamW|momentum|Schulz/.test(name)).reduce((sum, item) => sum + item.bytes, 0);
  };
  const [adamw, muon] = ['AdamW', 'muon'].map(
    (name) => `${Math.round(bytes(name) / 2 ** 20).toLocaleString('en-US')} MiB`,
  );
  expect(bytes('sign_sgd')).toBe(0);
  expect(docs).toContain(`SmolLM2-135M: AdamW ${adamw}, Muon ${muon}, SGD and SignSGD none`);
});

test('system message and instruction are in the prompt, and only the last user message is changed', () => {
  const line = JSON.stringify({ question: 'How many?', answer: '<<1+2=3>>3\n#### 3' });
  const problems = parseGsm8kJsonl(line, 'x.jsonl');
  const task = gsm8kJsonlTask(problems, problems, {
    prompt: { systemPrompt: 'Be brief.', instruction: 'End in ####.' },
  });
  const want = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'How many? End in ####.' },
  ];
  expect(task.train(0, 1).messages).toEqual(want);
  expect(task.heldOut(1)[0].messages).toEqual(want);
  expect(gsm8kJsonlTask(problems, problems).heldOut(1)[0]).toBe(problems[0]);
});

test.each([
  ['The answer is 1,234.', '1234', 0, 1],
  ['#### 12', '12', 1, 1],
  ['#### 12 apples, 3 each', '12', 1, 0],
  ['none', '12', 0, 0],
  ['It costs $-3.50', '-3.50', 0, 1],
  ['It is 18...', '18', 0, 1],
  ['The share is .5', '.5', 0, 1],
])('"%s" against %s: strict %i, flexible %i', (response, answer, strict, flexible) => {
  const sample = stub<ScoredSample>({ response, problem: { answer }, numToolCalls: 0, numToolErrors: 0 });
  expect(gsm8kReward(sample).acc).toBe(strict);
  expect(gsm8kReward(sample, undefined, 'flexible').acc).toBe(flexible);
});

test('a full stop after the answer of a file is no part of the number', () => {
  const line = JSON.stringify({ question: 'How many?', answer: '#### 1,800.' });
  expect(parseGsm8kJsonl(line, 'x.jsonl')[0].answer).toBe('1800');
});

test('a parser that does not exist is refused', () => {
  expect(() => checkParser('loose')).toThrow('task.options.parser is "loose"; allowed: strict, flexible.');
});

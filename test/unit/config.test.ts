import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { stringify } from 'yaml';
import { nearestKey } from '../../src/grpo/config/resolve.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import { keyDocs, keysAndParts } from '../../src/grpo/config/keys.ts';
import { parseSftConfig } from '../../src/extensions/sft/text.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { batchTable, nearestDivisors } from '../../src/grpo/config/rules.ts';
import { correctionSettings } from '../../src/grpo/correction/settings.ts';
import { TRAIN_SCHEMA } from '../../src/grpo/config/schema/index.ts';
import { SFT_SCHEMA } from '../../src/extensions/sft/schema.ts';
import { ConfigError, InputError } from '../../src/errors.ts';
import { readMetrics, readProfile, readRollouts } from '../../src/runs/readLog.ts';
import { TOOL_PARSERS } from '../../src/rollout/tools/parser.ts';
import { parseGsm8kJsonl } from '../../src/extensions/tasks/gsm8k/jsonl.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { processorMs } from '../processorTime.ts';

const MINIMAL = 'name: t\nmodel: { path: m }\n';
const parse = (yaml: string, ...overrides: string[]) => parseTrainConfig(yaml, { source: 't.yaml', overrides });

const KNOWN = new Set([TRAIN_SCHEMA, SFT_SCHEMA].flatMap((schema) => [...keysAndParts(schema)]));

/**
 * Returns the complete message of the InputError that `body` throws. Also checks that all keys in the message exist, except a key that the
 * message calls unknown. overrides.test.ts tests whether the message blames the file or an override.
 */
function sentence(body: () => unknown): string {
  try {
    body();
  } catch (error) {
    expect(error).toBeInstanceOf(InputError);
    if (error instanceof ConfigError && !/unknown key|policyLoss/.test(error.sentence))
      for (const key of error.keys) expect(KNOWN).toContain(key);
    return (error as Error).message.replace(/^override [^=]+=.*?: /s, 't.yaml: ');
  }
  throw new Error('Nothing was thrown.');
}

test.each(readdirSync('configs').filter((file) => file.endsWith('.yaml')))('configs/%s is valid', (file) => {
  const text = readFileSync(`configs/${file}`, 'utf8');
  const read = file.includes('sft') ? parseSftConfig : parseTrainConfig;
  expect(read(text, { source: file }).name).toBe(file.replace('.yaml', ''));
});

test('the default recipe', () => {
  const config = parse(readFileSync('configs/gsm8k-tool.yaml', 'utf8'));
  expect(batchTable(config)).toMatchObject({ samples: 128, updates: 2 });
  expect(config.actor).toMatchObject({
    policyLoss: { lossMode: 'vanilla' },
    clipRatioLow: 0.2,
    clipRatioHigh: 0.28,
    clipRatioC: 3,
  });
  expect(config.actor).toMatchObject({ lossAggMode: 'token-mean', gradClip: 1, klLossCoef: 0 });
  expect(config.actor.optim).toMatchObject({ lr: 3e-4, betas: [0.9, 0.95] });
  expect(policyLossSpec(config).numbers).toEqual({ clipRatioLow: 0.2, clipRatioHigh: 0.28, clipRatioC: 3 });
});

test.each(['', 'algorithm: { name: dapo }', 'algorithm: { name: sapo }', 'algorithm: { name: reinforce }'])(
  'a resolved config reads back to itself: %s',
  (extra) => {
    const config = parse(MINIMAL + extra);
    expect(parse(stringify(config))).toEqual(config);
  },
);

test('the algorithm sets the keys that the user does not', () => {
  expect(parse(`${MINIMAL}algorithm: { name: dapo }`).actor.clipRatioHigh).toBe(0.28);
  expect(parse(`${MINIMAL}algorithm: { name: dapo }`).algorithm.filterGroups.enable).toBe(true);
  expect(parse(`${MINIMAL}algorithm: { name: dapo }`, 'actor.clipRatioHigh=0.3').actor.clipRatioHigh).toBe(0.3);
  expect(parse(`${MINIMAL}algorithm: { name: dr_grpo }`).algorithm.scaleRewards).toBe('none');
  expect(parse(MINIMAL, 'algorithm.normAdvByStdInGrpo=false').algorithm.scaleRewards).toBe('none');
  expect(parse(MINIMAL, 'actor.clipRatio=0.1').actor).toMatchObject({ clipRatioLow: 0.1, clipRatioHigh: 0.1 });
  expect(parse(`${MINIMAL}algorithm: { name: sapo }`).actor.policyLoss).toMatchObject({ tauPos: 1, tauNeg: 1.05 });
  expect(policyLossSpec(parse(`${MINIMAL}algorithm: { name: reinforce }`)).numbers).toMatchObject({ rolloutIs: 1 });
});

test('the KL switch and its coefficient follow each other', () => {
  expect(parse(MINIMAL).actor).toMatchObject({ useKlLoss: false, klLossCoef: 0 });
  expect(parse(MINIMAL, 'actor.klLossCoef=0.04').actor).toMatchObject({ useKlLoss: true, klLossCoef: 0.04 });
  expect(parse(MINIMAL, 'actor.useKlLoss=true').actor.klLossCoef).toBe(0.001);
  expect(parse(MINIMAL, 'actor.klLossCoef=0.04', 'actor.useKlLoss=false').actor.klLossCoef).toBe(0);
});

test.each(['algorithm.useKlInReward=true', 'reward.overlongBuffer.len=16'])(
  'gdpo does not ignore %s, which changes a reward that it does not read',
  (override) => {
    const message = sentence(() => parse(MINIMAL, 'algorithm.name=gdpo', override));
    expect(message).toContain('algorithm.advEstimator is "gdpo"');
    expect(message).toContain(`not the score that ${override.split('=')[0]} would change`);
    expect(() => parse(MINIMAL, override)).not.toThrow();
  },
);

test.each(['algorithm.filterGroups.enable=true', 'algorithm.name=dapo', 'algorithm.replayBufferSize=8'])(
  'groups of one sample, which never differ, cannot be filtered: %s',
  (override) => {
    expect(sentence(() => parse(MINIMAL, override, 'rollout.n=1'))).toContain('rollout.n is 1, but algorithm.filterG');
    expect(() => parse(MINIMAL, override, 'rollout.n=2')).not.toThrow();
  },
);

test.each([
  ['actor.optim.lrWarmup=1', 't.yaml: unknown key "actor.optim.lrWarmup". Did you mean "actor.optim.lrWarmupSteps"?'],
  ['actor.ppo_mini_batch_size=1', 'unknown key "actor.ppo_mini_batch_size". Did you mean "actor.ppoMiniBatchSize"?'],
  ['actor.temperature=1', 'unknown key "actor.temperature". Did you mean "rollout.temperature"?'],
  ['data.trainBatchsize=8', 'unknown key "data.trainBatchsize". Did you mean "data.trainBatchSize"?'],
  ['rollot.n=8', 'unknown key "rollot". Did you mean "rollout"?'],
  ['actor.__proto__.x=1', 't.yaml: unknown key "actor.__proto__".'],
  ['__proto__.x=1', 't.yaml: unknown key "__proto__".'],
  ['actor.toString=1', 't.yaml: unknown key "actor.toString".'],
  ['constructor.prototype.x=1', 't.yaml: unknown key "constructor".'],
  ['rollout.n=0', 't.yaml: "rollout.n" is 0; allowed: integer >= 1.'],
  ['rollout.n=1.5', 't.yaml: "rollout.n" is 1.5; allowed: integer >= 1.'],
  ['rollout.n=many', 't.yaml: "rollout.n" is "many"; allowed: integer >= 1.'],
  ['rollout.topP=1.5', 't.yaml: "rollout.topP" is 1.5; allowed: 0.000001 to 1.'],
  ['actor.optim.lr=0', 't.yaml: "actor.optim.lr" is 0; allowed: auto, or > 0.'],
  ['actor.optim.optimizer=adafactor', '"actor.optim.optimizer" is "adafactor"; allowed: AdamW | SGD | SignSGD | Muon.'],
  ['actor.optim.momentum=0.9', 'actor.optim.momentum is set, but actor.optim.optimizer is AdamW, which has none'],
  ['actor.optim.lr=.nan', '"actor.optim.lr" is'],
  ['trainer.defaultLocalDir=~/runs', 'trainer.defaultLocalDir is "~/runs", and a config file does not expand "~".'],
  ['engine=cuda', 't.yaml: "engine" is "cuda"; allowed: wgsl | tfjs.'],
  ['data=3', '"data" is 3'],
  ['actor.clipRatioC=1', 'clipRatioC is 1; allowed: above 1'],
  ['name=../x', 't.yaml: name is "../x"; allowed: letters, digits, ., _ and -, not starting with a dot, at most 128.'],
  [`name=${'a'.repeat(300)}`, 'allowed: letters, digits, ., _ and -, not starting with a dot, at most 128.'],
  ['data.trainBatchSize=2000000001', 't.yaml: "data.trainBatchSize" is 2000000001; allowed: up to 1048576.'],
  ['rollout.n=2147483648', 't.yaml: "rollout.n" is 2147483648; allowed: up to 1048576.'],
  ['rollout.n=100000', 't.yaml: data.trainBatchSize x rollout.n is 16 x 100000 = 1600000 samples. At most 1048576 are'],
  [
    'rollout.valKwargs.n=5000',
    'data.valMaxSamples x rollout.valKwargs.n is 256 x 5000 = 1280000 samples. At most 1048576',
  ],
  ['actor.optim.lr=1e300', '"actor.optim.lr" is 1e+300; allowed: up to 3.4e+38, the largest number that the GPU has.'],
  ['actor.optim.lr=1e-300', '"actor.optim.lr" is 1e-300; allowed: at least 1.2e-38, since less is 0 on the GPU.'],
  ['rollout.temperature=1e-30', '"rollout.temperature" is 1e-30; allowed: 0.000001 to 1000000.'],
  ['model=[]', 't.yaml: "model" is []; allowed: keys such as model.path, or nothing at all.'],
  ['data=[]', 't.yaml: "data" is []; allowed: keys such as data.trainBatchSize, or nothing at all.'],
  ['rollout=null', 't.yaml: "rollout" is null; allowed: keys such as rollout.n, or nothing at all.'],
  [
    'rollout.stop=&a [*a]',
    'The value of the override "rollout.stop=&a [*a]" is nested more than 32 deep, or holds an alias',
  ],
  ['rollout.stop=*a', 'The value of the override "rollout.stop=*a" is not YAML: Unresolved alias'],
  [
    'rollout.stop=!!binary aGk=',
    'is not YAML: Unresolved tag: tag:yaml.org,2002:binary at line 1, column 1. Correct it there.',
  ],
  [
    'rollout.stop=? [a]',
    'is not YAML: With stringKeys, all keys must be strings at line 1, column 3. Correct it there.',
  ],
  [
    'actor.ppoMiniBatchSize=6',
    't.yaml: actor.ppoMiniBatchSize is 6 prompts, which does not divide data.trainBatchSize 16. The nearest that do are 4 and 8.',
  ],
  [
    'actor.ppoMicroBatchSizePerGpu=48',
    't.yaml: actor.ppoMicroBatchSizePerGpu is 48 sequences, which does not divide the mini-batch of 8 prompts x 8 samples = 64. The nearest that do are 32 and 64.',
  ],
  ['actor.ppoMaxTokenLenPerGpu=100', 'one sequence may take data.maxPromptLength + data.maxResponseLength = 320'],
  ['actor.entropyCoeffMin=2', 't.yaml: actor.entropyCoeffMin is 2, above entropyCoeffMax 1. Swap them.'],
  ['rollout.valKwargs.temperature=1e-9', 'temperature is 1e-9; allowed: 0, or at least 0.000001.'],
  ['actor.optim={ optimizer: SignSGD, momentum: 0.9 }', 'but actor.optim.optimizer is SignSGD, which has none.'],
  ['data.difficulty={ hard: 0.9, easy: 0.5 }', 'data.difficulty.hard is 0.9, above easy 0.5. Swap them.'],
  ['rollout.n', 'Cannot read the override "rollout.n". Write it as actor.optim.lr=1e-4.'],
  ['name.x=1', 'The override "name.x=1" sets a key inside "name", which is a value.'],
])('bad input %s ends in one sentence', (override, expected) => {
  const message = sentence(() => parse(MINIMAL, override));
  expect(message).toContain(expected);
  expect(message).not.toContain('\n');
});

test('an override changes no other object', () => {
  expect(() => parse(MINIMAL, 'actor.__proto__.polluted=1')).toThrow(InputError);
  expect(() => parse(`${MINIMAL}actor: { __proto__: { polluted: 1 } }`)).toThrow(InputError);
  expect({}).not.toHaveProperty('polluted');
});

test('sizes that hang, and sizes that no memory holds, are refused', () => {
  // A search that tries 2 ** 40 sizes one after another would exceed any time limit of a test.
  expect(
    sentence(() => parse(MINIMAL, 'data.trainBatchSize=1000003', 'rollout.n=1', 'actor.ppoMiniBatchSize=8')),
  ).toContain('nearest that do are 1 and 1000003');
  expect(
    sentence(() => parse(MINIMAL, 'data.trainBatchSize=999999', 'rollout.n=1', 'actor.ppoMiniBatchSize=8')),
  ).toContain('7 and 9');
  expect(nearestDivisors(100_000_008, 7)).toBe('The nearest that do are 6 and 8.');
  expect(nearestDivisors(2 ** 40, 3)).toBe('The nearest that do are 2 and 4.');
  expect(nearestDivisors(12, 12)).toBe('The nearest that does is 6.');
  expect(nearestDivisors(16, 5)).toBe('The nearest that do are 4 and 8.');
  const sft = (...overrides: string[]) => sentence(() => parseSftConfig('name: s', { source: 's.yaml', overrides }));
  expect(sft('model.numHiddenLayers=2147483648')).toContain(
    '"model.numHiddenLayers" is 2147483648; allowed: up to 1024.',
  );
  expect(sft('model.hiddenSize=65536')).toContain('fresh weights may be up to 2147483648: lower model.hiddenSize, ');
});

test('keys of a supervised run that would be ignored are refused', () => {
  const sft = (...overrides: string[]) => sentence(() => parseSftConfig('name: s', { source: 's.yaml', overrides }));
  for (const task of ['task.name=countdown', 'task.module=task.js'])
    for (const key of ['guessRate=0.5', 'firstOperationErrorRate=1', 'swappedTemplates=ages'])
      expect(sft(task, `data.demonstrations.${key}`)).toContain(
        `data.demonstrations.${key.replace('=', ' is ')}, but only the demonstrations of the task gsm8k have such mistakes.`,
      );
  expect(sft('model.path=x', 'model.tokenizerPath=y')).toContain('the checkpoint of model.path has its own tokenizer');
  // A checkpoint has its own number of positions, so model.maxPositionEmbeddings is for a model that is created here.
  const long = ['data.maxLength=600', 'data.maxTokenLenPerGpu=600'];
  expect(sft(...long)).toContain('allowed: up to model.maxPositionEmbeddings 512');
  expect(() => parseSftConfig('name: s', { source: 's.yaml', overrides: [...long, 'model.path=x'] })).not.toThrow();
  expect(sft('model.path=x', 'data.maxLength=600', 'data.maxTokenLenPerGpu=500')).toContain(
    'data.maxLength is 600 tokens; allowed: up to data.maxTokenLenPerGpu 500.',
  );
});

const DEEP = {
  brackets: `a: ${'['.repeat(10_000)}`,
  braces: `a: ${'{'.repeat(5000)}`,
  dashes: `a:\n${'- '.repeat(10_000)}`,
};
const LONG = {
  text: `name: ${'x'.repeat(10_000_000)}`,
  quotes: `name: ${'"'.repeat(process.env['FULL_TESTS'] === '1' ? 60_000 : 20_000)}`,
  bomb: `a: &a [${'x,'.repeat(9)}]\nb: &b [${'*a,'.repeat(9)}]\nc: &c [${'*b,'.repeat(9)}]\nd: [${'*c,'.repeat(9)}]`,
};
test.each([
  ...Object.entries(DEEP).map(([name, text]) => [name, text, /^t\.yaml is nested more than 32 deep/] as const),
  ['long text', LONG.text, /^t\.yaml has 10000006 characters; allowed: at most 65536\. Shorten it\.$/],
  [
    'many quotes',
    LONG.quotes,
    /^t\.yaml is not YAML: Unexpected double-quoted-scalar at node end at line 1, column 9\. Correct it there\.$/,
  ],
  ['aliases that multiply', LONG.bomb, /^t\.yaml is not YAML: Excessive alias count/],
  [
    'an alias in itself',
    'name: x\nmodel: &m {path: p, more: *m}',
    /^t\.yaml is nested more than 32 deep, or holds an alias/,
  ],
  ['two documents', 'name: x\n---\nname: y', /^t\.yaml holds several documents, but a config is one/],
  ['a NUL', 'name: a\nmodel: {path: "\0"}', /^t\.yaml is not YAML: the control character 0 in line 2\. Remove it\.$/],
  [
    'a tag',
    'name: !!js/function x',
    /^t\.yaml is not YAML: Unresolved tag: .* at line 1, column 7\. Correct it there\.$/,
  ],
  ['nothing', '', /^t\.yaml: "name" is missing/],
] as const)('YAML of %s ends in one sentence, soon', (_, text, expected) => {
  let message = '';
  expect(processorMs(() => (message = sentence(() => parse(text))))).toBeLessThan(10_000); // a guard against hanging
  expect(message).toMatch(expected);
  expect(message).not.toContain('\n');
});

test('nothing that is read changes what every object inherits', () => {
  const key = fc.constantFrom(
    '__proto__',
    'constructor',
    'prototype',
    'toString',
    'polluted',
    'model',
    'data',
    'actor',
  );
  const tree = fc.letrec((tie) => ({
    tree: fc.oneof({ maxDepth: 4 }, fc.constant(1), fc.dictionary(key, tie('tree'), { maxKeys: 3 })),
  })).tree;
  const inherited = () => [Object.prototype, Array.prototype].map((prototype) => Reflect.ownKeys(prototype).length);
  const before = inherited();
  vi.spyOn(console, 'warn').mockReturnValue(); // hides these lines
  const attempt = (body: () => unknown) => {
    try {
      body();
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
    }
  };
  fc.assert(
    fc.property(tree, fc.array(key, { minLength: 1, maxLength: 4 }), (drawn, path) => {
      const json = JSON.stringify(drawn);
      attempt(() => parse(json));
      attempt(() => parse(MINIMAL, `${path.join('.')}=${json}`));
      attempt(() => parseSftConfig(json, { source: 's.yaml', overrides: [`${path.join('.')}=${json}`] }));
      attempt(() => parseGsm8kJsonl(json, 'f'));
      readMetrics(`${json}\n`, 'metrics.jsonl');
      readRollouts(`${json}\n`, 'rollouts.jsonl');
      readProfile(`${json}\n${json}\n`, 'profile.jsonl');
      for (const read of Object.values(TOOL_PARSERS))
        read(`<tool_call>{"name": "calculator", "arguments": ${json}}</tool_call>`, [calculator]);
      expect(inherited()).toEqual(before);
    }),
    { numRuns: process.env['FULL_TESTS'] === '1' ? 300 : 35, seed: 1 },
  );
});

test('text that is not a config is refused with a clear message', () => {
  expect(sentence(() => parse('name: [1'))).toContain('t.yaml is not YAML:');
  expect(sentence(() => parse('- 1'))).toContain('must hold "key: value" lines, but holds [1]');
  expect(sentence(() => parse('name: x'))).toContain('"model" is missing');
  expect(sentence(() => parse('name: x\nname: y\nmodel: {path: m}'))).toContain('is not YAML');
});

test('nearest names', () => {
  expect(nearestKey('test_freq', ['trainer.testFreq', 'trainer.saveFreq'])).toBe('trainer.testFreq');
  expect(nearestDivisors(16, 1000)).toBe('The nearest that does is 16.');
  expect(nearestDivisors(7, 3)).toBe('The nearest that do are 1 and 7.');
});

test.each([
  ['num_generations', 'rollout.n', 'TRL'],
  ['beta', 'actor.klLossCoef', 'TRL'],
  ['learning_rate', 'actor.optim.lr', 'TRL'],
  ['epsilon_high', 'actor.clipRatioHigh', 'TRL'],
  ['max_completion_length', 'data.maxResponseLength', 'TRL'],
  ['loss_type', 'actor.policyLoss.lossMode', 'TRL'],
  ['trainer.num_iterations', undefined, ''],
  ['actor_rollout_ref.actor.clip_ratio_low', 'actor.clipRatioLow', 'verl'],
  ['actor_rollout_ref.rollout.max_num_seqs', 'rollout.maxNumSeqs', 'verl'],
  ['actor_rollout_ref.actor.tau_pos', 'actor.policyLoss.tauPos', 'verl'],
  ['actor.tauPos', 'actor.policyLoss.tauPos', 'verl'],
  ['trainer.default_local_dir', 'trainer.defaultLocalDir', 'verl'],
  ['reward.reward_kwargs.overlong_buffer_cfg.len', 'reward.overlongBuffer.len', 'verl'],
  ['adam_beta2', 'actor.optim.betas', 'TRL'],
  ['importance_sampling_level', 'actor.policyLoss.lossMode', 'TRL'],
  ['bf16', 'model.dtype', 'TRL'],
  ['fp16', 'model.dtype', 'TRL'],
  ['eval_strategy', 'trainer.testFreq', 'TRL'],
  ['save_strategy', 'trainer.saveFreq', 'TRL'],
  ['rollout.max_tokens', 'data.maxResponseLength', 'vLLM'],
  ['group_size', 'rollout.n', 'Tinker'],
])('the name %s of a peer gets the hint %s', (name, key, peer) => {
  const message = sentence(() => parse(MINIMAL, `${name}=1`));
  if (key === undefined) expect(message).not.toContain('calls it so');
  else
    expect(message).toContain(
      `unknown key "${name}". Did you mean "${key}"? ${peer} has the other name, see docs/reference/from-trl-verl.md`,
    );
});

test.each([
  ['use_vllm', 'TRL. There is no such setting, since the trainer samples itself'],
  ['vllm_mode', 'TRL. There is no such setting, since the trainer samples itself'],
  [
    'async_scheduling',
    'vLLM. There is no such setting, since each pass is read before the next one starts. Leave it out',
  ],
  ['rollout.asyncScheduling', 'vLLM. There is no such setting, since each pass is read before the next one starts'],
  ['trainer.n_gpus_per_node', 'verl. There is no such setting, since a run has one device'],
  ['trainer.nnodes', 'verl. There is no such setting, since a run has one device'],
  [
    'actor_rollout_ref.rollout.tensor_model_parallel_size',
    'verl. There is no such setting, since a run has one device',
  ],
])('the name %s of a peer has no key here, which the error says', (name, reason) => {
  expect(sentence(() => parse(MINIMAL, `${name}=1`))).toContain(`unknown key "${name}" of ${reason}`);
});

test('every key is documented', () => {
  for (const schema of [TRAIN_SCHEMA, SFT_SCHEMA])
    for (const doc of keyDocs(schema)) expect(doc.why.length, doc.path).toBeGreaterThan(7);
});

test('values that would have no effect are refused', () => {
  const refused = (...overrides: string[]) => sentence(() => parse(MINIMAL, ...overrides));
  expect(refused('actor.useKlLoss=true', 'actor.klLossCoef=0')).toContain(
    'actor.klLossCoef is 0, with which actor.useKlLoss: true has no effect.',
  );
  expect(parse(MINIMAL, 'actor.useKlLoss=true').actor.klLossCoef).toBe(0.001);
  expect(parse(MINIMAL, 'actor.useKlLoss=false', 'actor.klLossCoef=0').actor.useKlLoss).toBe(false);
  expect(refused('reward.ruleWeight=0.5')).toContain("reward.ruleWeight is 0.5, but no model's score is added");
  expect(parse(MINIMAL, 'reward.ruleWeight=0.5', 'reward.judge.weight=1').reward.ruleWeight).toBe(0.5);
  for (const estimator of ['rae', 'remax', 'reinforce_plus_plus', 'gdpo', 'turn_loo'])
    expect(refused('algorithm.replayBufferSize=8', `algorithm.advEstimator=${estimator}`)).toContain(
      'because these learn from groups of equal rewards',
    );
});

test('sizes of a supervised run', () => {
  const sft = (...overrides: string[]) => parseSftConfig('name: s', { source: 's.yaml', overrides });
  expect(sft().data.trainBatchSize).toBe(48);
  expect(sentence(() => sft('model.hiddenSize=100'))).toContain('The nearest valid value is 104');
  expect(sentence(() => sft('model.numKeyValueHeads=3'))).toContain('The nearest that do are 2 and 4');
  expect(sentence(() => sft('data.maxLength=513'))).toBe(
    't.yaml: data.maxLength is 513 tokens; allowed: up to model.maxPositionEmbeddings 512 and data.maxTokenLenPerGpu 8192.',
  );
});

test('rollout correction: unknown keys are refused, and thresholds are parsed before anything runs', () => {
  const of = (...overrides: string[]) => correctionSettings(parse(MINIMAL, ...overrides));
  const key = (text: string) => `algorithm.rolloutCorrection.${text}`;
  expect(of()).toMatchObject({ bypassMode: true, rolloutIs: 'none', rolloutRs: '', offPolicyMaskThreshold: Infinity });
  expect(of(key('rolloutIs=token'))).toMatchObject({ bypassMode: false, rolloutIsThreshold: 2 });
  expect(of(key('rolloutIs=token'), key('rolloutIsThreshold=0.5_5'))).toMatchObject({ rolloutIsThreshold: '0.5_5' });
  expect(of('algorithm.name=reinforce')).toMatchObject({ bypassMode: true, rolloutIs: 'token' });
  expect(sentence(() => of(key('rolloutRs=token_k4'), key('rolloutRsThreshold=2')))).toBe(
    't.yaml: algorithm.rolloutCorrection: Unknown rolloutRs option "token_k4"; known: token_k1, token_k2, token_k3, ' +
      'seq_sum_k1, seq_sum_k2, seq_sum_k3, seq_mean_k1, seq_mean_k2, seq_mean_k3, seq_max_k2, seq_max_k3.',
  );
  expect(sentence(() => of(key('rolloutRs=token_k1')))).toContain('holds 0 thresholds for 1 options (token_k1)');
});

test('settings that would do nothing, or contradict each other, are refused', () => {
  expect(sentence(() => parse(MINIMAL, 'trainer.refUpdateFreq=5'))).toContain('no KL term uses a reference');
  expect(sentence(() => parse(MINIMAL, 'algorithm.gdpoRewardWeights=[1, 2]'))).toContain(
    '2 weights for 0 gdpoRewardKeys',
  );
  expect(sentence(() => parse(MINIMAL, 'actor.entropyCoeffMax=-0.5'))).toContain('allowed: >= 0');
  expect(sentence(() => parse(MINIMAL, 'actor.entropyCoeffMin=2'))).toContain('above entropyCoeffMax 1');
  expect(policyLossSpec(parse(MINIMAL, 'actor.klClamp=10')).klClamp).toBe(10);
});

test.each([
  [['algorithm.useKlInReward=true', 'actor.useKlLoss=true'], 'are both on, which counts the KL twice'],
  ...['rloo', 'grpo_passk', 'turn_loo'].map((name): [string[], string] => [
    [`algorithm.advEstimator=${name}`, 'rollout.n=1'],
    `rollout.n is 1, but advEstimator "${name}" compares samples`,
  ]),
  ...['algorithm.advEstimator=remax', 'algorithm.filterGroups.enable=true'].map((other): [string[], string] => [
    ['rollout.overSampleRate=0.5', other],
    'rollout.overSampleRate is 0.5, which cannot be combined',
  ]),
  [['rollout.partialRollout=true'], 'carries over what rollout.overSampleRate leaves, which is 0'],
  [['actor.optim={ optimizer: SGD, nesterov: true }'], 'actor.optim.nesterov is true, but SGD has no momentum'],
  [
    ['trainer.pipeline=fully-async', 'asyncTraining={ stalenessThreshold: 1.5, maxOffPolicyThreshold: 1 }'],
    'maxOffPolicyThreshold is 1, but stalenessThreshold 1.5 lets groups get older',
  ],
  [
    ['reward.rubric.criteria=[{ name: a, description: b }]', 'reward.judge.maxPromptLength=9000'],
    'reward.judge.maxPromptLength is 9000 tokens, but the reference judges in passes of',
  ],
])('%j is refused, because the settings contradict each other', (overrides, words) =>
  expect(sentence(() => parse(MINIMAL, ...overrides))).toContain(words),
);

test('LoRA: one module or several, engine tfjs refused, the resolved config reads back', () => {
  expect(parse(MINIMAL).model).toMatchObject({ loraRank: 0, targetModules: ['all-linear'] });
  const config = parse(MINIMAL, 'model.loraRank=8', 'model.targetModules=q_proj');
  expect(config.model).toMatchObject({ loraRank: 8, targetModules: ['q_proj'] });
  expect(parse(stringify(config)).model).toEqual(config.model);
  expect(parse(MINIMAL, 'model.targetModules=[v_proj, q_proj]').model.targetModules).toEqual(['v_proj', 'q_proj']);
  expect(sentence(() => parse(MINIMAL, 'model.loraRank=8', 'engine=tfjs'))).toBe(
    't.yaml: engine is "tfjs", which trains every weight and no adapters. Use engine: wgsl, or model.loraRank: 0.',
  );
  expect(
    sentence(() => parse(MINIMAL, 'model.loraRank=8', 'trainer.refUpdateFreq=5', 'actor.useKlLoss=true')),
  ).toContain('with adapters the reference is the frozen base itself');
  expect(sentence(() => parse(MINIMAL, 'model.targetModules=query'))).toBe(
    't.yaml: "model.targetModules" is "query"; allowed: some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, all-linear.',
  );
});

test('length of a run and its problems: rules that span keys', () => {
  expect(sentence(() => parse(MINIMAL, 'trainer.stopWhen.atLeast=1'))).toContain(
    '"trainer.stopWhen.metric" is missing',
  );
  expect(sentence(() => parse(MINIMAL, 'trainer.stopWhen.metric=actor/entropy'))).toBe(
    't.yaml: trainer.stopWhen names actor/entropy without a value. Set atLeast or atMost.',
  );
  for (const reads of [
    'trainer.stopWhen={metric: val-core/x/acc/mean@1, atLeast: 1}',
    'trainer.metricForBestModel=val-core/x/acc/mean@1',
  ])
    expect(sentence(() => parse(MINIMAL, reads, 'trainer.testFreq=0'))).toContain(
      'is val-core/x/acc/mean@1, but trainer.testFreq is 0, so nothing is evaluated during the run. Set trainer.testFreq,',
    );
  expect(parse(MINIMAL, 'trainer.metricForBestModel=actor/pg_loss', 'trainer.testFreq=0').trainer.testFreq).toBe(0);
  expect(sentence(() => parse(MINIMAL, 'data.difficulty.hard=0.9'))).toContain('hard is 0.9, above easy 0.75');
  expect(sentence(() => parse(MINIMAL, 'data.trainMaxSamples=0'))).toContain('allowed: integer >= 1, or -1');
  expect(sentence(() => parse(MINIMAL, 'task.valPath={}'))).toContain('allowed: text, list of texts, or texts by name');
  expect(sentence(() => parse(MINIMAL, 'actor.optim.lrSchedulerType=linear', 'actor.optim.lrWarmupStepsRatio=1'))).toBe(
    't.yaml: actor.optim.lrWarmupStepsRatio is 1, but a linear schedule needs it below 1. Lower it, or set actor.optim.lrSchedulerType: constant.',
  );
  const { trainer } = parse(MINIMAL, 'trainer.stopWhen={metric: actor/entropy, atMost: 0.1}');
  expect(trainer.stopWhen).toEqual({ metric: 'actor/entropy', atMost: 0.1 });
});

test('actor.ppoMiniBatchSize is 8, or the divisor of data.trainBatchSize nearest to it; a written one must divide', () => {
  const updates = (size: number, ...more: string[]) =>
    parse(MINIMAL, `data.trainBatchSize=${size}`, ...more).actor.ppoMiniBatchSize;
  const sizes = [1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 20, 64, 100];
  expect(sizes.map((size) => updates(size))).toEqual([1, 2, 4, 6, 7, 8, 9, 10, 11, 6, 7, 5, 8, 17, 10, 8, 10]);
  for (const size of [3, 5, 13, 23, 97, 1001, 8191]) expect([size, size % updates(size)]).toEqual([size, 0]);
  expect(parse(MINIMAL, 'algorithm.name=dapo', 'data.trainBatchSize=12').actor.ppoMiniBatchSize).toBe(6);
  expect(updates(12, 'rollout.n=3', 'actor.ppoMicroBatchSizePerGpu=9')).toBe(6);
  expect(updates(12, 'actor.ppoMiniBatchSize=3')).toBe(3);
  expect(() => updates(4, 'actor.ppoMiniBatchSize=8')).toThrow(
    'does not divide data.trainBatchSize 4. The nearest that does is 4.',
  );
});

test.each([
  ['actor.optim.learning_rate=1e-4', 'Did you mean "actor.optim.lr"? TRL has the other name'],
  [
    'actor.optim.weight_decay_rate=1',
    'unknown key "actor.optim.weight_decay_rate". Did you mean "actor.optim.weightDecay"?',
  ],
  ['rollout.num_generations=4', 'Did you mean "rollout.n"? TRL has the other name'],
  ['data.max_completion_length=4', 'Did you mean "data.maxResponseLength"? TRL has the other name'],
  ['frobnicate=1', 'unknown key "frobnicate". "webgrpo config" lists every key.'],
  ['actor.zzzzzz=1', 'unknown key "actor.zzzzzz". "webgrpo config" lists every key.'],
  ['trainer.logger=wandb', 'For Weights & Biases set it to tensorboard and run "wandb sync --sync-tensorboard"'],
  ['trainer.logger=[console, mlflow]', 'Other trackers can import'],
  ['trainer.logger=nope', 'allowed: some of console, jsonl, csv, tensorboard.'],
])('%s gets the hint that fits', (override, hint) => expect(sentence(() => parse(MINIMAL, override))).toContain(hint));

test.each([
  [
    'TRL',
    'learning_rate: 1e-6\nnum_generations: 8\nbeta: 0.04\nuse_vllm: true\noutput_dir: x',
    /^t\.yaml: unknown key "learning_rate"\. .*"actor\.optim\.lr"\? .* The same holds for num_generations \(rollout\.n\), beta \(actor\.klLossCoef\), use_vllm \(no such setting\)/,
  ],
  [
    'verl',
    'actor_rollout_ref:\n  actor:\n    optim:\n      lr: 1e-6\n  rollout:\n    n: 5',
    /^t\.yaml: unknown key "actor_rollout_ref\.actor\.optim\.lr"\. .*"actor\.optim\.lr"\? .* holds for actor_rollout_ref\.rollout\.n \(rollout\.n\)\.$/,
  ],
  ['another program', 'image: node:20\nscript: [npm test]', /^t\.yaml: unknown key "image"\./],
])('a file of %s is told about its own keys, not about keys that it lacks', (_, text, expected) =>
  expect(sentence(() => parseTrainConfig(text, { source: 't.yaml' }))).toMatch(expected),
);

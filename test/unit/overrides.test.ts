/** Tests how the command line overrides a config file: a named recipe, which of the two an error blames, and -1 for off as in verl. */

import { expect, test } from 'vitest';
import { ConfigError } from '../../src/errors.ts';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { resolveSftConfig } from '../../src/extensions/sft/resolve.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfigInput } from '../../src/grpo/config/input.ts';
import { parseSftConfig } from '../../src/extensions/sft/text.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { refusalOf } from '../refusal.ts';

const FILE = `name: t
model: { path: m }
actor: { clipRatioLow: 0.2, clipRatioHigh: 0.28, lossAggMode: token-mean, useKlLoss: true, klLossCoef: 0.01 }
algorithm: { name: grpo, filterGroups: { metric: score }, maskTruncated: true }
`;
function read(yaml: string, ...overrides: string[]) {
  const notes: string[] = [];
  const config = parseTrainConfig(yaml, { source: 't.yaml', overrides, note: (sentence) => notes.push(sentence) });
  return { ...config, notes };
}
const refusal = (yaml: string, ...overrides: string[]) => refusalOf(() => read(yaml, ...overrides));

test.each(Object.keys(RECIPES))('algorithm.name=%s over a file is the recipe as the library resolves it', (name) => {
  const { actor, algorithm } = read(FILE, `algorithm.name=${name}`, 'rollout.n=4');
  const recipe = resolveTrainConfig({
    name: 't',
    model: { path: 'm' },
    rollout: { n: 4 },
    // For keys that the recipe does not set, the file's value stays.
    actor: { useKlLoss: true, klLossCoef: 0.01 },
    algorithm: { name, filterGroups: { metric: 'score' }, maskTruncated: true },
  });
  expect(actor).toEqual(recipe.actor);
  expect(algorithm).toEqual(recipe.algorithm);
});

test('settings next to the name override its recipe, in any order', () => {
  for (const overrides of [
    ['algorithm.name=gspo', 'actor.clipRatioHigh=0.001'],
    ['actor.clipRatioHigh=0.001', 'algorithm.name=gspo'],
  ])
    expect(read(FILE, ...overrides).actor).toMatchObject({
      clipRatioLow: 3e-4,
      clipRatioHigh: 1e-3,
      lossAggMode: 'seq-mean-token-mean',
    });
});

test.each(['constructor', 'toString', '__proto__'])(
  'an override of %s, which every object inherits, is an unknown key',
  (key) => {
    expect(refusal(FILE, `${key}=1`)).toMatch(/^override .+: unknown key /);
  },
);

test("a shorthand on the command line overrides the file's own keys", () => {
  const { actor } = read(FILE, 'actor.clipRatio=0.1');
  expect([actor.clipRatioLow, actor.clipRatioHigh]).toEqual([0.1, 0.1]);
  expect(read(FILE, 'actor.clipRatio=0.1', 'actor.clipRatioHigh=0.3').actor.clipRatioHigh).toBe(0.3);
  const batch = FILE.replace('name: grpo,', 'name: grpo, scaleRewards: batch,');
  expect(read(batch, 'algorithm.normAdvByStdInGrpo=false').algorithm.scaleRewards).toBe('none');
});

test('the share of warm-up updates is used if it is the only one set, in a supervised run too', () => {
  const sft = (optim: object) => resolveSftConfig({ name: 't', optim }).optim;
  expect(sft({ lrWarmupStepsRatio: 0.1 })).toMatchObject({ lrWarmupSteps: 0, lrWarmupStepsRatio: 0.1 });
  expect(sft({ lrWarmupStepsRatio: 0.1, lrWarmupSteps: 5 }).lrWarmupSteps).toBe(5);
  expect(sft({}).lrWarmupSteps).toBe(20);
  expect(sft({ lrWarmupSteps: -1 }).lrWarmupSteps).toBe(0);
  const short = (totalTrainingSteps: number, optim = {}) =>
    resolveSftConfig({ name: 't', optim, trainer: { totalTrainingSteps } }).optim.lrWarmupSteps;
  expect([21, 20, 15, 1].map((steps) => short(steps))).toEqual([20, 2, 1, 0]);
  expect(() => short(15, { lrWarmupSteps: 20 })).toThrow("below the run's 15 steps. Lower it");
});

test('overridden settings are reported in a line, and so is a file that differs from the recipe it names', () => {
  expect(read(FILE, 'algorithm.name=gspo', 'actor.lossAggMode=token-mean').notes).toEqual([
    'algorithm.name=gspo sets the recipe, which overrides in t.yaml: actor.clipRatioLow 0.2, actor.clipRatioHigh 0.28.',
  ]);
  const contradiction =
    't.yaml names the algorithm grpo but sets actor.lossAggMode "token-mean" (grpo: "seq-mean-token-mean"); ' +
    'algorithm.name=grpo runs it as published.';
  expect(read(FILE).notes).toEqual([contradiction]);
  const ofRun: string[] = [];
  parseTrainConfig(FILE, { source: 't.yaml', run: {}, note: (line) => ofRun.push(line) });
  expect(ofRun).toEqual([]);
  expect(read(FILE, 'actor.lossAggMode=token-sum').notes).toEqual([]);
  const gspo = 'name: t\nmodel: m\nalgorithm: { name: gspo, advEstimator: rloo }\nactor: { clipRatio: 0.2 }';
  expect(read(gspo).notes.join()).toContain(
    'algorithm.advEstimator "rloo" (gspo: "grpo"), actor.clipRatioLow 0.2 (gspo: 0.0003), actor.clipRatioHigh 0.2',
  );
  expect(read('name: t\nmodel: m\nalgorithm: { name: gspo }').notes).toEqual([]);
});

test("a removed key is ignored in a file, which may be a run's, with a note; an override or an object with it is refused", () => {
  const { notes, ...config } = read('name: t\nmodel: m\nrollout: { n: 4, asyncScheduling: auto }');
  expect(config).toEqual(resolveTrainConfig({ name: 't', model: { path: 'm' }, rollout: { n: 4 } }));
  expect(notes).toEqual([
    't.yaml sets rollout.asyncScheduling, which was removed and is ignored. Delete it; a resumed run deletes it from its config.yaml.',
  ]);
  expect(refusal(FILE, 'rollout.asyncScheduling=off')).toMatch(
    /^override rollout\.asyncScheduling=off: unknown key .* There is no such setting, .* Leave it out\.$/,
  );
  const rollout = { asyncScheduling: 'off' } as object;
  expect(() => resolveTrainConfig({ name: 't', model: { path: 'm' }, rollout })).toThrow(/Leave it out\.$/);
});

test('a loss that uses the clip of another is reported, unless a clip is given too', () => {
  const said = read(FILE, 'actor.policyLoss.lossMode=cispo').notes.find((note) => note.startsWith('actor.'));
  expect(said).toMatch(
    /lossMode is cispo, but the clip \(low \/ high \/ c\) is 0\.2 \/ 0\.28 \/ 3, not its own 1 \/ 4 \/ 3\. Set algorithm\.name=cispo/,
  );
  const clip = (...overrides: string[]) => read(FILE, ...overrides).notes.some((note) => note.includes('the clip'));
  expect(clip('actor.policyLoss.lossMode=cispo', 'actor.clipRatioHigh=4')).toBe(false);
  expect(clip('actor.policyLoss.lossMode=dro', 'actor.policyLoss.droBeta=0.1')).toBe(false);
  expect(clip('algorithm.name=gspo', 'actor.policyLoss.lossMode=vanilla')).toBe(true);
  expect(clip('algorithm.name=cispo')).toBe(false);
});

test('an error blames the override that causes it, otherwise the file', () => {
  expect(refusal(FILE, 'rollout.n=0')).toBe('override rollout.n=0: "rollout.n" is 0; allowed: integer >= 1.');
  expect(refusal(FILE, 'seed=3', 'rollout={n: 0}')).toMatch(/^override rollout=\{n: 0\}: "rollout\.n" is 0;/);
  expect(refusal(FILE, 'seed=3', 'rollot.n=4')).toMatch(/^override rollot\.n=4: unknown key "rollot"/);
  expect(refusal(FILE, 'actor.ppoMiniBatchSize=5')).toMatch(/^override actor\.ppoMiniBatchSize=5: actor\.ppoMini/);
  expect(refusal(FILE, 'actor.clipRatioC=1')).toMatch(/^override actor\.clipRatioC=1: actor\.clipRatioC is 1;/);
  expect(refusal('name: t\nmodel: m\nrollout: { n: 0 }', 'seed=3', 'rollout.topK=1')).toMatch(/^t\.yaml: "rollout\.n"/);
  expect(refusal('name: t\nrollout: { n: 4 }', 'model.loraRank=3')).toMatch(/^t\.yaml: "model\.path" is missing/);
  expect(() => parseSftConfig('name: s', { source: 's.yaml', overrides: ['model.hiddenSize=100'] })).toThrow(
    /^override model\.hiddenSize=100: model\.hiddenSize is 100/,
  );
});

test("an error has the path of its key: the blamed override's, otherwise its subject's", () => {
  const pathOf = (...overrides: string[]) => {
    try {
      read(FILE, ...overrides);
    } catch (error) {
      if (error instanceof ConfigError) return [error.path, error.keys.length, error.message.endsWith(error.sentence)];
    }
    throw new Error('No ConfigError was thrown.');
  };
  expect(pathOf('rollout.n=0')).toEqual(['rollout.n', 1, true]);
  expect(pathOf('rollout={n: 0}')).toEqual(['rollout.n', 1, true]);
  expect(pathOf('actor.ppoMiniBatchSize=5')).toEqual(['actor.ppoMiniBatchSize', 2, true]);
  expect(pathOf('actor.ppoMaxTokenLenPerGpu=100')).toEqual(['actor.ppoMaxTokenLenPerGpu', 3, true]);
  expect(pathOf('actor.nothing=1')).toEqual(['actor.nothing', 1, true]);
  expect(pathOf('learning_rate=1')).toEqual(['learning_rate', 1, true]);
});

test("verl's -1 means off, and a resolved config can be read again", () => {
  const keys = [
    'trainer.testFreq',
    'trainer.saveFreq',
    'rollout.topK',
    'rollout.valKwargs.topK',
    'actor.optim.lrWarmupSteps',
  ];
  const { trainer, rollout, actor } = read(FILE, ...keys.map((key) => `${key}=-1`));
  expect([trainer.testFreq, trainer.saveFreq, rollout.topK, rollout.valKwargs.topK, actor.optim.lrWarmupSteps]).toEqual(
    [0, 0, 0, 0, 0],
  );
  expect(refusal(FILE, 'trainer.testFreq=-2')).toContain('allowed: integer >= 0, or -1 = 0');
});

test("verl's trainer.experimentName is an unknown key, with a hint that names ours", () => {
  expect(refusal(FILE, 'trainer.experimentName=mine')).toContain('Did you mean "name"? verl has the other name');
});

test('the tree that the library takes is typed', () => {
  const good: TrainConfigInput = { name: 't', model: { path: 'm' }, rollout: { n: 4, multiTurn: { enable: false } } };
  expect(resolveTrainConfig(good).rollout.n).toBe(4);
  // @ts-expect-error: no such key
  expect(() => resolveTrainConfig({ name: 't', model: { path: 'm' }, rollout: { samples: 4 } })).toThrow(
    'rollout.samples',
  );
  // @ts-expect-error: not a number
  expect(() => resolveTrainConfig({ name: 't', model: { path: 'm' }, rollout: { n: '4' } })).toThrow(
    '"rollout.n" is "4"',
  );
  // @ts-expect-error: not one of the choices
  expect(() => resolveTrainConfig({ name: 't', model: { path: 'm' }, engine: 'cuda' })).toThrow('"engine" is "cuda"');
  // @ts-expect-error: name is required
  expect(() => resolveTrainConfig({ model: { path: 'm' } })).toThrow('"name" is missing');
  // @ts-expect-error: no such key
  expect(() => resolveSftConfig({ name: 's', rollout: {} })).toThrow('unknown key "rollout"');
});

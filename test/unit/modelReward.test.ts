import { expect, test, vi } from 'vitest';
import {
  type Classifier,
  addScores,
  discriminativeScorer,
  judgeScorer,
} from '../../src/extensions/rewards/modelReward.ts';
import { fillJudgePrompt } from '../../src/tasks/rewards/judgePrompt.ts';
import { scored } from '../samples.ts';

const sample = scored('#### 4');

// transformers.js is replaced by a simulated pipeline here. transformersModels.test.ts runs real pipelines.
const classify: Classifier = (text) =>
  Promise.resolve([
    { label: 'good', score: text.includes('#### 4') ? 0.75 : 0.25 },
    { label: 'bad', score: 0.25 },
  ]);

test('a classifier is loaded once, at the first sample, and scores by its label', async () => {
  const load = vi.fn(() => Promise.resolve(classify));
  const score = discriminativeScorer({ model: 'm', label: 'good', load });
  expect(load).not.toHaveBeenCalled();
  expect(await Promise.all([score(sample), score({ ...sample, response: '#### 5' })])).toEqual([0.75, 0.25]);
  expect(load.mock.calls).toEqual([['m']]);
  expect(await discriminativeScorer({ model: 'm', load })(sample)).toBe(0.75);
  await expect(discriminativeScorer({ model: 'm', label: 'great', load })(sample)).rejects.toThrow(
    'The reward model m has no label "great". It has good, bad.',
  );
});

test('transformers.js: opened by its name; one error message if it or the model is missing', async () => {
  const score = discriminativeScorer({ model: 'm', label: 'good' });
  vi.doMock('@xenova/transformers', () => ({
    pipeline: () =>
      Promise.resolve(Object.assign(classify, { model: { config: {} }, tokenizer: { encode: () => [] } })),
  }));
  expect(await score(sample)).toBe(0.75);
  vi.doMock('@xenova/transformers', () => ({ pipeline: () => Promise.reject(new Error('no such file\nat x')) }));
  await expect(discriminativeScorer({ model: 'm' })(sample)).rejects.toThrow(
    'reward.model.path m cannot be opened by transformers.js: no such file. Check the name, the folder or the network.',
  );
  vi.doMock('@xenova/transformers', () => {
    throw new Error('Cannot find package');
  });
  await expect(discriminativeScorer({ model: 'm' })(sample)).rejects.toThrow(
    /^reward\.model\.path m needs transformers.js, which is not installed \(.+\)\. Install it with "npm install @xenova.+path out\.$/,
  );
  vi.doUnmock('@xenova/transformers');
});

test('a judge that fails gives no score', async () => {
  expect(await judgeScorer({ complete: () => Promise.resolve(undefined) })(sample)).toBeNaN();
});

test('a template is filled once, so placeholders in a response stay text', () => {
  const told = fillJudgePrompt('{question} {response} {answer} {other}', { ...sample, response: '{answer}$&' });
  expect(told).toBe('What is 2 + 2? {answer}$& 4 {other}');
});

test("a judge's reply without a number counts as 0", async () => {
  const said = (text: string) => judgeScorer({ complete: () => Promise.resolve(text) })(sample);
  expect(await Promise.all(['8', 'I would say 7.5 of 10', 'none', '11', '-1', '', '.5 points'].map(said))).toEqual([
    0.8, 0.75, 0, 0, 0, 0, 0.05,
  ]);
  const complete = vi.fn(() => Promise.resolve('1'));
  await judgeScorer({ complete })(sample);
  expect(complete).toHaveBeenCalledWith(expect.stringContaining('What is 2 + 2?\n\nAnswer:\n#### 4'));
});

test('a sample that a scorer cannot score has no reward, and its log says why', async () => {
  const rule = () => ({ score: 1, acc: 1 });
  const judged = (unscored?: string) =>
    addScores(rule, { judge: { weight: 1, score: () => NaN, ...(unscored !== undefined && { unscored }) } })(sample);
  expect(await judged('too long')).toMatchObject({ score: NaN, acc: 1, extra: { rule: 1, judge: 'too long' } });
  expect(await judged()).toMatchObject({ score: NaN, extra: { judge: NaN } });
});

test('scores of rule and models are added by weights; the outcome is the rule’s', async () => {
  const rule = () => ({ score: 1, acc: 1, extra: { answered: 1 } });
  const reward = addScores(rule, {
    taste: { weight: 0.5, score: discriminativeScorer({ model: 'm', load: () => Promise.resolve(classify) }) },
    judge: { weight: 2, score: () => 0.25 },
  });
  expect(await reward(sample)).toEqual({
    score: 1 + 0.375 + 0.5,
    acc: 1,
    extra: { answered: 1, rule: 1, taste: 0.75, judge: 0.25 },
    weights: { rule: 1, taste: 0.5, judge: 2 },
  });
  const named = () => ({ score: 3, acc: 1, extra: { form: 1, right: 1 }, weights: { form: 1, right: 2 } });
  const judged = addScores(named, { judge: { weight: 0.5, score: () => 0.8 } }, 0.25);
  expect(await judged(sample), 'what gdpo weights sums to the score').toEqual({
    score: 0.25 * 3 + 0.5 * 0.8,
    acc: 1,
    extra: { form: 1, right: 1, judge: 0.8 },
    weights: { form: 0.25, right: 0.5, judge: 0.5 },
  });
  const turns = () => ({ score: 3, acc: 1, turns: [1, 2] });
  expect(await addScores(turns, { judge: { weight: 1, score: () => 0.5 } }, 0.25)(sample)).toMatchObject({
    score: 0.25 * 3 + 0.5,
    turns: [0.25, 0.5],
  });
  const own = () => ({ score: 1, acc: 1, extra: { rule: 5 } });
  await expect(addScores(own, { judge: { weight: 1, score: () => 1 } })(sample)).rejects.toThrow('the name "rule"');
  await expect(addScores(named, { form: { weight: 1, score: () => 1 } })(sample)).rejects.toThrow(
    'both give a value of the name "form"',
  );
  await expect(addScores(rule, { broken: { weight: 1, score: () => Infinity } })(sample)).rejects.toThrow(
    'The scorer "broken" gave Infinity; allowed: a finite number, or NaN for none.',
  );
});

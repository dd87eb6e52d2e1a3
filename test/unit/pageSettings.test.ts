/** Tests, without a page, the logic of the settings form, and estimates that are scaled by the adapter's speed. */

import { readFileSync } from 'node:fs';
import { effect } from '@preact/signals';
import { expect, test, vi } from 'vitest';
import { costOf, keepSpeed, speed } from '../../demo/state/estimate.ts';
import { adapter } from '../../demo/state/notices.ts';
import { settingsOf } from '../../demo/state/address/settingsOf.ts';
import { ALGORITHM_GROUPS } from '../../demo/state/settings/fields.ts';
import type { Session } from '../../demo/engine/session.ts';
import { fitsBetweenSteps, StartEvaluation } from '../../demo/training/startEvaluation.ts';
import { Settings } from '../../demo/state/settings/settings.ts';
import { Evaluation } from '../../src/grpo/generate/validate.ts';
import { stub } from '../stub.ts';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfigInput } from '../../src/grpo/config/input.ts';

function opened(address = '', name = 'reverse-text'): Settings {
  const form = new Settings();
  form.open(readFileSync(`configs/${name}.yaml`, 'utf8'), name, new URLSearchParams(address));
  return form;
}

const problemOf = (form: Settings) => ('problem' in form.checked.value ? form.checked.value : undefined);

test.each([
  ['lr=-1', 'lr', 'Learning rate is -1; allowed:'],
  ['steps=ten', 'steps', 'Steps is "ten"; allowed:'],
  ['steps=0', 'steps', 'Steps is 0, but the page allows 1 to 10,000'],
  ['steps=10001', 'steps', 'Steps is 10001, but the page allows 1 to 10,000'],
  [
    'n=300',
    'n',
    'Tries per problem is 300: 16 problems \u00d7 300 tries are 4,800 per step, but the page shows up to 4,096. Use up to 256',
  ],
  ['algorithm=foo', 'algorithm', 'Algorithm is "foo"'],
  ['loss=foo', 'loss', 'Loss is "foo"'],
  ['seed=hello', 'seed', 'Seed is "hello"'],
  ['set=model.path=./nope', undefined, '"model.path" is "./nope", but a page reads no folders of this machine.'],
  ['set=model.loraAdapterPath=./a', undefined, '"model.loraAdapterPath" is "./a", but a page loads no adapter.'],
  ['set=rollout.temprature=1', undefined, 'Did you mean "rollout.temperature"?'],
])('%s is refused at its field, by its label', (address, field, sentence) => {
  const problem = problemOf(opened(address))!;
  expect(problem.field).toBe(field);
  expect(problem.problem).toContain(sentence);
  expect(problem.problem).not.toMatch(/^override|^reverse-text/);
});

test.each([
  ['set=seed=7', 'seed', '7'],
  ['steps=3&set=trainer.totalTrainingSteps=5&set=trainer.totalTrainingSteps=6', 'steps', '6'],
] as const)('%s fills the field %s, which decides what runs and what a link says', (address, field, value) => {
  const form = opened(address);
  const settings = () => settingsOf(form.config(), 'reverse-text', form.recipe.value!.text).get(field);
  expect([form.values.value[field], settings()]).toEqual([value, value]);
  form.change(field, '9');
  expect(settings()).toBe('9');
});

test("an empty field uses the recipe's default, and corrected settings run", () => {
  const form = opened('steps=ten');
  form.change('steps', ' ');
  expect(form.config().trainer.totalTrainingSteps).toBe(100);
  form.change('n', '256');
  expect(form.config().rollout.n).toBe(256);
});

test.each([
  ['cispo', 'grpo', 'vanilla'],
  ['cispo', 'sapo', 'sapo'],
  ['vanilla', 'grpo', 'vanilla'],
])('a run with the loss %s: the default loss of %s is %s', (lossMode, algorithm, own) => {
  const form = new Settings();
  const text = `name: x\nmodel: { path: checkpoints/gsm8k-tool }\nactor: { policyLoss: { lossMode: ${lossMode} } }\n`;
  form.open(text, 'config.yaml');
  expect(form.values.value.loss).toBe(lossMode);
  form.change('algorithm', algorithm);
  form.change('loss', '');
  expect(form.config().actor.policyLoss.lossMode).toBe(own);
});

test('every algorithm is in one group', () => {
  const named = Object.values(ALGORITHM_GROUPS).flatMap((group) => Object.keys(group));
  expect(named.sort()).toEqual(Object.keys(RECIPES).sort());
});

test('the speed of an adapter scales the estimates; effects that store it run once', () => {
  adapter.value = { name: 'test', isSoftware: false };
  const form = opened();
  const own = form.own.value!;
  expect(costOf(own, own)).toBe(
    '16 texts \u00d7 16 tries, 100 steps: about 55 s on two CPU cores, 80 MB of GPU memory.',
  );
  keepSpeed(0.5);
  expect(costOf(own, own)).toContain('about 25 s here');
  let runs = 0;
  const stop = effect(() => {
    runs++;
    keepSpeed(4);
  });
  stop();
  expect(runs).toBe(1);
  expect(speed.value).toBe(4);
  form.change('steps', '1');
  expect(costOf(form.config(), own)).toContain(', 1 step: about 1');
  const longer = { ...own, data: { ...own.data, maxResponseLength: 9 } };
  expect(costOf(longer, own)).not.toContain('GPU memory');
});

test.each<[string, Partial<TrainConfigInput>, boolean]>([
  ['by default', {}, true],
  ['trainer.pipeline: one-step-off', { trainer: { pipeline: 'one-step-off' } }, false],
  ['trainer.pipeline: fully-async', { trainer: { pipeline: 'fully-async' } }, false],
  ['rollout.overSampleRate', { rollout: { overSampleRate: 0.5, partialRollout: true } }, false],
  ['trainer.placement: split', { trainer: { placement: 'split' } }, false],
  ['adapters', { model: { path: 'x', loraRank: 8 } }, false],
  ['trainer.stopWhen', { trainer: { stopWhen: { metric: 'x', atLeast: 1 } } }, false],
])('the start weights are evaluated between steps only if no sample is in flight there: %s', (_, part, fits) => {
  expect(fitsBetweenSteps(resolveTrainConfig({ name: 'x', model: { path: 'x' }, ...part }))).toBe(fits);
});

test('while the start weights are evaluated, the session says so, and other callers get the trained ones', async () => {
  const [start, trained] = [new Map(), new Map()];
  const seen: unknown[] = [];
  const model = {
    exportWeights: () => Promise.resolve(trained),
    importWeights: (weights: unknown) => Promise.resolve(void seen.push(weights === start ? 'start' : 'trained')),
  };
  const session = stub<Session>({
    model: { weights: start },
    engine: { model, rollout: { resetCache: (step) => Promise.resolve(void seen.push(step)) } },
    evaluatesStart: false,
  });
  const next = async () =>
    void seen.push(session.evaluatesStart, (await session.engine.model.exportWeights()) === trained);
  vi.spyOn(Evaluation, 'begin').mockResolvedValue(stub<Evaluation>({ next }));
  const config = resolveTrainConfig({ name: 'x', model: { path: 'x' } });
  const evaluation = await StartEvaluation.begin(session, config, {
    onProgress: () => {},
    signal: new AbortController().signal,
  });
  await evaluation!.next(5);
  expect([...seen, session.evaluatesStart]).toEqual(['start', 0, true, true, 'trained', 5, false]);
});

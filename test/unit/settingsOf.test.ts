/** Tests settings in an address: the address is short, and reading it gives the same run. */

import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { settingsOf } from '../../demo/state/address/settingsOf.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';

const recipe = (name: string) => readFileSync(`configs/${name}.yaml`, 'utf8');
const configOf = (name: string, overrides: string[] = []) =>
  parseTrainConfig(recipe(name), { source: name, overrides, note: () => {} });

const FIELDS: Record<string, string> = {
  algorithm: 'algorithm.name',
  loss: 'actor.policyLoss.lossMode',
  lr: 'actor.optim.lr',
  steps: 'trainer.totalTrainingSteps',
  n: 'rollout.n',
  seed: 'seed',
};

/** Reads settings from an address, as the page does. */
function readBack(settings: URLSearchParams) {
  const overrides = [...settings].flatMap(([name, value]) => {
    if (name === 'config') return [];
    if (name === 'set') return [value];
    if (name === 'task')
      return [/^[\w-]+$/.test(value) ? `task.name=${value}` : `task.module=${JSON.stringify(value)}`];
    return [`${FIELDS[name]}=${value}`];
  });
  return configOf(settings.get('config') ?? 'gsm8k-tool', overrides);
}

const NAMES = readdirSync('configs').flatMap((file) =>
  !/(?<!-sft)\.yaml$/.test(file) ? [] : [file.replace('.yaml', '')],
);

test.each(NAMES)('%s unchanged is its name', (name) => {
  expect(settingsOf(configOf(name), name, recipe(name)).toString()).toBe(name === 'gsm8k-tool' ? '' : `config=${name}`);
});

test.each([
  [['rollout.n=4', 'seed=7'], 'n=4&seed=7'],
  [['actor.optim.lr=1e-4'], 'lr=0.0001'],
  [['algorithm.name=gspo'], 'algorithm=gspo'],
  [['actor.policyLoss.lossMode=cispo', 'rollout.temperature=0.7'], 'loss=cispo&set=rollout.temperature%3D0.7'],
  [['task.name=countdown', 'name=mine'], 'task=countdown'],
  [['task.module="./mine.js"'], 'task=.%2Fmine.js'],
  [['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2'], 'set=data.trainBatchSize%3D2&set=actor.ppoMiniBatchSize%3D2'],
  [['rollout.agent.defaultAgentLoop=single_turn'], 'set=rollout.agent.defaultAgentLoop%3Dsingle_turn'],
  [['actor.optim.betas=[0.8, 0.9]'], 'set=actor.optim.betas%3D%5B0.8%2C0.9%5D'],
])('%j', (overrides, wanted) => {
  const config = configOf('gsm8k-tool', overrides);
  const settings = settingsOf(config, 'gsm8k-tool', recipe('gsm8k-tool'));
  expect(settings.toString()).toBe(wanted);
  expect(readBack(settings)).toEqual({ ...config, name: 'gsm8k-tool' });
});

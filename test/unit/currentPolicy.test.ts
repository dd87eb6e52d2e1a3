import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { correctByCurrentPolicy, needsCurrentPolicy } from '../../src/grpo/correction/currentPolicy.ts';
import { RECIPES } from '../../src/grpo/config/recipes.ts';

const configOf = (algorithm: object, actor: object = {}) =>
  resolveTrainConfig({ name: 't', model: { path: 'x' }, algorithm, actor });

const inputs = {
  logp: [
    [-1, -3, 0],
    [-1, -1.1],
  ],
  rolloutLogp: [
    [-1, -1, 0],
    [-1, -1],
  ],
  masks: [
    [1, 1, 0],
    [1, 1],
  ],
  entropy: [
    [0.1, 2, 9],
    [0.3, 0.2],
  ],
  advantages: [
    [-1, -1, 0],
    [1, 1],
  ],
};
const table = (rows: readonly ArrayLike<number>[]) => rows.map((row) => Array.from(row));

test('only clip-cov and kl-cov need an additional forward pass, because they select tokens by the current policy', () => {
  const paying = Object.keys(RECIPES).filter((name) => needsCurrentPolicy(configOf({ name })));
  expect(paying).toEqual(['clip_cov', 'kl_cov']);
});

test('bypass mode: PPO uses the rejection, REINFORCE also the weights', () => {
  const rolloutCorrection = { rolloutRs: 'token_k2', rolloutRsThreshold: 1, rolloutIs: 'token', bypassMode: true };
  const ppo = correctByCurrentPolicy(configOf({ rolloutCorrection }), inputs);
  expect(table(ppo.masks)).toEqual([
    [1, 0, 0],
    [1, 1],
  ]);
  expect(ppo.isWeights).toBeUndefined();
  const { isWeights } = correctByCurrentPolicy(configOf({ name: 'reinforce', rolloutCorrection }), inputs);
  expect(isWeights![1][1]).toBeCloseTo(Math.exp(-0.1), 12);
});

test('OPSM and top entropy keep the mask and remove the gradient', () => {
  const opsm = correctByCurrentPolicy(configOf({ rolloutCorrection: { offPolicyMaskThreshold: 0.5 } }), inputs);
  expect(table(opsm.masks)).toEqual(inputs.masks);
  expect(table(opsm.keep)).toEqual([
    [0, 0, 1],
    [1, 1],
  ]);
  expect(opsm.metrics).toEqual({ 'actor/opsm_kept': 0.5 });
  const top = correctByCurrentPolicy(configOf({}, { topEntropyQuantile: 0.25 }), inputs);
  expect(top.entropyKeep!.flatMap((row) => Array.from(row))).toEqual([0, 1, 0, 0, 0]);
  expect(opsm.entropyKeep).toBeUndefined();
  expect(table(top.keep)).toEqual([
    [0, 1, 1],
    [0, 0],
  ]);
  expect(top.metrics).toEqual({ 'actor/top_entropy_kept': 0.25 });
});

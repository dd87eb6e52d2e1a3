import { expect, test } from 'vitest';
import { parseCases, verifyLosses } from '../../src/grpo/verifyLosses.ts';

/** One token a row, ratio 1: loss -A summed over two rows, token-mean. */
const vanilla = {
  kind: 'policy_loss',
  mode: 'vanilla',
  config: { clip_ratio: 0.2 },
  agg: 'token-mean',
  B: 2,
  T: 2,
  old: [-1, -1, -2, -2],
  new: [-1, -9, -2, -2],
  adv: [1, 1, 3, 3],
  mask: [1, 0, 1, 0],
  is_weights: null,
  loss: -2,
  dlogp: [-0.5, 0, -1.5, 0],
  metrics: { 'actor/ppo_kl': 0, 'actor/pg_clipfrac': 0 },
};
const kl = {
  kind: 'kl',
  mode: 'k1',
  B: 1,
  T: 2,
  logp: [-1, -2],
  ref: [-2, -2],
  mask: [1, 1],
  value: [1, 0],
  dlogp: [0.5, 0.5],
};
const advantage = {
  kind: 'advantage',
  mode: 'rloo',
  config: {},
  groups: ['a', 'a', 'b'],
  rewards: [1, 0, 2],
  mask: [1, 0, 1, 1, 1, 1],
  N: 3,
  T: 2,
  advantages: [1, 0, -1, -1, 2, 2],
};

test('right cases have no error', () => {
  expect(verifyLosses({ cases: [vanilla, kl, advantage] })).toMatchObject({ cases: 3, checked: 3, maxError: 0 });
});

test('the worst number is found, wherever it is; errors are relative above 1', () => {
  const of = (cases: unknown[]) => verifyLosses({ cases });
  expect(of([kl, { ...vanilla, dlogp: [-0.5, 0, -1.4, 0] }]).worst).toMatchObject({
    case: 1,
    what: 'dlogp[2]',
    expected: -1.4,
  });
  expect(of([{ ...vanilla, loss: -1 }]).maxError).toBe(1);
  expect(of([{ ...vanilla, loss: -4 }]).maxError).toBe(0.5);
  expect(of([{ ...vanilla, metrics: { 'actor/unheard_of': 0 } }]).maxError).toBe(Number.MAX_VALUE);
  expect(of([{ ...advantage, advantages: [1, 0, -1, -1, 2, 3] }]).worst?.what).toBe('advantages[5]');
  expect(of([{ ...kl, value: [1, 0.5] }]).maxError).toBe(0.5);
});

test('what is not known counts as not checked', () => {
  const strange = [
    { ...vanilla, mode: 'flow_grpo' },
    { ...vanilla, agg: 'median' },
    { ...kl, mode: 'full' },
    { ...advantage, mode: 'gae' },
    { kind: 'entropy' },
  ];
  expect(verifyLosses({ cases: strange })).toEqual({ cases: 5, checked: 0, maxError: 0, worst: null });
  expect(() => verifyLosses([])).toThrow('The file of loss cases needs an array "cases"; found none.');
});

test("Python's NaN is read and not compared", () => {
  const text = JSON.stringify({ cases: [{ ...vanilla, loss: 7 }] }).replace('"loss":7', '"loss": NaN');
  expect(verifyLosses(parseCases(text))).toMatchObject({ checked: 1, maxError: 0 });
});

test('bypass mode: rejection from the current policy, REINFORCE with its weights', () => {
  const correction = {
    loss_type: 'reinforce',
    rollout_is: 'token',
    rollout_is_threshold: 1.5,
    rollout_rs: 'token_k1',
    rollout_rs_threshold: '0.1_4',
  };
  const bypass = {
    ...vanilla,
    mode: 'bypass_mode',
    config: { policy_loss: { rollout_correction: correction } },
    old: [-1 - Math.log(2), -1, -2 + Math.log(8), -2],
    loss: 1.5,
    dlogp: [-1.5, 0, 0, 0],
    metrics: { 'rollout_corr/rollout_rs_masked_fraction': 0.5 },
  };
  expect(verifyLosses({ cases: [bypass] }).maxError).toBeLessThan(1e-7);
  const clip = { ...bypass, config: { policy_loss: { rollout_correction: { ...correction, loss_type: 'ppo_clip' } } } };
  expect(verifyLosses({ cases: [{ ...clip, loss: -1.2, dlogp: [0, 0, 0, 0] }] }).maxError).toBeLessThan(1e-7);
});

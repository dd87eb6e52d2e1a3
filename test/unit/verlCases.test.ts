import { expect, test } from 'vitest';
import { relativeError, worst } from '../../src/extensions/verify/kernels.ts';
import { parseCases, verifyCases } from '../../src/extensions/verify/verlCases.ts';

test.each([[[NaN, 0.1]], [[5, NaN, 0.1]], [[0.1, NaN]]])('a NaN among errors stays: %o', (errors) => {
  expect(worst(errors)).toBeNaN();
});

test('the largest error of several, 0 of none, NaN of an output with NaN', () => {
  expect([worst([0.1, 5, 0.2]), worst([])]).toEqual([5, 0]);
  expect(relativeError([1, NaN, 2], [1, 1, 2])).toBeNaN();
});

/** Case: one token per row, all ratios 1. The loss -A is summed over two rows and divided by the number of tokens (token-mean). */
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
  expect(verifyCases({ cases: [vanilla, kl, advantage] })).toMatchObject({ cases: 3, checked: 3, maxError: 0 });
});

test('the worst number is found, wherever it is; errors are relative above 1', () => {
  const of = (cases: unknown[]) => verifyCases({ cases });
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

test('unknown entries count as not checked', () => {
  const strange = [
    { ...vanilla, mode: 'flow_grpo' },
    { ...vanilla, agg: 'median' },
    { ...kl, mode: 'full' },
    { ...advantage, mode: 'gae' },
    { kind: 'entropy' },
  ];
  expect(verifyCases({ cases: strange })).toEqual({ cases: 5, checked: 0, maxError: 0, worst: null });
  expect(() => verifyCases([])).toThrow('The file of loss cases has no array "cases". Add one.');
});

test("Python's NaN is read and not compared", () => {
  const text = JSON.stringify({ cases: [{ ...vanilla, loss: 7 }] }).replace('"loss":7', '"loss": NaN');
  expect(verifyCases(parseCases(text))).toMatchObject({ checked: 1, maxError: 0 });
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
  expect(verifyCases({ cases: [bypass] }).maxError).toBeLessThan(1e-7);
  const clip = { ...bypass, config: { policy_loss: { rollout_correction: { ...correction, loss_type: 'ppo_clip' } } } };
  expect(verifyCases({ cases: [{ ...clip, loss: -1.2, dlogp: [0, 0, 0, 0] }] }).maxError).toBeLessThan(1e-7);
});

/** Returns a row with one token at the given log ratio, and the results of verl's formulas, computed by hand. */
const edge = (mode: string, logRatio: number, adv: number, loss: number, dlogp: number, more: object = {}) => ({
  kind: 'policy_loss',
  mode,
  config: { clip_ratio: 0.2 },
  agg: 'token-mean',
  B: 1,
  T: 1,
  old: [-40],
  new: [-40 + logRatio],
  adv: [adv],
  mask: [1],
  is_weights: null,
  loss,
  dlogp: [dlogp],
  ...more,
});
const metrics = (kl: number, clipped: number, lower: number) => ({
  metrics: { 'actor/ppo_kl': kl, 'actor/pg_clipfrac': clipped, 'actor/pg_clipfrac_lower': lower },
});

/** verl divides a sequence's sum by its length plus 1e-8. */
const ONE = 1 + 1e-8;
const GEO = Math.exp(29 / ONE);

test.each([
  ['the log ratio stops at 20, the dual clip at 3', edge('vanilla', 29, -1, 3, 0, metrics(-20, 0, 1))],
  ['clipped above', edge('vanilla', 29, 1, -1.2, 0, metrics(-20, 1, 0))],
  ['clipped below, on the side that is not', edge('vanilla', -29, 1, -Math.exp(-20), 0, metrics(20, 0, 0))],
  ['clipped below, on the side that is', edge('vanilla', -29, -1, 0.8, 0, metrics(20, 1, 0))],
  ['no advantage, no gradient', edge('vanilla', 1, 0, 0, 0, metrics(-1, 0, 0))],
  ['a sequence ratio stops at a mean of 10', edge('gspo', 12, -1, Math.exp(10), 0, metrics(-12, 0, 0))],
  ['the gate is shut far out', edge('sapo', 29, 1, -4, 0, { config: { tau_pos: 1, tau_neg: 1.05 } })],
  ['geo_mean is never clamped', edge('geo_mean', 29, -1, GEO / ONE, GEO / ONE ** 2, metrics(-29, 0, 1))],
  ['a weight at its bound keeps the gradient', edge('cispo', 29, 1, 1.2 * 11, -1.2, metrics(-20, 1, 0))],
])('at the edge: %s', (_, entry) => {
  expect(verifyCases({ cases: [entry] })).toMatchObject({ checked: 1 });
  expect(verifyCases({ cases: [entry] }).maxError).toBeLessThan(1e-7); // verl's own 1e-8 in its means
});

test.each(['token-mean', 'token-sum', 'seq-mean-token-sum', 'seq-mean-token-mean', 'seq-mean-token-sum-norm'])(
  'at the edge: nothing trained, %s',
  (agg) => {
    // verl's own loss is 0 / 0 here, which is not compared
    const empty = edge('vanilla', 1, 1, NaN, 0, { mask: [0], agg, loss: null, ...metrics(0, 0, 0) });
    expect(verifyCases({ cases: [empty] }).maxError).toBe(0);
  },
);

test('at the edge: groups of one, equal rewards, KL far from the reference', () => {
  const of = (mode: string, groups: string[], rewards: number[], advantages: number[]) => ({
    ...advantage,
    mode,
    groups,
    rewards,
    advantages,
    mask: rewards.map(() => 1),
    N: rewards.length,
    T: 1,
  });
  const cases = [
    of('grpo', ['a'], [5], [5 / (1 + 1e-6)]),
    of('grpo', ['a', 'a', 'a'], [0.1, 0.1, 0.1], [0, 0, 0]),
    of('rloo', ['a'], [5], [5]),
    of('opo', ['a'], [5], [5]),
    of('gpg', ['a', 'a', 'b'], [0, 0, 0], [0, 0, 0]),
    of('reinforce_plus_plus_baseline', ['a', 'a'], [2, 2], [0, 0]),
    of('grpo_passk', ['a', 'a', 'a'], [2, 2, 1], [0, 0, 0]),
    { ...kl, mode: 'k3', logp: [-30, -1], ref: [-1, -30], value: [10, 10], dlogp: [0, 0] },
    { ...kl, mode: 'k3+', logp: [-30, -1], ref: [-1, -30], value: [10, 10], dlogp: [-14.5, 14.5] },
  ];
  expect(verifyCases({ cases }).checked).toBe(cases.length);
  expect(verifyCases({ cases }).maxError).toBeLessThan(1e-9);
});

import { expect, test } from 'vitest';
import { lossWeights, tokenWeights } from '../../src/grpo/losses/aggregate.ts';
import { POLICY_LOSSES } from '../../src/grpo/losses/index.ts';

const MASKS = [
  [1, 1, 0, 1],
  [0, 0],
  [1, 0, 1],
];

test.each([
  ['token-mean', [0.2, 0.2]],
  ['token-sum', [1, 1]],
  ['seq-mean-token-sum', [1 / 2, 1 / 2]],
  ['seq-mean-token-mean', [1 / 6, 1 / 4]],
  ['seq-mean-token-sum-norm', [1 / 20, 1 / 20]],
] as const)('%s', (mode, [first, third]) => {
  const weights = tokenWeights(mode, MASKS, { maxResponseLength: 10 });
  expect(weights.map((w) => w.length)).toEqual([4, 2, 3]);
  const want = [first, first, 0, first, 0, 0, third, 0, third];
  weights.flatMap((w) => Array.from(w)).forEach((w, e) => expect(w).toBeCloseTo(want[e], 8));
});

test.each([
  ['seq-mean-token-sum', (sum: number) => sum],
  ['seq-mean-token-mean', (sum: number, length: number) => sum / (length + 1e-8)],
  ['seq-mean-token-sum-norm', (sum: number) => sum / 10],
] as const)('%s divides by the constant mini-batch, as verl does', (mode, ofSequence) => {
  const losses = [
    [0.5, -1, 7, 2],
    [3, 4],
    [1, 9, -2],
  ];
  /** Computes verl's agg_loss: masked_sum(seq_losses, seq_mask) / global_batch_size, however many samples are left in the batch. */
  const verl = (masks: number[][], globalBatchSize: number) => {
    let total = 0;
    masks.forEach((mask, s) => {
      const length = mask.reduce((a, b) => a + b, 0);
      const sum = mask.reduce((all, m, t) => all + m * losses[s][t], 0);
      if (length > 0) total += ofSequence(sum, length);
    });
    return total / globalBatchSize;
  };
  const ours = (masks: number[][], globalBatchSize: number) =>
    tokenWeights(mode, masks, { maxResponseLength: 10, globalBatchSize })
      .flatMap((weights, s) => Array.from(weights, (w, t) => w * losses[s][t]))
      .reduce((a, b) => a + b, 0);
  const all = MASKS.map((mask) => mask.map(() => 1));
  for (const masks of [all, MASKS, MASKS.slice(0, 1)]) expect(ours(masks, 3)).toBeCloseTo(verl(masks, 3), 12);
  // A mini-batch with fewer groups has the same divisor.
  expect(ours(MASKS, 8)).toBeCloseTo(verl(MASKS, 8), 12);
});

test('losses that fix their aggregation get it; the KL keeps the configured one', () => {
  const options = { maxResponseLength: 10 };
  const mean = lossWeights(POLICY_LOSSES.vanilla, 'seq-mean-token-mean', MASKS, options);
  for (const mode of ['gspo', 'sapo'])
    expect(lossWeights(POLICY_LOSSES[mode], 'token-mean', MASKS, options).weights).toEqual(mean.weights);
  const sum = tokenWeights('seq-mean-token-sum', MASKS, options);
  expect(lossWeights(POLICY_LOSSES.luspo, 'token-mean', MASKS, options).weights).toEqual(sum);
  expect(lossWeights(POLICY_LOSSES.gspo, 'token-mean', MASKS, options).klWeights).toEqual(
    tokenWeights('token-mean', MASKS, options),
  );
});

test('geo_mean averages over empty sequences too, and over the logs of importance weights', () => {
  const isWeights = MASKS.map((mask) => mask.map((_, t) => [4, 1, 9, 2][t]));
  const { weights, klWeights } = lossWeights(POLICY_LOSSES.geo_mean, 'token-mean', MASKS, {
    maxResponseLength: 10,
    isWeights,
  });
  expect(weights[0][0]).toBeCloseTo(Math.cbrt(8) / 9, 7);
  expect(weights[0][2]).toBe(0);
  expect(weights[2][2]).toBeCloseTo(Math.sqrt(4 * 9) / 6, 7);
  expect(klWeights[0][0]).toBeCloseTo(0.2, 12);
});

test('importance weights multiply, and do not affect masked tokens', () => {
  const isWeights = [
    [2, 3, NaN, 4],
    [NaN, NaN],
    [1, NaN, 1],
  ];
  const { weights } = lossWeights(POLICY_LOSSES.vanilla, 'token-sum', MASKS, { maxResponseLength: 10, isWeights });
  expect(weights.map((w) => Array.from(w))).toEqual([
    [2, 3, 0, 4],
    [0, 0],
    [1, 0, 1],
  ]);
});

test('errors name what is allowed', () => {
  expect(() => tokenWeights('mean' as never, MASKS, { maxResponseLength: 10 })).toThrow(
    'Unknown lossAggMode "mean"; known: token-mean, token-sum,',
  );
  expect(() => tokenWeights('seq-mean-token-sum-norm', MASKS, { maxResponseLength: 0 })).toThrow(
    'lossAggMode "seq-mean-token-sum-norm" needs maxResponseLength > 0, but it is 0.',
  );
});

import { describe, expect, test } from 'vitest';
import {
  offPolicySequenceMask,
  rolloutCorrection,
  type RolloutCorrection,
  type Samples,
  topEntropyMask,
} from '../../src/grpo/correction/correct.ts';

/** Log ratios (old - rollout) by sample; NaN at tokens that are not trained on. */
const RATIOS = [
  [Math.log(2), Math.log(0.5), NaN, Math.log(8)],
  [NaN, NaN],
  [Math.log(1.5), 0.0],
];
const MASKS = [
  [1, 1, 0, 1],
  [0, 0],
  [1, 1],
];
const samples: Samples = {
  rolloutLogp: RATIOS.map((row) => row.map((_, t) => -1 - t / 4)),
  oldLogp: RATIOS.map((row) => row.map((x, t) => -1 - t / 4 + x)),
  masks: MASKS,
};
const NO_CORRECTION: RolloutCorrection = {
  rolloutIs: 'none',
  rolloutIsThreshold: 2,
  rolloutIsBatchNormalize: false,
  rolloutRs: '',
  rolloutRsThreshold: '',
};
const of = (more: Partial<RolloutCorrection>) => rolloutCorrection({ ...NO_CORRECTION, ...more }, samples);
const table = (rows: Float64Array[] | undefined) => rows?.map((row) => Array.from(row, (x) => Number(x.toFixed(9))));

describe('importance weights', () => {
  test('per token, truncated', () => {
    const { isWeights, metrics } = of({ rolloutIs: 'token', rolloutIsThreshold: 2 });
    expect(table(isWeights)).toEqual([
      [2, 0.5, 0, 2],
      [0, 0],
      [1.5, 1],
    ]);
    expect(metrics['rollout_corr/rollout_is_mean']).toBeCloseTo(7 / 5, 7);
    expect(metrics['rollout_corr/rollout_is_ratio_fraction_high']).toBeCloseTo(1 / 5, 7);
    expect(metrics['rollout_corr/rollout_is_max']).toBe(2);
    expect(metrics['rollout_corr/rollout_is_eff_sample_size']).toBeCloseTo(49 / 5 / (4 + 0.25 + 4 + 2.25 + 1), 6);
  });

  test('IcePop: outside the bounds a weight is 0', () => {
    const { isWeights, metrics } = of({ rolloutIs: 'token', rolloutIsThreshold: '0.6_4' });
    expect(table(isWeights)).toEqual([
      [2, 0, 0, 0],
      [0, 0],
      [1.5, 1],
    ]);
    expect(metrics['rollout_corr/rollout_is_oob_ratio']).toBeCloseTo(2 / 5, 7);
  });

  test('per sequence: the product of its ratios on every token', () => {
    const { isWeights, metrics } = of({ rolloutIs: 'sequence', rolloutIsThreshold: 5 });
    expect(table(isWeights)).toEqual([
      [5, 5, 0, 5],
      [0, 0],
      [1.5, 1.5],
    ]);
    expect(metrics['rollout_corr/rollout_is_max']).toBeCloseTo(8, 9);
  });

  test('batch-normalised weights average 1, over tokens or over sequences', () => {
    const token = of({ rolloutIs: 'token', rolloutIsBatchNormalize: true }).isWeights!.flatMap((w) => Array.from(w));
    expect(token.reduce((a, b) => a + b, 0) / 5).toBeCloseTo(1, 7);
    const [first, , third] = of({ rolloutIs: 'sequence', rolloutIsBatchNormalize: true }).isWeights!;
    expect((first[0] + third[0]) / 2).toBeCloseTo(1, 7);
  });
});

describe('rejection', () => {
  test.each(
    [
      [
        'token_k1',
        '0.4_3',
        [
          [1, 1, 0, 0],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'token_k2',
        '0.2',
        [
          [0, 0, 0, 0],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'token_k3',
        '0.4',
        [
          [1, 1, 0, 0],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'seq_sum_k1',
        '0.1_2',
        [
          [1, 1, 0, 1],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'seq_sum_k1',
        '0.5_2',
        [
          [0, 0, 0, 0],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'seq_mean_k1',
        '0.4_2',
        [
          [1, 1, 0, 1],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'seq_mean_k2',
        '0.5',
        [
          [0, 0, 0, 0],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'seq_max_k2',
        '0.1',
        [
          [0, 0, 0, 0],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'seq_max_k3',
        '5',
        [
          [1, 1, 0, 1],
          [0, 0],
          [1, 1],
        ],
      ],
      [
        'token_k1,seq_sum_k3',
        '0.4_3,0.01',
        [
          [0, 0, 0, 0],
          [0, 0],
          [0, 0],
        ],
      ],
    ].map((row) => row as [string, string, number[][]]),
  )('%s within %s', (rolloutRs, rolloutRsThreshold, want) => {
    // k1 is log(rollout / old), so its bounds apply to the inverse ratio, as in verl
    const { masks, metrics } = of({ rolloutRs, rolloutRsThreshold });
    expect(table(masks)).toEqual(want);
    const kept = want.flat().reduce((a, b) => a + b, 0);
    expect(metrics['rollout_corr/rollout_rs_masked_fraction']).toBeCloseTo(1 - kept / 5, 7);
    expect(Object.values(metrics).every(Number.isFinite)).toBe(true);
  });

  test('one bound b means 1/b .. b for k1', () => {
    expect(table(of({ rolloutRs: 'token_k1', rolloutRsThreshold: 2.1 }).masks)).toEqual([
      [1, 1, 0, 0],
      [0, 0],
      [1, 1],
    ]);
  });
});

test('off-policy metrics', () => {
  const { metrics } = of({});
  const logs = [2, 0.5, 8, 1.5, 1].map(Math.log);
  expect(metrics['rollout_corr/kl']).toBeCloseTo(-logs.reduce((a, b) => a + b, 0) / 5, 7);
  expect(metrics['rollout_corr/chi2_token']).toBeCloseTo((4 + 0.25 + 64 + 2.25 + 1) / 5 - 1, 6);
  expect(metrics['rollout_corr/chi2_seq']).toBeCloseTo((64 + 1 + 2.25) / 3 - 1, 6);
  expect(metrics['rollout_corr/log_ppl_diff_min']).toBeCloseTo(-Math.log(8) / 3, 7);
});

test('without trained tokens there are no weights, and no NaN', () => {
  const result = rolloutCorrection(
    { ...NO_CORRECTION, rolloutIs: 'token' },
    {
      ...samples,
      masks: [
        [0, 0, 0, 0],
        [0, 0],
        [0, 0],
      ],
    },
  );
  expect(result.metrics).toEqual({});
});

test('OPSM drops drifted samples with a negative advantage only', () => {
  const drifted: Samples = { ...samples, rolloutLogp: samples.oldLogp, oldLogp: samples.rolloutLogp };
  const dropped = offPolicySequenceMask([-1, -1, -1], drifted, 0.5);
  expect(table(dropped)).toEqual([
    [0, 0, 0, 0],
    [0, 0],
    [1, 1],
  ]);
  expect(table(offPolicySequenceMask([1, 1, 1], drifted, 0.5))).toEqual(MASKS);
});

test('the top-entropy mask keeps a share of the trained tokens', () => {
  const entropies = [
    [5, 1, 99, 3],
    [99, 99],
    [4, 2],
  ];
  expect(table(topEntropyMask(entropies, MASKS, 0.4))).toEqual([
    [1, 0, 0, 0],
    [0, 0],
    [1, 0],
  ]);
  expect(table(topEntropyMask(entropies, MASKS, 1))).toEqual(MASKS);
  expect(() => topEntropyMask(entropies, MASKS, 0)).toThrow('topEntropyQuantile is 0. It must be in (0, 1].');
});

test('bad thresholds and options say what is allowed', () => {
  expect(() => of({ rolloutRs: 'seq_k1', rolloutRsThreshold: 2 })).toThrow(
    'Unknown rolloutRs option "seq_k1"; known: token_k1,',
  );
  expect(() => of({ rolloutRs: 'token_k2', rolloutRsThreshold: '0.1_2' })).toThrow(
    'rolloutRsThreshold "0.1_2" does not fit token_k2. Give one positive number.',
  );
  expect(() => of({ rolloutRs: 'token_k1,token_k2,token_k3', rolloutRsThreshold: '1,2' })).toThrow(
    'holds 2 thresholds for 3 options',
  );
  expect(() => of({ rolloutIs: 'token', rolloutIsThreshold: '5_2' })).toThrow(
    'rolloutIsThreshold is "5_2". Give a positive number',
  );
});

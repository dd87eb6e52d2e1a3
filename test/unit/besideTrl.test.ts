/** Tests scripts/lib/besideTrl.mjs, which reads the logs of a run in TRL and of a run in webgrpo into one table. */

import { expect, test } from 'vitest';
import { besideTrlTable, readLines, readOurs, readTrl } from '../../scripts/lib/besideTrl.mjs';

/** One step of webgrpo corresponds to two steps of TRL, and only the first of these two logs a reward. */
const TRL_LOG = [
  '{"step": 0, "eval_reward": 0.25}',
  '{"step": 1, "grad_norm": 1, "reward": 0.5, "seconds": {"step": 3, "generation": 2, "update": 0.5}}',
  '{"step": 2, "grad_norm": NaN, "loss": -Infinity, "seconds": {"step": 1, "generation": 0, "update": 1}}',
  '{"step": 3, "grad_norm": 1, "reward": NaN, "seconds": {"step": 5, "generation": 3, "update": 1.5}}',
  '{"step": 4, "grad_norm": 1, "seconds": {"step": 1, "generation": 0, "update": 1}}',
  '{"step": 4, "eval_reward": 0.75}',
  '{"step": 4, "train_runtime": 9}',
];
const read = (lines: string[], steps = 2) => readTrl(readLines(lines.join('\n')), { seed: 1, steps, updates: 2 });

test('updates of TRL come to our steps', () => {
  const run = { seed: 1, reward: [0.5, null], before: 0.25, after: 0.75, step: 5, generation: 2.5, update: 2 };
  expect(read(TRL_LOG)).toEqual(run);
});

test('what a run in TRL has not come to is null', () => {
  const noEvaluation = TRL_LOG.filter((line) => !line.includes('eval_'));
  expect(read(noEvaluation)).toMatchObject({ before: null, after: null, step: 5 });
  expect(read(TRL_LOG.slice(0, 4))).toMatchObject({ reward: [0.5], before: 0.25, after: null, step: 4 });
  // The score must come from the last evaluation, not from the one in between.
  expect(read(TRL_LOG, 4)).toMatchObject({ before: 0.25, after: null });
  expect(read([TRL_LOG[0].replace('0.25', 'NaN')])).toMatchObject({ before: null, reward: [], step: null });
  expect(read([])).toMatchObject({ before: null, after: null, reward: [], update: null });
});

test('a half-written last line is skipped, any other is an error', () => {
  expect(readLines('{"a": NaN, "b": -Infinity, "c": ": NaN"}\n{"a": 1')).toEqual([{ a: null, b: null, c: ': NaN' }]);
  expect(() => readLines('{"a": 1\n{"a": 2}')).toThrow(SyntaxError);
});

test('our metrics have the same form', () => {
  const step = { 'timing_s/step': 4, 'timing_s/gen': 2, 'timing_s/update_actor': 1, 'critic/score/mean': 0.5 };
  const lines = [
    { 'training/global_step': 0, 'val-core/jsonl/acc/mean@4': 0.25, 'val-core/jsonl/acc/greedy': 1 },
    { 'training/global_step': 1, ...step },
    { 'training/global_step': 2, ...step, 'critic/score/mean': null, 'val-core/jsonl/acc/mean@4': 0.75 },
  ];
  const run = { seed: 3, reward: [0.5, null], before: 0.25, after: 0.75, step: 4, generation: 2, update: 1 };
  expect(readOurs(lines, { seed: 3, steps: 2 })).toEqual(run);
  expect(readOurs(lines.slice(0, 2), { seed: 3, steps: 2 })).toMatchObject({ reward: [0.5], after: null });
});

test('the table has mean and spread over seeds, and "-" for what was not measured', () => {
  const usage = { seconds: 10, cpuSeconds: 20, peakBytes: 1.5e9 };
  const first = { ...read(TRL_LOG), usage };
  const second = { ...first, seed: 2, after: 0.25, reward: [1], step: null, usage: null };
  const sides = {
    TRL: { setup: { seconds: 128.4, bytes: 5.9e9 }, runs: [first, second] },
    webgrpo: { setup: null, runs: [] },
  };
  const rows = besideTrlTable({ name: 'capitals', steps: 2, sides }).split('\n');
  expect(rows.slice(0, 3)).toEqual([
    '| capitals, 2 steps | TRL | webgrpo |',
    '| --- | --- | --- |',
    '| seeds | 1, 2 | - |',
  ]);
  for (const row of [
    '| held-out pass@1 before | 0.250 (0.250 to 0.250) | - |',
    '| held-out pass@1 after | 0.500 (0.250 to 0.750) | - |',
    '| mean reward of the first ten steps | 0.750 (0.500 to 1.000) | - |',
    '| seconds per step | 5.00 | - |',
    '| peak memory, MB | 1500 | - |',
    '| set-up, seconds | 128 | - |',
    '| set-up, MB | 5900 | - |',
  ])
    expect(rows).toContain(row);
  const setups = { TRL: { ...sides.TRL, runs: [] } };
  expect(besideTrlTable({ name: 'set-up', steps: 0, sides: setups }).split('\n')).toEqual([
    '| set-up, 0 steps | TRL |',
    '| --- | --- |',
    '| set-up, seconds | 128 |',
    '| set-up, MB | 5900 |',
  ]);
});

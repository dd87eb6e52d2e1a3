import { expect, test } from 'vitest';
import {
  comparedCharts,
  comparedMarkdown,
  comparedRows,
  comparisonReport,
  whyBelow,
  type AlgorithmRuns,
} from '../../src/report/comparison.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { standalonePage } from '../../src/report/standalonePage.ts';

const CONFIG = resolveTrainConfig({ name: 'r', model: { path: 'm' } });
const PASS = 'val-core/t/acc/mean@1';
const line = (step: number, more: Record<string, number> = {}) => ({
  'training/global_step': step,
  'critic/acc/mean': 0.5,
  'critic/score/mean': 0.5,
  'actor/entropy': 0.3,
  'timing_s/step': 30,
  ...more,
});
const run = (seed: number, passes: number[]) => ({
  seed,
  history: passes.map((pass, i) =>
    i === 0 ? { 'training/global_step': 0, [PASS]: pass } : line(i * 2, { [PASS]: pass, 'timing_s/testing': 15 }),
  ),
});
const ALL: AlgorithmRuns[] = [
  {
    algorithm: 'grpo',
    config: CONFIG,
    settings: 'vanilla',
    problems: 64,
    runs: [run(1, [0.25, 0.5, 0.9]), run(2, [0.25, 0.7, 0.8])],
  },
  {
    ...{ algorithm: 'gspo', config: CONFIG, settings: 'gspo' },
    runs: [run(1, [0.25, 0.5]), { seed: 2, history: [] }],
  },
];

test('curves: mean and range over the seeds that reached a step, null if none did', () => {
  const [chart] = comparedCharts(ALL);
  expect(chart.title).toBe('held-out pass@1, sampled');
  expect(chart.steps).toEqual([0, 2, 4]);
  const [grpo, gspo] = chart.curves;
  expect(grpo.mean[1]).toBeCloseTo(0.6, 12);
  expect([grpo.low, grpo.high]).toEqual([
    [0.25, 0.5, 0.8],
    [0.25, 0.7, 0.9],
  ]);
  expect(gspo.mean).toEqual([0.25, 0.5, null]);
  expect(comparedCharts([{ ...ALL[0], runs: [] }])).toEqual([]);
});

test('rows: the mean over seeds reaches the target, and a note explains the runs that did not', () => {
  const [grpo, gspo] = comparedRows(ALL, 0.84);
  expect(grpo).toMatchObject({ seeds: 2, before: 0.25, reachedAt: 4, minutes: 1.5, note: '', greedy: null });
  expect(grpo.after).toMatchObject({ low: 0.8, high: 0.9 });
  expect(grpo.interval).toEqual({
    mean: expect.closeTo(0.85, 12),
    low: expect.closeTo(0.743, 3),
    high: expect.closeTo(0.917, 3),
  });
  expect([grpo.pValue, gspo.interval]).toEqual([null, null]);
  expect(gspo.pValue).toBeCloseTo(1 / 3, 12); // gspo's 0.5 is the lowest of three values
  expect(gspo).toMatchObject({ seeds: 1, reachedAt: null, note: 'flat over the last quarter of the steps' });
  const late = ALL.map((of) => ({ ...of, runs: of.runs.map((run) => ({ ...run, history: run.history.slice(1) })) }));
  expect(comparedRows(late, 0.84)[0], 'no evaluation before training').toMatchObject({ before: null });
  const [first, second] = ALL[0].runs;
  const stopped = { ...ALL[0], runs: [first, { ...second, history: [...second.history, line(6)] }] };
  const { after } = comparedRows([stopped], 0.84)[0];
  expect(after, 'the last step of seed 2 was not evaluated').toEqual({ mean: 0.9, low: 0.9, high: 0.9 });
  expect(
    comparedMarkdown(comparedRows(ALL, 0.84))
      .split('\n')
      .map((row) => row.split(' | ').slice(4, 8)),
  ).toEqual([
    ['pass@1 after', '95% over problems', 'p against grpo', 'greedy after'],
    ['---', '---', '---', '---'],
    ['0.850 (0.800 to 0.900)', '0.743 to 0.917', '-', '-'],
    ['0.500', '-', '0.33', '-'],
  ]);
});

const NEVER = { frac_reward_zero_std: 1, 'solved/none': 1 };

test('why runs stay below: the cause that doctor finds in most of them', () => {
  const runOf = (more: Record<string, number>) => [1, 2, 3, 4].map((step) => line(step, more));
  const [clipped, silent, sound] = [runOf({ 'actor/pg_clipfrac': 0.5 }), runOf(NEVER), runOf({})];
  expect(whyBelow([clipped, sound, clipped], 0, CONFIG)).toBe(
    'Most tokens are clipped: the updates hardly move the policy',
  );
  expect(whyBelow([silent], 0, CONFIG)).toBe('The reward never fires: no sample is better than another');
  expect(whyBelow([silent, clipped], 0, CONFIG)).toBe('flat over the last quarter of the steps');
});

test('why a run stays below: it fell back, or had not finished rising', () => {
  const peaked = [1, 2, 3, 4].map((step) => line(step, { [PASS]: step === 2 ? 0.8 : 0.4 }));
  expect(whyBelow([peaked], 0.4, CONFIG)).toBe('fell back from 0.80: the updates are too large, lower actor.optim.lr');
  const rising = [1, 2, 3, 4].map((step) => line(step, { 'critic/acc/mean': step / 10 }));
  expect(whyBelow([rising], 0, CONFIG)).toBe('still rising (+0.10 over the last quarter): give it more steps');
});

test('the page needs no other file, and its data cannot contain markup', () => {
  const about = 'a $& b </script><script>';
  const report = comparisonReport({ title: 'a<b', about, all: ALL, target: 0.85, config: 'x: <y>' });
  const html = standalonePage(report);
  expect(html).not.toMatch(/<[^>]* (src|href)=|https?:\/\/(?!www\.w3\.org|github\.com)/);
  expect(html.match(/<script/g)).toHaveLength(2);
  expect(html.match(/<\/script>/g)).toHaveLength(2);
  const [, json] = /<script id="report" type="application\/json">(.*?)<\/script>/s.exec(html)!;
  expect(JSON.parse(json)).toEqual(report);
  expect(report.table[1][0]).toBe('grpo');
});

test('runs that are equal bit for bit are named, with the reason', () => {
  const history = (norm: number, loss: number): Metrics[] => [
    { 'training/global_step': 0, 'val-core/t/acc/mean@1': 0.5 },
    {
      'training/global_step': 1,
      'timing_s/step': loss,
      'actor/grad_norm': norm,
      'actor/pg_loss': loss,
      'actor/ppo_kl': loss,
    },
  ];
  const of = (algorithm: string, updates: number, ...runs: Metrics[][]): AlgorithmRuns => ({
    ...{
      algorithm,
      config: CONFIG,
      settings: `${algorithm}, rloo`,
      updates,
      runs: runs.map((lines, seed) => ({ seed, history: lines })),
    },
  });
  const notes = (...all: AlgorithmRuns[]) => comparedRows(all, 0.9).map(({ note }) => note);
  const grpo = of('grpo', 1, history(3, 1), history(4, 1));
  const reason = ': with one update per step the ratio is 1, set actor.ppoMiniBatchSize lower';
  expect(notes(grpo, of('gspo', 1, history(3, 2), history(4, 2)))).toEqual(['', `bit-identical to grpo${reason}`]);
  expect(notes(grpo, of('gspo', 2, history(3, 2), history(4, 2)))[1]).toBe('bit-identical to grpo');
  const other = { ...of('dr_grpo', 1, history(3, 2), history(4, 2)), settings: 'grpo, gae' };
  expect(notes(grpo, other)[1]).toBe('bit-identical to grpo');
  expect(notes(grpo, of('cispo', 1, history(3, 1), history(4 + 2 ** -50, 1)))).toEqual(['', '']);
  expect(notes(grpo, of('cispo', 1, history(3, 1)), of('dapo', 1, history(3, 1), history(4, 1).slice(0, 1)))[2]).toBe(
    '',
  );
  expect(notes(of('grpo', 1, history(0, 1)), of('gspo', 1, history(0, 2)))[1]).toBe(
    'bit-identical to grpo: no step had a gradient',
  );
  expect(notes(of('dapo', 1, history(5, 1)), of('grpo', 1, history(3, 1)), of('gspo', 2, history(3, 2)))).toEqual([
    '',
    '',
    'bit-identical to grpo',
  ]);
  expect(notes(of('grpo', 2, history(NaN, 1)), of('gspo', 2, history(NaN, 2)))[1]).toBe('bit-identical to grpo');
  expect(notes(of('grpo', 1, history(3, 1).slice(0, 1)), of('gspo', 1, history(3, 1).slice(0, 1)))[1]).toBe('');
});

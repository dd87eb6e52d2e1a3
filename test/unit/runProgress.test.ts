/** Tests the remaining time that the page shows, and lines of metrics that arrive late. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { amended } from '../../src/runs/amended.ts';
import { headlineOf, smoothed } from '../../demo/state/measured.ts';
import { dropSession, session, showPhase, showSession, weightsStep } from '../../demo/state/page.ts';
import type { Session } from '../../demo/engine/session.ts';
import { secondsLeft } from '../../demo/state/progress.ts';
import { RunHealth } from '../../src/grpo/health.ts';
import { explainLoss } from '../../src/report/explainLoss.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { StepTokens } from '../../src/grpo/update/stepTokens.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { stub } from '../stub.ts';

const config = resolveTrainConfig({
  name: 'x',
  model: { path: 'x' },
  data: { trainBatchSize: 4, valMaxSamples: 16 },
  actor: { ppoMiniBatchSize: 4 },
  rollout: { n: 4 },
  trainer: { totalTrainingSteps: 40, testFreq: 10, valBeforeTrain: false },
});
const line = (step: number, seconds: number, more: Record<string, number> = {}): Metrics => ({
  'training/global_step': step,
  'timing_s/step': seconds,
  ...more,
});
const steps = (count: number, seconds: (step: number) => number) =>
  Array.from({ length: count }, (_, i) => line(i + 1, seconds(i + 1)));

test('a session and the step of its weights change together, and the session before is closed', () => {
  const closed: string[] = [];
  const opened = (name: string) => stub<Session>({ close: () => void closed.push(name) });
  const [trained, untrained] = [opened('trained'), opened('untrained')];
  showSession(trained, 80);
  expect([session.value, weightsStep.value, closed]).toEqual([trained, 80, []]);
  showPhase('update', 81);
  expect(weightsStep.value).toBeUndefined();
  showPhase('sync', 81);
  expect(weightsStep.value).toBe(81);
  showPhase('generate', 82);
  expect(weightsStep.value).toBe(81);
  showSession(untrained);
  expect([session.value, weightsStep.value, closed]).toEqual([untrained, 0, ['trained']]);
  dropSession(trained); // closed before; another session is shown
  expect(session.value).toBe(untrained);
  dropSession(untrained);
  expect([session.value, closed]).toEqual([undefined, ['trained', 'untrained']]);
});

test('the time left follows from recent steps, including future evaluations', () => {
  expect(secondsLeft(config, [])).toBeUndefined();
  // A first step of 500 s, which compiles kernels, no longer counts after ten more steps.
  const lines = steps(30, (step) => (step === 1 ? 500 : 2));
  expect(secondsLeft(config, lines)).toBeCloseTo(10 * 2);
  lines[9] = { ...lines[9], 'timing_s/testing': 7 };
  expect(secondsLeft(config, lines)).toBeCloseTo(10 * 2 + 7);
  expect(
    secondsLeft(
      config,
      steps(40, () => 2),
    ),
  ).toBeUndefined();
});

test('the time of the first evaluation is estimated from its answers', () => {
  const lines = [...steps(29, () => 2), line(30, 2, { 'timing_s/gen': 1 })];
  expect(secondsLeft(config, lines)).toBeCloseTo(10 * 2 + (16 * 2) / 16);
  expect(secondsLeft(config, lines, 4), 'a task with four held-out problems').toBeCloseTo(10 * 2 + (4 * 2) / 16);
});

test('steps that grow are expected to grow, within bounds', () => {
  const growing = secondsLeft(
    config,
    steps(20, (step) => 10 + step / 10),
  )!;
  const same = secondsLeft(
    config,
    steps(20, () => 11.55),
  )!;
  expect(growing).toBeGreaterThan(same);
  expect(
    secondsLeft(
      config,
      steps(20, (step) => step ** 3),
    )! /
      secondsLeft(
        config,
        steps(20, () => 4000),
      )!,
  ).toBeLessThan(2);
});

test('a late line is inserted at its place', () => {
  const lines = [1, 2].map((step) => ({ 'training/global_step': step, a: step }));
  expect(amended(lines, { 'training/global_step': 0, b: 1 })[0]).toEqual({ 'training/global_step': 0, b: 1 });
  expect(amended(lines, { 'training/global_step': 2, b: 1 })).toEqual([lines[0], { ...lines[1], b: 1 }]);
  expect(amended(lines, { 'training/global_step': 3, b: 1 })).toHaveLength(3);
  expect(lines).toHaveLength(2);
});

/** Returns the warnings about steps with these shares of failed calls and mean |advantages|. */
function reported(given: readonly { rate?: number; advantage?: number; errors?: string[] }[]) {
  const health = new RunHealth();
  const reasons = given.map(({ rate, advantage = 1, errors = [] }, i) => {
    const messages = errors.map((content) => ({ role: 'tool' as const, content }));
    const metrics: Metrics = { 'critic/advantages/abs_mean': advantage };
    if (rate !== undefined) metrics['tool_call_counts/error_rate'] = rate;
    const samples = stub<Sample[]>([{ messages: [...messages, { role: 'assistant', content: 'Error' }] }]);
    const step = { config, step: i + 1, samples, tokens: stub<StepTokens>({}), metrics };
    return health.observe(step, undefined).map(({ reason }) => reason);
  });
  return { steps: reasons.flatMap((of, i) => of.map(() => i + 1)), reasons: reasons.flat(), standing: health.standing };
}

test('tool calls that nearly all fail are reported once, with the most frequent error, and again at the end', () => {
  const errors = [
    'Error: rare',
    'Error: no tool "calculator"; there is min',
    'Error: no tool "calculator"; there is min',
    '7',
  ];
  const failing = { rate: 1, errors };
  const { steps, reasons, standing } = reported(Array<typeof failing>(20).fill(failing));
  expect(steps).toEqual([3]);
  expect(reasons[0]).toMatch(
    /^Nearly all tool calls fail \(100% in this step\), most often with "Error: no tool "calculator"; there is min"\. /,
  );
  expect(reasons[0]).toContain('rollout.multiTurn.toolSchemasInPrompt');
  expect(standing).toEqual([expect.stringContaining('(100% 20 steps in a row)')]);
});

test('steps without a call neither end nor lengthen the failures; a healthy run has nothing to report', () => {
  const bad = { rate: 0.95 };
  expect(reported([bad, {}, bad, {}, {}, bad, {}]).steps).toEqual([6]);
  expect(reported([bad, bad, { rate: 0.5 }, bad, bad])).toEqual({ steps: [], reasons: [], standing: [] });
  expect(reported([bad, bad, bad, { rate: 0 }, bad, bad, bad]).steps).toEqual([3, 7]);
  expect(reported([bad, bad, bad, { rate: 0 }]).standing).toEqual([]);
  const healthy = Array.from({ length: 80 }, () => ({ rate: 0.1, advantage: 0.3 }));
  expect(reported(healthy)).toEqual({ steps: [], reasons: [], standing: [] });
});

test('rewards without a spread are reported at the fifth step in a row, and again at the end with their count', () => {
  const silent = Array.from({ length: 7 }, () => ({ advantage: 0, rate: 1 }));
  const { steps, reasons, standing } = reported(silent);
  expect(steps).toEqual([3, 5]);
  expect(reasons[1]).toContain('all samples of a group earned the same');
  expect(standing[1]).toBe('The last 7 steps did not train: all samples of a group earned the same.');
});

test('docs/guides/no-learning.md quotes what a run reports', () => {
  const page = readFileSync('docs/guides/no-learning.md', 'utf8').split('## What the run tells you by itself')[1];
  const quoted = Array.from(page.split('\n## ')[0].matchAll(/^\| `([^`]+?) \.\.\.` \|/gm), ([, text]) => text);
  const step = { config, samples: [], tokens: stub<StepTokens>({}), metrics: {} };
  const [notFinite] = new RunHealth().observe({ ...step, step: 7 }, 'x');
  const said = [
    ...reported(Array<object>(5).fill({ advantage: 0 })).reasons,
    ...reported(Array<object>(3).fill({ rate: 1 })).reasons,
    notFinite.reason.replace('Step 7', 'Step N'),
    explainLoss({ 'actor/pg_loss': 0, 'critic/advantages/abs_mean': 1 }) ?? '',
  ];
  expect(quoted).toHaveLength(said.length);
  quoted.forEach((text, i) => expect(said[i].slice(0, text.length)).toBe(text));
});

test('the headline compares held-out problems, and the tries of the steps until they are evaluated', () => {
  const line = (step: number, acc?: number, held?: number): Metrics => ({
    'training/global_step': step,
    ...(acc !== undefined && { 'critic/acc/mean': acc }),
    ...(held !== undefined && { 'val-core/gsm8k/acc/mean@1': held }),
  });
  expect(headlineOf([])).toEqual({ numbers: [], caption: 'Share of problems solved', now: 'Appears after step 1' });
  const [first, second] = [line(1, 0.25), line(2, 0.5)];
  expect(headlineOf([first])).toMatchObject({ numbers: [0.25], caption: 'Share of tries solved, step 1' });
  const start = line(0, undefined, 0.39);
  expect(headlineOf([start, first, second])).toEqual({
    numbers: [0.25, 0.5],
    caption: 'Share of tries solved, steps 1 and 2',
    now: 'Held-out, before training: 0.39',
  });
  expect(headlineOf([start, first, line(2, 0.5, 0.88), line(3, 0.75)], 80)).toEqual({
    numbers: [0.39, 0.88],
    caption: 'Share solved, held-out problems, step 2 of 80',
    now: 'Tries of step 3: 0.75 solved',
  });
  const few = { ...line(5), 'val-aux/gsm8k/acc/first@32': 0.75 };
  expect(headlineOf([start, few])).toMatchObject({
    numbers: [0.39, 0.75],
    caption: 'Share solved, first 32 held-out problems, step 5; all of them before training',
  });
  expect(headlineOf([few])).toMatchObject({
    numbers: [0.75],
    caption: 'Share solved, first 32 held-out problems, step 5',
  });
  expect(headlineOf([line(80, undefined, 0.98)]), 'a shared run').toMatchObject({ numbers: [0.98], now: '' });
});

test('a smoothed curve starts at its first value and follows a jump slowly', () => {
  expect(smoothed([1, 1, 1])).toEqual([1, 1, 1]);
  const [, second, third] = smoothed([0, 1, 1]);
  expect(second).toBeCloseTo(0.4 / 0.64, 10);
  expect(third).toBeCloseTo(0.64 / 0.784, 10);
});

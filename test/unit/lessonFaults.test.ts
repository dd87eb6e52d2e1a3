/** Tests lesson 7: each run's right answer and all wrong causes, the numbers of the text, and what `webgrpo doctor` finds in the runs. */

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  agreeing,
  CAUSE_IDS,
  CAUSES,
  type Evidence,
  judge,
  NEXT,
  type Next,
  runsOf,
  TRUTHS,
} from '../../demo/lessons/7-faults/causes.ts';
import { CHART_NAMES, known, RECORDED, stepsOf, type StoredTries } from '../../demo/lessons/7-faults/runs.ts';
import { NUMBERS, STILLS } from '../../demo/lessons/7-faults/stills.ts';
import stored from '../../demo/lessons/7-faults/tries.json' with { type: 'json' };
import { FAULTS } from '../../demo/lessons/7-faults/twin.js';
import { computeAdvantages } from '../../src/index.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { diagnose } from '../../src/report/doctor.ts';
import { stub } from '../stub.ts';

const RUNS = runsOf(stub<StoredTries>(stored));
const SOUND = RUNS[0];
const html = readFileSync('demo/lessons/7-faults/index.html', 'utf8');

test('there are six runs, one of them sound, and nine causes', () => {
  expect(RUNS).toHaveLength(6);
  expect(TRUTHS.filter(({ cause }) => cause === 'none')).toHaveLength(1);
  expect(new Set(TRUTHS.map(({ cause }) => cause)).size).toBe(6);
  expect(CAUSE_IDS).toHaveLength(9);
  expect(Object.keys(NEXT)).toHaveLength(5);
});

test.each(RUNS)('run $number: the right answer earns three points', (run) => {
  const { cause, evidence, next } = TRUTHS[run.number];
  for (const at of evidence)
    expect(judge(run, SOUND, { cause, evidence: at, next }).map(({ ok }) => ok)).toEqual([true, true, true]);
});

test.each(RUNS)(
  'run $number: each of the eight wrong causes gets its own sentence, with a number of this run',
  (run) => {
    const { cause: right, evidence, next } = TRUTHS[run.number];
    const says = CAUSE_IDS.filter((cause) => cause !== right).map((cause) => {
      const [judged] = judge(run, SOUND, { cause, evidence: evidence[0], next });
      expect(judged.ok).toBe(false);
      expect(judged.says).toMatch(/^If .*\d/);
      return judged.says;
    });
    expect(says).toHaveLength(8);
    expect(new Set(says).size).toBe(8);
  },
);

test.each(RUNS)('run $number shows the sign of its cause, and of no other', (run) => {
  const holding = CAUSE_IDS.filter((cause) => CAUSES[cause].sign(run).holds);
  expect(holding).toEqual([TRUTHS[run.number].cause]);
});

test.each(RUNS)('run $number: wrong evidence and a wrong next check get a sentence of their own', (run) => {
  const { cause, evidence, next } = TRUTHS[run.number];
  for (const at of [...CHART_NAMES, 'tries'] as Evidence[]) {
    const [, judged] = judge(run, SOUND, { cause, evidence: at, next });
    expect(judged.ok).toBe(evidence.includes(at));
    expect(judged.says).toMatch(judged.ok ? /^Right: / : /^(In steps|The tries alone)/);
  }
  for (const other of Object.keys(NEXT) as Next[]) {
    const [, , judged] = judge(run, SOUND, { cause, evidence: evidence[0], next: other });
    expect(judged.ok).toBe(other === next);
    if (!judged.ok) expect(judged.says).toMatch(/^This would not tell much\. If .*\d/);
  }
});

test('only the run with mixed advantages pushes tries of a group that agrees', () => {
  expect(RUNS.map((run) => agreeing(run).pushed > 0)).toEqual(TRUTHS.map(({ cause }) => cause === 'mixed'));
});

test('every run has all charts, and two problems of eight tries at each step', () => {
  for (const [number, { curves, tries }] of RUNS.entries()) {
    expect(Object.keys(curves)).toEqual(CHART_NAMES);
    const steps = stepsOf({ curves });
    for (const curve of Object.values(curves)) expect(curve).toHaveLength(steps + 1);
    expect(tries).toHaveLength(steps);
    for (const step of tries) expect(step).toHaveLength(16);
    expect(known(RUNS[number], 'critic/score/mean')).toHaveLength(steps);
  }
});

test('what the tries earned is what the curves say, and their advantages are those of the library', () => {
  const { tries } = SOUND;
  for (const step of tries) {
    const rewards = step.map(({ score }) => score!);
    const groups = step.map(({ group }) => group);
    const masks = step.map(() => Uint8Array.of(1));
    const advantages = computeAdvantages('grpo', { rewards, groups, masks });
    step.forEach(({ advantage }, i) => expect(advantage ?? 0).toBeCloseTo(advantages[i][0], 2));
  }
});

test("doctor finds the runs' causes in their curves, except the one that no curve shows", () => {
  const config = parseTrainConfig(readFileSync('configs/gsm8k-tool.yaml', 'utf8'), {
    source: 'recipe',
    note: () => {},
  });
  const found = RUNS.map(({ curves }) => {
    const history = curves['critic/score/mean'].map((_, step) => {
      const entries = CHART_NAMES.flatMap((name) => (curves[name][step] === null ? [] : [[name, curves[name][step]]]));
      // A try is as long as the limit exactly if it was truncated there. So the recorded share of truncated tries is the metric that doctor
      // reads.
      const full = step === 0 ? {} : { 'response_length/clip_ratio': curves['stop/max_tokens'][step] ?? 0 };
      return { 'training/global_step': step, ...full, ...Object.fromEntries(entries) } as Metrics;
    });
    return diagnose({ history, config, samples: [] }).found.map(({ name }) => name);
  });
  expect(found).toEqual(DOCTOR);
});

/** Returns the causes that doctor finds in each run. */
const DOCTOR = [[], ['rate-too-high'], ['truncated'], [], ['held-out-falls'], ['probabilities-differ']];

test('every number in the text is the one of the recorded data', () => {
  const numbers = [...html.matchAll(/<data data-number="([\w-]+)">([^<]*)<\/data>/g)];
  expect(numbers.map(([, id, text]) => [id, text])).toEqual(numbers.map(([, id]) => [id, NUMBERS[id]]));
  expect(new Set(numbers.map(([, id]) => id))).toEqual(new Set(Object.keys(NUMBERS)));
});

test('the text has every still picture, and at most 900 words', () => {
  const all = (pattern: RegExp) => [...html.matchAll(pattern)].map(([, number]) => number);
  expect(all(/<!-- still ([\d.]+) -->/g)).toEqual(Object.keys(STILLS));
  expect(all(/data-figure="([\d.]+)"/g)).toEqual(Object.keys(STILLS));
  const [, prose] = /<main[^>]*>([^]*)<\/main>/.exec(html)!;
  expect(prose.replace(/<!--[^]*?-->|<[^>]*>/g, ' ').match(/[\w.]+/g)!.length).toBeLessThanOrEqual(900);
});

test('the program of the lesson makes the faults of the recorded runs', () => {
  expect(RECORDED.runs.map(({ fault }) => fault).toSorted()).toEqual(Object.keys(FAULTS).toSorted());
  const groups = [0, 0, 1, 1];
  const inputs = { rewards: [1, 0, 0, 0], groups, masks: groups.map(() => [1]) };
  const given = FAULTS['mixed'].advantage!(inputs, []).map((values) => Math.sign(values[0]));
  expect(given).toEqual([1, 0, -1, 0]); // the second group agrees, and one of its tries is pushed
});

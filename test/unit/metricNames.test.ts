/** Tests that docs/reference/metrics.md lists exactly the metrics whose names occur in the code. */

import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { METRICS } from '../../demo/lessons/3-run/stills.ts';
import { CHARTS as FAULT_CHARTS } from '../../demo/lessons/7-faults/runs.ts';
import { CHARTS } from '../../demo/views/charts/specs.ts';
import { bootstrapMetrics } from '../../src/grpo/bootstrap.ts';
import { rolloutCorrection } from '../../src/grpo/correction/correct.ts';
import { dataMetrics, validationMetrics } from '../../src/grpo/metrics.ts';
import { METRIC_DOCS, metricDoc } from '../../src/report/metricDocs.ts';
import type { Trajectory } from '../../src/rollout/types.ts';

const PAGE = 'docs/reference/metrics.md';

/** Returns the metric names in the first column of the page's tables. `/max` after `a/b/mean` stands for `a/b/max`. */
const named = readFileSync(PAGE, 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .flatMap((line) => {
    let last = '';
    return Array.from(line.split(' | ')[0].matchAll(/`([^`]+)`/g), ([, name]) => {
      last = name.startsWith('/') ? last.replace(/\/[^/]*$/, name) : name;
      return last;
    });
  });

/** Folders whose strings can be names of metrics, because they write to metrics.jsonl. */
const WRITERS = [
  ...['src/grpo', 'src/runs', 'src/extensions/client', 'src/extensions/learner', 'src/extensions/pipelines'],
  ...['src/extensions/rewards', 'src/extensions/rooms', 'src/extensions/sft', 'demo/training'],
];
const spaces = new Set(named.filter((name) => name.includes('/')).map((name) => name.split('/')[0]));

/** Returns the metric names that occur in the code. Each `${...}` is replaced by `*`. */
const written = WRITERS.flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.startsWith('config'))
    .flatMap((file) => {
      const code = readFileSync(`${folder}/${file}`, 'utf8')
        .replace(/\/\*[^]*?\*\//g, '')
        .replace(/^\s*\/\/.*$/gm, '');
      return Array.from(
        code.matchAll(/(['"`])([\w-]+\/(?:\$\{(?:[^{}]|\{[^}]*\})*\}|[\w@^/-])+)\1/g),
        ([, , name]) => name,
      )
        .filter((name) => spaces.has(name.split('/')[0]))
        .map((name) => name.replace(/(?:\$\{(?:[^{}]|\{[^}]*\})*\})+/g, '*'));
    }),
);

const trajectory = (responseIds: number[]): Trajectory => ({
  promptIds: Uint32Array.of(1),
  responseIds: Uint32Array.from(responseIds),
  mask: Uint8Array.from(responseIds, () => 1),
  logProbs: Float32Array.from(responseIds, () => -1),
  logMass: new Float32Array(responseIds.length),
  ...{ stopReason: 'completed', numTurns: 1, numToolCalls: 1, numToolErrors: 0, numToolOutputs: 1 },
});

/** Metric names that functions combine from parts at run time. */
const computed = (() => {
  const trajectories = [trajectory([1, 2]), trajectory([3])];
  const rewards = [1, 0].map((score) => ({ score, acc: score, extra: { format: score } }));
  const data = dataMetrics({
    ...{ trajectories, rewards, groups: [0, 0], maxResponseLength: 4, maxPromptLength: 4 },
    advantages: [[1, 1], [-1]],
  });
  const problem = { accs: [1, 0, 1, 1], preds: ['a', 'b', 'a', 'a'] };
  const correction = (rolloutIs: 'token' | 'sequence') =>
    rolloutCorrection(
      {
        ...{ rolloutIs, rolloutIsThreshold: '0.5_5', rolloutIsBatchNormalize: true },
        ...{ rolloutRs: 'token_k1,seq_mean_k3', rolloutRsThreshold: '0.5_2, 2' },
      },
      { oldLogp: [[-1, -2]], rolloutLogp: [[-1.1, -2]], masks: [[1, 1]] },
    ).metrics;
  return Object.keys({
    ...data,
    ...validationMetrics('set', [problem.accs, problem.accs.map(() => NaN)]),
    ...bootstrapMetrics('set', [problem]),
    ...correction('token'),
    ...correction('sequence'),
  });
})();

const escaped = (text: string) => text.replace(/[.^$+?()[\]{}|\\]/g, '\\$&');
const ofPage = (name: string) => new RegExp(`^${escaped(name).replace(/<\w+>/g, '.+')}$`);
/**
 * Returns a pattern that matches a metric name in the code, and longer names that start with it: `critic/score` matches
 * `critic/score/mean`.
 */
const ofCode = (name: string) => new RegExp(`^${escaped(name).replaceAll('*', '.+')}(?:/.+)?$`);

test('the code names its metrics where this test looks', () => {
  expect(written.length).toBeGreaterThan(90);
  expect(computed.length).toBeGreaterThan(90);
});

test('each metric of the code is on the page', () => {
  const patterns = named.map(ofPage);
  const isNamed = (name: string) =>
    patterns.some((pattern) => pattern.test(name.replaceAll('*', 'x'))) ||
    named.some((known) => ofCode(name).test(known));
  const names = [...written.filter((name) => !name.endsWith('/')), ...computed];
  expect([...new Set(names.filter((name) => !isNamed(name)))]).toEqual([]);
});

test('each metric of the page is in the code', () => {
  const patterns = written.filter((name) => !name.endsWith('/')).map(ofCode);
  const isWritten = (name: string) =>
    computed.some((known) => ofPage(name).test(known)) ||
    patterns.some((pattern) => pattern.test(name.replace(/<\w+>/g, 'x')));
  expect(named.filter((name) => !isWritten(name))).toEqual([]);
});

test.each(Object.entries(METRIC_DOCS))('the page says of %s what the charts say', (name, { means, healthy }) => {
  const row = readFileSync(PAGE, 'utf8')
    .split('\n')
    .find((line) => line.startsWith(`| \`${name}\` |`));
  const [, , what, , good] = row?.split('|').map((cell) => cell.trim()) ?? [];
  expect([what?.split(';')[0], good]).toEqual([means.split(';')[0], healthy]);
  expect(what?.startsWith(means)).toBe(true);
  expect(metricDoc(name.replace('<set>', 'gsm8k').replace('<n>', '1'))).toBe(METRIC_DOCS[name]);
});

test('every metric that the page, a report or a lesson draws has a text', () => {
  const charts = CHARTS.flatMap(({ hint }) => hint);
  expect(charts.every((hint) => hint.length > 20 && !/samples?\b|`/.test(hint))).toBe(true);
  const drawn = [...METRICS.map(({ metric }) => metric), ...Object.keys(FAULT_CHARTS)];
  expect(drawn.filter((name) => metricDoc(name) === undefined)).toEqual([]);
});

/** A metric that occurs only in the table of `webgrpo replay`, and a notification of MCP. */
const OTHERS = ['actor/eff_sample_size', 'tools/list_changed'];

test('each metric that README and the guides name is on the page', () => {
  const pages = ['docs/start', 'docs/guides'].flatMap((folder) =>
    readdirSync(folder, { encoding: 'utf8' }).map((file) => `${folder}/${file}`),
  );
  const [exact, patterns] = [new Set(named), named.map(ofPage)];
  const isKnown = (name: string) =>
    exact.has(name) || patterns.some((pattern) => pattern.test(name.replace(/<\w+>/g, 'x')));
  const isPart = (name: string) => named.some((known) => known.startsWith(name.replace(/[*.]+$/, '')));
  const unknown = ['README.md', ...pages].flatMap((page) =>
    Array.from(readFileSync(page, 'utf8').matchAll(/`([a-z][\w-]*\/[\w@^/<>*.-]+)`/g), ([, name]) => name)
      .filter((name) => spaces.has(name.split('/')[0]) && !/\.\w+$|<name>\.|^rollouts/.test(name))
      .filter((name) => !(/[*/._]$/.test(name) ? isPart(name) : isKnown(name) || OTHERS.includes(name)))
      .map((name) => `${page}: ${name}`),
  );
  expect(unknown).toEqual([]);
});

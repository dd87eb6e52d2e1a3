import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { profile } from '../../src/cli/commands/profile.ts';
import { PhaseClock, type SampleProfile, type StepProfile, stepProfile } from '../../src/runs/profileLog.ts';
import { histogram, type ProfileReport, profileReport } from '../../src/report/profile/profileReport.ts';
import {
  advice,
  completions,
  nearestRank,
  tailReport,
  timeline,
  timeShares,
} from '../../src/report/profile/profileStats.ts';
import { chromeTrace } from '../../src/report/profile/profileTrace.ts';
import { disk } from '../../src/cli/files.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { stub } from '../stub.ts';

const SETTINGS = { maxResponseLength: 256, maxNumSeqs: 8, toolTimeoutS: 10 };

const sample = (id: string, ms: number, more: Partial<SampleProfile> = {}): SampleProfile => ({
  id,
  problem: `p${id}`,
  stop: 'completed',
  turns: 1,
  tokens: 20,
  toolCalls: 0,
  score: 1,
  events: [
    ['generate', 0, 0, ms * 0.75],
    ['tool', 1, ms * 0.75, ms],
  ],
  ...more,
});
const step = (samples: SampleProfile[], number = 1): StepProfile => ({
  step: number,
  phases: [['generate', 0, 100]],
  samples,
});
const TEN = step(Array.from({ length: 10 }, (_, i) => sample(`0.${i}`, i < 8 ? 10 : 100, { tokens: i < 8 ? 20 : 90 })));

test('a step is logged and read back, with times since its start', async () => {
  const { folder } = await RunFolder.create(disk, join(mkdtempSync(join(tmpdir(), 'webgrpo-profile-')), 'run'), {});
  const clock = new PhaseClock();
  clock.mark('validate'); // before the first step
  clock.mark('generate');
  clock.mark('update');
  const phases = clock.take();
  expect(phases.phases.map(([name]) => name)).toEqual(['generate', 'update']);
  expect(phases.phases[0][1]).toBe(0);
  expect(phases.phases[1][1]).toBe(phases.phases[0][2]);
  const event = { kind: 'decode', turn: 1, start: phases.origin + 5, end: phases.origin + 7.25 } as const;
  const made = stub<Sample>({
    problem: { id: 'p' },
    group: 3,
    messages: [],
    reward: { score: 0.5, acc: 0 },
    events: [event],
    trajectory: { stopReason: 'completed', numTurns: 1, numToolCalls: 0, responseIds: new Uint32Array(4) },
  });
  for (const number of [10, 2]) await folder.writeProfile(stepProfile(number, [made, made], phases));
  const [first, last] = await folder.profiles();
  expect([first.step, last.step]).toEqual([2, 10]);
  expect(last.samples.map(({ id }) => id)).toEqual(['3.0', '3.1']);
  expect(last.samples[0]).toMatchObject({ problem: 'p', stop: 'completed', tokens: 4, score: 0.5 });
  expect(last.samples[0].events).toEqual([['decode', 1, 5, expect.closeTo(7.25, 0)]]);
  expect(readFileSync(folder.file('profile', 'step-2.jsonl'), 'utf8').split('\n')).toHaveLength(4);
});

test('shares include the wait for the step’s slowest sample, and count parts instead of their total', () => {
  const shares = timeShares([TEN]);
  // Times: 8 x 10 ms, each followed by 90 ms of waiting, then 2 x 100 ms. In all, 1000 ms.
  expect(shares.wait).toBeCloseTo(0.72, 9);
  expect(shares.tool).toBeCloseTo((8 * 2.5 + 2 * 25) / 1000, 9);
  expect(Object.values(shares).reduce((a, b) => a + b, 0)).toBeCloseTo(1, 9);
  const parts = sample('0.0', 0, {
    events: [
      ['generate', 0, 0, 9],
      ['queue', 0, 0, 4],
      ['decode', 0, 4, 9],
    ],
  });
  expect(timeline(parts, 9).map(([kind]) => kind)).toEqual(['queue', 'decode']);
  expect(timeShares([])).toEqual({});
});

test('sampling is a separate event if the GPU times it, in the report and in the trace', () => {
  const events: SampleProfile['events'] = [
    ['generate', 0, 0, 10],
    ['decode', 0, 0, 8, 4],
    ['sample', 0, 8, 10, 1],
  ];
  const timed = step([sample('0.0', 10, { events })]);
  expect(timeShares([timed])).toEqual({ decode: 0.8, sample: 0.2 });
  const report = profileReport('run', [timed], SETTINGS);
  expect(report.samplingTimed).toBe(true);
  expect(report.slowest[0].events).toContainEqual(['sample', 0, 8, 10, 1]);
  expect(chromeTrace([timed]).traceEvents.find(({ name }) => name === 'sample')).toMatchObject({ ts: 8000, dur: 2000 });
  expect(profileReport('run', [TEN], SETTINGS).samplingTimed).toBe(false);
});

test('the tail is the time after four fifths of the samples are done', () => {
  expect(completions(TEN)).toEqual([...Array<number>(8).fill(10), 100, 100]);
  expect(tailReport(TEN)).toMatchObject({
    share: 0.9,
    tailMs: 90,
    tokens: { tail: 90, others: 20 },
    stops: { completed: 2 },
  });
  expect(tailReport(step([sample('0.0', 1)]))).toBeUndefined();
  expect([nearestRank([3, 1, 2], 0.5), nearestRank([1, 2, 3, 4], 0.75), nearestRank([], 0.5)]).toEqual([2, 3, NaN]);
});

test('advice names the setting and a value', () => {
  const flat = (n: number, more: Partial<SampleProfile>) =>
    step(Array.from({ length: n }, (_, i) => sample(`0.${i}`, 10, more)));
  expect(advice([], SETTINGS)).toEqual([]);
  expect(advice([TEN], SETTINGS)).toContain(
    'The last fifth of the samples took 90% of generation, with 90 tokens against 20: a lower data.maxResponseLength shortens it.',
  );
  expect(advice([flat(20, {})], SETTINGS)).toEqual([
    '99% of completed samples have at most 20 tokens: data.maxResponseLength 32 instead of 256 would do.',
  ]);
  expect(advice([flat(20, { stop: 'max_tokens' })], SETTINGS)[0]).toMatch(
    /^100% of the samples were cut at .* raise it/,
  );
  const queued = flat(20, {
    tokens: 250,
    events: [
      ['queue', 0, 0, 5],
      ['decode', 0, 5, 10],
    ],
  });
  expect(advice([queued], SETTINGS)).toEqual([
    "50% of the samples' time was waiting for a slot: raise rollout.maxNumSeqs above 8.",
  ]);
  const tools = flat(20, {
    tokens: 250,
    events: [
      ['tool', 1, 0, 1000],
      ['decode', 1, 1000, 1500],
    ],
  });
  expect(advice([tools], SETTINGS)[0]).toMatch(
    /^67% of the samples' time was tools \(95% answered within 1\.0 s\); .* 2\.0 would/,
  );
});

test('the report has single steps and all of them, and its histograms count every sample', () => {
  const cut = sample('1.0', 30, { stop: 'max_tokens', tokens: 120, turns: 3 });
  const report = profileReport('run', [TEN, { ...step([cut, ...TEN.samples], 2), phases: [] }], SETTINGS);
  expect(report).toMatchObject({ steps: 2, samples: 21, stops: { completed: 20, max_tokens: 1 } });
  expect(report.shares.map(({ label }) => label)).toEqual(['step 1', 'step 2', 'all']);
  expect(report.phases).toEqual([
    { step: 1, spent: { generate: 100 } },
    { step: 2, spent: {} },
  ]);
  expect(report.completions[1].times).toEqual([...Array<number>(8).fill(10), 30, 100, 100]);
  expect(report.turns).toEqual({ low: 1, width: 1, counts: [20, 0, 1] });
  expect(report.slowest).toHaveLength(12);
  expect(report.slowest[4]).toMatchObject({ step: 2, id: '1.0', end: 30 });
  expect(JSON.stringify(report)).not.toContain('null');
  const many = Array.from({ length: 15 }, (_, i) => step(TEN.samples, i + 1));
  expect(profileReport('run', many, SETTINGS).completions.map((c) => c.step)).toEqual([1, 4, 7, 9, 12, 15]);
});

test('a histogram has at most 40 bins of whole width, the first value in the first and the last in the last', () => {
  expect(histogram([])).toEqual({ low: 0, width: 1, counts: [] });
  expect(histogram([7])).toEqual({ low: 7, width: 1, counts: [1] });
  const { low, width, counts } = histogram([10, 11, 12, 210]);
  expect([low, width, counts.length]).toEqual([10, 6, 34]);
  expect([counts[0], counts[33], counts.reduce((a, b) => a + b)]).toEqual([3, 1, 4]);
});

test('the trace has a process a step and a thread a sample, steps one after the other', () => {
  const { traceEvents } = chromeTrace([TEN, { ...TEN, step: 2 }]);
  const spans = traceEvents.filter(({ ph }) => ph === 'X');
  expect(new Set(spans.map(({ pid }) => pid))).toEqual(new Set([1, 2]));
  expect(new Set(spans.map(({ tid }) => tid)).size).toBe(11);
  expect(spans.every(({ ts, dur }) => Number.isInteger(ts) && Number.isInteger(dur) && dur! >= 0)).toBe(true);
  const starts = (pid: number) => Math.min(...spans.filter((span) => span.pid === pid).map(({ ts }) => ts!));
  expect([starts(1), starts(2)]).toEqual([0, 100_000]);
});

test('recording a step of 128 samples reads each field of an event once and writes a short line of each', () => {
  let reads = 0;
  const counted: ProxyHandler<object> = { get: (event, key) => (reads++, Reflect.get(event, key) as unknown) };
  const events = Array.from(
    { length: 20 },
    (_, i) => new Proxy({ kind: 'decode', turn: i, start: i, end: i + 1 }, counted),
  );
  const made = stub<Sample>({
    problem: { id: 'p' },
    group: 0,
    messages: [],
    reward: { score: 0, acc: 0 },
    events,
    trajectory: { stopReason: 'completed', numTurns: 1, numToolCalls: 0, responseIds: new Uint32Array(4) },
  });
  const text = JSON.stringify(stepProfile(1, Array<Sample>(128).fill(made), { origin: 0, phases: [] }));
  const spans = 128 * events.length;
  expect(reads).toBe(5 * spans); // kind, turn, start, end and gpuMs
  expect(text.length / spans).toBeLessThan(30);
});

test('the command writes page and trace of a run folder', async () => {
  const config = { data: { maxResponseLength: 256 }, rollout: { maxNumSeqs: 8, multiTurn: { toolTimeoutS: 10 } } };
  const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-profile-')), 'run');
  const { folder } = await RunFolder.create(disk, path, config);
  const io = { json: true, result: vi.fn(), text: vi.fn() };
  const args = { positionals: [path], overrides: [], flags: {} };
  await expect(profile.run(args, io)).rejects.toThrow(
    / has no profile\/step-N\.jsonl that can be read. Train with trainer\.profile on /,
  );
  await folder.writeProfile(TEN);
  await profile.run(args, io);
  expect(readFileSync(folder.file('profile.html'), 'utf8')).toContain('"steps":1,"samples":10');
  const data = JSON.parse(readFileSync(folder.file('profile.json'), 'utf8')) as ProfileReport;
  expect(data).toEqual(profileReport(path, [TEN], SETTINGS));
  expect(JSON.parse(readFileSync(folder.file('trace.json'), 'utf8'))).toHaveProperty('traceEvents');
  expect(io.result.mock.calls[0][0]).toMatchObject({
    page: folder.file('profile.html'),
    tails: [{ step: 1, share: 0.9 }],
  });
});

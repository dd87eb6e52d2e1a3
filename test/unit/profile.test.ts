import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { profile } from '../../src/cli/commands/profile.ts';
import {
  PhaseClock,
  readProfiles,
  type SampleProfile,
  type StepProfile,
  stepProfile,
  writeStepProfile,
} from '../../src/report/profileLog.ts';
import { profilePage } from '../../src/report/profilePage.ts';
import { advice, completions, nearestRank, tailReport, timeline, timeShares } from '../../src/report/profileStats.ts';
import { chromeTrace } from '../../src/report/profileTrace.ts';
import { RunFolder } from '../../src/cli/run/runFolder.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';

const SETTINGS = { maxResponseLength: 256, maxSlots: 8, toolTimeoutS: 10 };

const sample = (id: string, ms: number, more: Partial<SampleProfile> = {}): SampleProfile => ({
  ...{ id, problem: `p${id}`, stop: 'completed', turns: 1, tokens: 20, toolCalls: 0, score: 1 },
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

test('a step is logged and read back, times since the step began', async () => {
  const { folder } = await RunFolder.create(join(mkdtempSync(join(tmpdir(), 'webgrpo-profile-')), 'run'), {});
  const clock = new PhaseClock();
  clock.mark('validate'); // before the first step
  clock.mark('generate');
  clock.mark('update');
  const phases = clock.take();
  expect(phases.phases.map(([name]) => name)).toEqual(['generate', 'update']);
  expect(phases.phases[0][1]).toBe(0);
  expect(phases.phases[1][1]).toBe(phases.phases[0][2]);
  const event = { kind: 'decode', turn: 1, start: phases.origin + 5, end: phases.origin + 7.25 } as const;
  const made = {
    ...{ problem: { id: 'p' }, group: 3, messages: [], reward: { score: 0.5, acc: 0 }, events: [event] },
    trajectory: { stopReason: 'completed', numTurns: 1, numToolCalls: 0, responseIds: new Uint32Array(4) },
  } as unknown as Sample;
  for (const number of [10, 2]) await writeStepProfile(folder, stepProfile(number, [made, made], phases));
  const [first, last] = await readProfiles(folder);
  expect([first.step, last.step]).toEqual([2, 10]);
  expect(last.samples.map(({ id }) => id)).toEqual(['3.0', '3.1']);
  expect(last.samples[0]).toMatchObject({ problem: 'p', stop: 'completed', tokens: 4, score: 0.5 });
  expect(last.samples[0].events).toEqual([['decode', 1, 5, expect.closeTo(7.25, 0)]]);
  expect(readFileSync(folder.file('profile', 'step-2.jsonl'), 'utf8').split('\n')).toHaveLength(4);
});

test('shares count the wait for the step’s slowest, and parts instead of the whole', () => {
  const shares = timeShares([TEN]);
  // 8 x 10 ms then 90 ms of waiting, 2 x 100 ms: 1000 ms in all.
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

test('draws are an event of their own where the GPU times them, on the page as in the trace; else it says they are part', () => {
  const events: SampleProfile['events'] = [
    ['generate', 0, 0, 10],
    ['decode', 0, 0, 8, 4],
    ['sample', 0, 8, 10, 1],
  ];
  const timed = step([sample('0.0', 10, { events })]);
  expect(timeShares([timed])).toEqual({ decode: 0.8, sample: 0.2 });
  expect(profilePage('run', [timed], SETTINGS)).toContain('<title>sample, turn 0: 2 ms, GPU 1 ms</title>');
  expect(chromeTrace([timed]).traceEvents.find(({ name }) => name === 'sample')).toMatchObject({ ts: 8000, dur: 2000 });
  expect(profilePage('run', [TEN], SETTINGS)).toContain('Drawing tokens (sample) is part of decode');
});

test('the tail is what passes after four fifths are done', () => {
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
    "50% of the samples' time was waiting for a slot: raise rollout.maxSlots above 8.",
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

test('the page stands alone and cannot be broken out of', () => {
  const hostile = step([sample('<b>', 10, { stop: '</svg><script>' }), ...TEN.samples], 2);
  const html = profilePage('runs/<i>', [TEN, hostile], SETTINGS);
  expect(html).not.toMatch(/<script|<i>|<b>:|(src|href)=|https?:/);
  expect(html).toContain('2 steps, 21 samples.');
  for (const kind of ['tool', 'wait']) expect(html).toContain(`<title>${kind}`);
  expect(html).not.toContain('NaN');
  expect(profilePage('one', [step([sample('0.0', 1)])], SETTINGS)).not.toContain('NaN');
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

test('recording a step of 128 samples costs milliseconds', () => {
  const events = Array.from({ length: 20 }, (_, i) => ({ kind: 'decode' as const, turn: i, start: i, end: i + 1 }));
  const made = {
    ...{ problem: { id: 'p' }, group: 0, messages: [], reward: { score: 0, acc: 0 }, events },
    trajectory: { stopReason: 'completed', numTurns: 1, numToolCalls: 0, responseIds: new Uint32Array(4) },
  } as unknown as Sample;
  const rounds = Array.from({ length: 5 }, () => {
    const before = process.cpuUsage();
    JSON.stringify(stepProfile(1, Array<Sample>(128).fill(made), { origin: 0, phases: [] }));
    return process.cpuUsage(before).user / 1000;
  });
  // Milliseconds of processor time; a step of the default recipe takes seconds.
  expect(Math.min(...rounds)).toBeLessThan(40);
});

test('the command writes page and trace of a run folder', async () => {
  const config = { data: { maxResponseLength: 256 }, rollout: { maxSlots: 8, multiTurn: { toolTimeoutS: 10 } } };
  const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-profile-')), 'run');
  const { folder } = await RunFolder.create(path, config);
  const io = { json: true, result: vi.fn(), text: vi.fn() };
  const args = { positionals: [path], overrides: [], flags: {} };
  await expect(profile.run(args, io)).rejects.toThrow(
    / has no profile\/step-N\.jsonl; train with trainer\.profile on /,
  );
  await writeStepProfile(folder, TEN);
  await profile.run(args, io);
  expect(readFileSync(folder.file('profile.html'), 'utf8')).toContain('1 steps, 10 samples.');
  expect(JSON.parse(readFileSync(folder.file('trace.json'), 'utf8'))).toHaveProperty('traceEvents');
  expect(io.result.mock.calls[0][0]).toMatchObject({
    page: folder.file('profile.html'),
    tails: [{ step: 1, share: 0.9 }],
  });
});

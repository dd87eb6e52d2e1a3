import { expect, test } from 'vitest';
import { staleShare } from '../../src/grpo/generate/overSampling.ts';
import { firstDone, type PendingGroup, PendingGroups } from '../../src/grpo/generate/pendingGroups.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { RolloutEngine } from '../../src/rollout/types.ts';

interface Fake extends PendingGroup {
  name: number;
  finish: () => void;
  fail: (error: Error) => void;
  aborted: boolean;
}

function fakeGroup(name: number): Fake {
  let [finish, fail] = [() => {}, (_: Error) => {}];
  const samples = new Promise<Sample[]>((resolve, reject) => {
    finish = () => resolve([]);
    fail = reject;
  });
  const group: Fake = {
    name,
    problem: name,
    samples,
    finish,
    fail,
    aborted: false,
    seconds: { tools: 0, reward: 0 },
    abort: () => {},
  };
  group.abort = () => {
    group.aborted = true;
    finish();
  };
  return group;
}

function fakeEngine() {
  const calls: string[] = [];
  const engine = {
    pause: async () => void calls.push('pause'),
    resume: () => void calls.push('resume'),
  } as unknown as RolloutEngine;
  return { calls, engine };
}

test('the first complete are taken, in the order they were started', async () => {
  const groups = [0, 1, 2, 3].map(fakeGroup);
  const taken = firstDone(groups, 2);
  groups[3].finish();
  groups[1].finish();
  const { done, rest } = await taken;
  expect(done).toEqual([groups[1], groups[3]]);
  expect(rest).toEqual([groups[0], groups[2]]);
});

test('a group that fails fails the step', async () => {
  const groups = [0, 1].map(fakeGroup);
  const taken = firstDone(groups, 2);
  groups[1].fail(new Error('device lost'));
  await expect(taken).rejects.toThrow('device lost');
});

test.each([true, false])(
  'a group that fails: the others have ended before the step rejects, partial %s',
  async (partial) => {
    const pending = new PendingGroups(fakeEngine().engine, { rate: 1, partial });
    const groups = [0, 1, 2, 3].map(fakeGroup);
    const started = groups.values();
    const taken = pending.takeFirst(2, () => Promise.resolve([...started]));
    await Promise.resolve();
    groups[2].fail(new Error('the fault'));
    await expect(taken).rejects.toThrow('the fault');
    expect(groups.map(({ aborted }) => aborted)).toEqual([true, true, true, true]);
    expect(pending.groups.map(({ problem }) => problem)).toEqual([]);
  },
);

test('partial rollout: what a step leaves stands still, and the next starts only what is missing', async () => {
  const { calls, engine } = fakeEngine();
  const pending = new PendingGroups(engine, { rate: 0.5, partial: true });
  const all: Fake[] = [];
  const start = (missing: number) => {
    const begun = Array.from({ length: missing }, (_, i) => fakeGroup(all.length + i));
    all.push(...begun);
    return Promise.resolve(begun);
  };
  const first = pending.takeFirst(4, start);
  await Promise.resolve();
  for (const i of [5, 0, 3, 2]) all[i].finish();
  expect(await first).toEqual([0, 2, 3, 5].map((i) => all[i]));
  expect(pending.groups.map((g) => g.problem)).toEqual([1, 4]);
  expect(calls).toEqual(['pause', 'resume', 'pause']);
  const second = pending.takeFirst(4, start);
  await Promise.resolve();
  expect(all.length).toBe(10); // 6 wanted, 2 carried over
  for (const i of [1, 4, 9, 7]) all[i].finish();
  expect(await second).toEqual([1, 4, 7, 9].map((i) => all[i]));
  expect(all.some((g) => g.aborted)).toBe(false);
  await pending.close();
  expect([6, 8].map((i) => all[i].aborted)).toEqual([true, true]);
  expect(pending.groups.map((g) => g.problem)).toEqual([]);
});

test('without it, the rest is aborted and gone before the update', async () => {
  const { calls, engine } = fakeEngine();
  const pending = new PendingGroups(engine, { rate: 1, partial: false });
  const groups = [0, 1].map(fakeGroup);
  const started = groups.values();
  const taken = pending.takeFirst(1, () => Promise.resolve([...started]));
  groups[1].finish();
  expect(await taken).toEqual([groups[1]]);
  expect(groups.map((g) => g.aborted)).toEqual([true, false]);
  expect([pending.groups.map((g) => g.problem), calls]).toEqual([[], ['pause', 'resume']]);
});

test('the share of trained tokens that older weights drew', () => {
  const sample = (mask: number[], versions: number[]) =>
    ({ trajectory: { mask: Uint8Array.from(mask), weightVersions: Uint32Array.from(versions) } }) as unknown as Sample;
  expect(staleShare([sample([1, 1, 0, 1], [0, 1, 0, 2]), sample([1], [2])])).toBe(0.5);
  expect(staleShare([sample([1], [0])])).toBe(0);
  expect(staleShare([])).toBe(0);
});

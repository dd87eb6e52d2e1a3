import { expect, test } from 'vitest';
import { firstDone, type GroupUnderWay, OverSampler, staleShare } from '../../src/grpo/generate/overSampling.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { RolloutEngine } from '../../src/rollout/types.ts';

interface Fake extends GroupUnderWay {
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

test('partial rollout: what a step leaves stands still, and the next starts only what is missing', async () => {
  const { calls, engine } = fakeEngine();
  const sampler = new OverSampler(engine, { rate: 0.5, partial: true });
  const all: Fake[] = [];
  const start = (count: number) => {
    const made = Array.from({ length: count }, (_, i) => fakeGroup(all.length + i));
    all.push(...made);
    return made;
  };
  const first = sampler.take(4, start);
  await Promise.resolve();
  for (const i of [5, 0, 3, 2]) all[i].finish();
  expect(await first).toEqual([0, 2, 3, 5].map((i) => all[i]));
  expect(sampler.carried).toEqual([1, 4]);
  expect(calls).toEqual(['resume', 'pause']);
  const second = sampler.take(4, start);
  await Promise.resolve();
  expect(all.length).toBe(10); // 6 wanted, 2 carried over
  for (const i of [1, 4, 9, 7]) all[i].finish();
  expect(await second).toEqual([1, 4, 7, 9].map((i) => all[i]));
  expect(all.some((g) => g.aborted)).toBe(false);
  await sampler.close();
  expect([6, 8].map((i) => all[i].aborted)).toEqual([true, true]);
  expect(sampler.carried).toEqual([]);
});

test('without it, the rest is aborted and gone before the update', async () => {
  const { calls, engine } = fakeEngine();
  const sampler = new OverSampler(engine, { rate: 1, partial: false });
  const groups = [0, 1].map(fakeGroup);
  const taken = sampler.take(1, () => groups);
  groups[1].finish();
  expect(await taken).toEqual([groups[1]]);
  expect(groups.map((g) => g.aborted)).toEqual([true, false]);
  expect([sampler.carried, calls]).toEqual([[], ['resume']]);
});

test('the share of trained tokens that older weights drew', () => {
  const sample = (mask: number[], versions: number[]) =>
    ({ trajectory: { mask: Uint8Array.from(mask), weightVersions: Uint32Array.from(versions) } }) as unknown as Sample;
  expect(staleShare([sample([1, 1, 0, 1], [0, 1, 0, 2]), sample([1], [2])])).toBe(0.5);
  expect(staleShare([sample([1], [0])])).toBe(0);
  expect(staleShare([])).toBe(0);
});

import { expect, test } from 'vitest';
import type { SourceOptions } from '../../src/grpo/generate/samples.ts';
import { firstDone, GroupsInFlight, type RunningGroup } from '../../src/extensions/pipelines/groupsInFlight.ts';
import { staleShare } from '../../src/extensions/pipelines/overSampling.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { RolloutEngine } from '../../src/rollout/types.ts';
import { stub } from '../stub.ts';

interface Fake extends RunningGroup {
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
    origin: { number: name, step: 1, problem: { id: `${name}`, messages: [], answer: '' } },
    records: [],
    samples,
    finish,
    fail,
    aborted: false,
    outside: { tools: [], reward: [] },
    abort: () => {},
  };
  group.abort = () => {
    group.aborted = true;
    finish();
  };
  return group;
}

function fakeRun() {
  const calls: string[] = [];
  const rollout = stub<RolloutEngine>({
    pause: async () => void calls.push('pause'),
    resume: () => void calls.push('resume'),
  });
  return { calls, running: new GroupsInFlight(stub<SourceOptions>({ engine: { rollout } })) };
}

const numbersOf = ({ all }: GroupsInFlight) => all.map(({ origin }) => origin.number);

test('the first complete groups are taken, in the order in which they started', async () => {
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

test('when a group fails, the others have ended before the step rejects', async () => {
  const { running } = fakeRun();
  const groups = [0, 1, 2, 3].map(fakeGroup);
  const taken = running.takeFirst(2, 4, async () => running.add(groups));
  await Promise.resolve();
  groups[2].fail(new Error('the fault'));
  await expect(taken).rejects.toThrow('the fault');
  expect(groups.map(({ aborted }) => aborted)).toEqual([true, true, true, true]);
  expect(numbersOf(running)).toEqual([]);
});

test('groups that a step does not take are kept, and the next step starts only the missing ones', async () => {
  const { calls, running } = fakeRun();
  const all: Fake[] = [];
  const start = async (missing: number) => {
    const begun = Array.from({ length: missing }, (_, i) => fakeGroup(all.length + i));
    all.push(...begun);
    running.add(begun);
  };
  const first = running.takeFirst(4, 6, start);
  await Promise.resolve();
  for (const i of [5, 0, 3, 2]) all[i].finish();
  expect(await first).toEqual([0, 2, 3, 5].map((i) => all[i]));
  expect(numbersOf(running)).toEqual([1, 4]);
  expect(calls).toEqual(['pause', 'resume']);
  const second = running.takeFirst(4, 6, start);
  await Promise.resolve();
  expect(all.length).toBe(10); // 6 needed, 2 carried over
  for (const i of [1, 4, 9, 7]) all[i].finish();
  expect(await second).toEqual([1, 4, 7, 9].map((i) => all[i]));
  expect(all.some((g) => g.aborted)).toBe(false);
  await running.close();
  expect([6, 8].map((i) => all[i].aborted)).toEqual([true, true]);
  expect(numbersOf(running)).toEqual([]);
});

test('the share of trained tokens that older weights sampled', () => {
  const sample = (mask: number[], versions: number[]) =>
    stub<Sample>({ trajectory: { mask: Uint8Array.from(mask), weightVersions: Uint32Array.from(versions) } });
  expect(staleShare([sample([1, 1, 0, 1], [0, 1, 0, 2]), sample([1], [2])])).toBe(0.5);
  expect(staleShare([sample([1], [0])])).toBe(0);
  expect(staleShare([])).toBe(0);
});

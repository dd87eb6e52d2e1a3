/** How far the scheduler goes before it looks at what the device did. */
import { expect, test } from 'vitest';
import { Pace } from '../../src/rollout/server/pace.ts';

const LIVE = 100;

/** A pace that has seen steps of `stepMs` for 100 sequences, waits of `hostMs`, and `ends` sequences that end in a step. */
function seen({ stepMs, hostMs, ends }: { stepMs: number; hostMs: number; ends: number }): Pace {
  const pace = new Pace();
  for (let i = 0; i < 200; i++) {
    pace.learnTime(stepMs, 1);
    pace.learnWait(hostMs, true);
    pace.learnEnds(ends, LIVE, 1);
  }
  return pace;
}

const left = (n: number, tokens = 1000) => Array.from({ length: n }, () => tokens);

test('the longer the device waits for the host, the more steps it gets at once, as far as few rows are wasted', () => {
  const steps = (hostMs: number) => seen({ stepMs: 10, hostMs, ends: 0.9 }).steps(left(LIVE));
  expect(steps(0)).toBe(3); // sqrt(2 x 0.5 / (10 x 0.009)) = 3.3
  expect(steps(2)).toBe(7); // sqrt(2 x 2.5 / (10 x 0.009)) = 7.5
  expect(steps(100)).toBe(9); // 1 + 2 x 0.04 / 0.009 = 9.9
});

test('a few sequences at the end of a step may waste a larger share of themselves', () => {
  const pace = seen({ stepMs: 1, hostMs: 2, ends: 10 });
  expect(pace.steps(left(LIVE))).toBe(1);
  expect(pace.steps(left(5))).toBe(7); // sqrt(2 x 2.5 / (1 x 0.1)) = 7.07
  expect(pace.steps(left(5, 2))).toBe(2); // not for ends that are foreseen
});

test('running ahead pays where the wait costs more than rows decoded for nothing, the half of it beside a software adapter', () => {
  const pays = (stepMs: number, software = false) => seen({ stepMs, hostMs: 3, ends: 10 }).paysToRunAhead(software);
  expect([pays(2), pays(50), pays(70)]).toEqual([true, true, false]); // 3.5 against 0.06 x stepMs
  expect([pays(30, true), pays(50, true)]).toEqual([true, false]); // 2 against the same
});

test('with a pass in the air a chunk is as long as the host needs, and no longer', () => {
  expect(seen({ stepMs: 1, hostMs: 2, ends: 0.1 }).steps(left(LIVE), true)).toBe(3);
  expect(seen({ stepMs: 10, hostMs: 2, ends: 0.1 }).steps(left(LIVE), true)).toBe(1);
  expect(seen({ stepMs: 1, hostMs: 20, ends: 0.9 }).steps(left(LIVE), true)).toBe(3); // (2 x 0.04 / 0.009 + 1) / 3 = 3.3
});

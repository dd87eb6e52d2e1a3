import { expect, test } from 'vitest';
import { Leases } from '../../src/extensions/rooms/leases.ts';

const limits = { silentMs: 10, deadlineMs: 100, maxHeld: 2 };
const offered = (...uids: string[]): Leases => {
  const leases = new Leases(limits);
  for (const uid of uids) leases.offer(uid, `prompt ${uid}`);
  return leases;
};

test('groups go to one worker each, in order, and no more than its limit to one', () => {
  const leases = offered('a', 'b', 'c', 'd');
  expect(['x', 'y', 'x', 'x', 'y'].map((worker) => leases.take(worker, 0))).toEqual([
    'prompt a',
    'prompt b',
    'prompt c',
    undefined,
    'prompt d',
  ]);
  leases.want('a', false); // complete, and being checked
  expect(leases.heldBy('x', 0)).toBe(1);
  expect(leases.take('x', 0)).toBeUndefined();
  leases.want('a', true); // one of its samples was rejected
  leases.leave('x');
  expect([leases.take('z', 0), leases.take('z', 0)]).toEqual(['prompt a', 'prompt c']);
});

test('a worker keeps a group by signs of life, until its deadline', () => {
  const leases = offered('a');
  expect(leases.take('x', 0)).toBe('prompt a');
  for (let now = 10; now <= 100; now += 10) {
    expect(leases.take('y', now)).toBeUndefined();
    leases.heard('x', ['a'], now);
    leases.heard('y', ['a'], now); // nobody else can keep or shorten it
  }
  expect(leases.take('y', 101)).toBe('prompt a');
  expect(leases.end('a', 101)).toBe(true);
  expect(leases.take('z', 300)).toBeUndefined();
});

test('a silent worker loses its groups, and one that sends signs of life for others as well', () => {
  const leases = offered('a', 'b');
  expect([leases.take('x', 0), leases.take('x', 0)]).toEqual(['prompt a', 'prompt b']);
  leases.heard('x', ['b', 'unknown'], 9);
  expect([leases.take('y', 11), leases.take('y', 11)]).toEqual(['prompt a', undefined]);
});

test('a worker whose time is over gets the group again only if nobody else can', () => {
  const leases = offered('a');
  expect(leases.take('x', 0)).toBe('prompt a');
  expect(leases.take('x', 50, ['x', 'y'])).toBeUndefined();
  expect(leases.take('x', 50, ['x'])).toBe('prompt a');
  expect(leases.take('y', 70, ['x', 'y'])).toBe('prompt a');
  expect(leases.take('x', 90, ['x', 'y'])).toBe('prompt a'); // both workers had taken it
});

test('a group that is offered again has its new prompt, for everyone', () => {
  const leases = offered('a', 'b');
  expect(leases.take('x', 0)).toBe('prompt a');
  leases.offer('a', 'newer');
  expect(leases.heldBy('x', 0)).toBe(0);
  expect(leases.take('x', 0, ['x', 'y'])).toBe('newer');
  expect(leases.end('b', 0)).toBe(false);
});

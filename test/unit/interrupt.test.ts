/** Signals: the first asks for a stop that saves, a second ends the process, and one that comes twice by npm is one. */

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

let now: number;
let onInterrupt: (stop: () => void) => () => void;
const exit = vi.spyOn(process, 'exit');

beforeEach(async () => {
  now = 1000;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  exit.mockReset().mockImplementation(() => undefined as never);
  vi.resetModules();
  ({ onInterrupt } = await import('../../src/cli/process/interrupt.ts'));
});

afterEach(() => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeAllListeners(signal);
});

test.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const)('%s stops the run, and again ends the process with %i', (signal, code) => {
  const stop = vi.fn();
  onInterrupt(stop);
  process.emit(signal);
  now += 50; // npm hands on what the terminal has sent already
  process.emit(signal);
  expect([stop.mock.calls.length, exit.mock.calls]).toEqual([1, []]);
  now += 1000;
  process.emit(signal);
  expect([stop.mock.calls.length, exit.mock.calls]).toEqual([1, [[code]]]);
});

test('while nothing is worth saving the first ends the process', () => {
  const remove = onInterrupt(vi.fn());
  remove();
  process.emit('SIGTERM');
  expect(exit.mock.calls).toEqual([[143]]);
});

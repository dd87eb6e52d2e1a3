/** Scripted engines over the gsm8k tokenizer, and what two runs are compared by. */

import { afterEach, beforeEach, type MockInstance, vi } from 'vitest';
import type { Metrics } from '../src/grpo/metrics.ts';
import type { Checkpoint } from '../src/grpo/types.ts';
import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import { takeTurn } from '../src/rollout/agent/yield.ts';
import { buildGsm8kTokenizer } from '../src/tasks/gsm8k/tokenizer.ts';
import { ScriptedEngine, type ScriptedOptions } from './scriptedEngine.ts';

const files = buildGsm8kTokenizer();
const tokenizer = new ChatTokenizer(files.tokenizer, files.config);

export const scriptedEngine = (more: Partial<ScriptedOptions> = {}) => new ScriptedEngine({ tokenizer, ...more });

/** As a file gives it back. */
export const readBack = (checkpoint: Checkpoint): Checkpoint => ({
  ...checkpoint,
  state: JSON.parse(JSON.stringify(checkpoint.state)) as Checkpoint['state'],
});

const isTime = (name: string) => name.startsWith('timing') || name.startsWith('perf/');
export const withoutTimes = (history: readonly Metrics[]): Metrics[] =>
  history.map((metrics) => Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTime(name))));

/**
 * Call once at the top of a test file. Samples start in turns of 15 ms of work (`takeTurn`), and on the scripted engine that decides which
 * groups end first. Under this clock no turn is over, so that two runs are equal however busy the machine is.
 */
export function useSteadyClock(): void {
  let now = 0;
  let clock: MockInstance<() => number> | undefined;
  beforeEach(async () => {
    clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += 1e-6));
    await takeTurn(); // the turn before it belongs to another clock
  });
  afterEach(() => clock?.mockRestore());
}

/** Scripted engines with the gsm8k tokenizer, and helpers to compare two runs. */

import { onTestFinished, vi } from 'vitest';
import type { Metrics } from '../src/grpo/metrics.ts';
import type { Checkpoint } from '../src/grpo/types.ts';
import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import { gsm8kTokenizer } from './gsm8kTokenizer.ts';
import { ScriptedEngine, type ScriptedOptions } from './scriptedEngine.ts';
import { throughJson } from './json.ts';

const files = gsm8kTokenizer;
const tokenizer = new ChatTokenizer(files.tokenizer, files.config);

export const scriptedEngine = (more: Partial<ScriptedOptions> = {}) => new ScriptedEngine({ tokenizer, ...more });

/** Returns the checkpoint as it would be after writing it to a file and reading it. */
export const readBack = (checkpoint: Checkpoint): Checkpoint => ({
  ...checkpoint,
  state: throughJson(checkpoint.state),
});

const isTime = (name: string) => name.startsWith('timing') || name.startsWith('perf/');
export const withoutTimes = (history: readonly Metrics[]): Metrics[] =>
  history.map((metrics) => Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTime(name))));

/**
 * Makes performance.now() advance faster until the test ends. Each sample then starts in a separate turn of the event loop (`takeTurn`), as
 * on a slow machine.
 */
export function useSlowClock(): void {
  let now = performance.now();
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += 20));
  onTestFinished(() => clock.mockRestore());
}

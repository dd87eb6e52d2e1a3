/** Samples, and the contexts of their tool calls. */

import type { ScoredSample } from '../src/tasks/task.ts';
import type { ToolContext } from '../src/tasks/tool.ts';

/** A sample of one turn, without tool calls, that ended by itself. */
export const ENDED = { stopReason: 'completed', numTurns: 1, numToolCalls: 0, numToolErrors: 0 } as const;

/** Returns a sample as a reward receives it. */
export const scored = (response: string, more: Partial<ScoredSample> = {}): ScoredSample => ({
  problem: { id: 'p', messages: [{ role: 'user', content: 'What is 2 + 2?' }], answer: '4' },
  ...{ messages: [], response, ...ENDED, responseTokens: 3 },
  ...more,
});

/** Returns the context of a tool call of a sample without state. */
export const toolContext = (more: Partial<ToolContext> = {}): ToolContext => ({
  sampleId: 's',
  problem: { id: 'p', messages: [], answer: '' },
  state: undefined,
  signal: new AbortController().signal,
  ...more,
});

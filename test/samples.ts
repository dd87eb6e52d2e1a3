/** A sample of one turn, without tool calls, that ended by itself. */

import type { ScoredSample } from '../src/tasks/task.ts';

export const ENDED = { stopReason: 'completed', numTurns: 1, numToolCalls: 0, numToolErrors: 0 } as const;

/** Returns a sample as a reward receives it. */
export const scored = (response: string, more: Partial<ScoredSample> = {}): ScoredSample => ({
  problem: { id: 'p', messages: [{ role: 'user', content: 'What is 2 + 2?' }], answer: '4' },
  ...{ messages: [], response, ...ENDED, responseTokens: 3 },
  ...more,
});

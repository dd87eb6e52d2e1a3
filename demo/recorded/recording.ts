/** Recorded runs by their recipes, which scripts/record.mjs writes. */

import type { Metrics } from '../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { fetchBytes } from '../engine/configs.ts';
import calculator from './gsm8k-tool.bin?url';
import smollm2Calculator from './calculator-smollm2-135m.bin?url';
import smollm2PastTense from './past-tense-smollm2-135m.bin?url';

const FILES = {
  'gsm8k-tool': calculator,
  'calculator-smollm2-135m': smollm2Calculator,
  'past-tense-smollm2-135m': smollm2PastTense,
};

export type RecordedName = keyof typeof FILES;

/** Content of the file, stored as gzipped JSON. */
export interface Recording {
  command: string;
  commit: string;
  adapter: string;
  date: string;
  config: string;
  history: Metrics[];
  tries: LoggedRollout[];
}

/** Fetches a recorded run. */
export async function openRecording(name: RecordedName): Promise<Recording> {
  const stream = new Blob([await fetchBytes(FILES[name], 'The recorded run')]).stream();
  const text = await new Response(stream.pipeThrough(new DecompressionStream('gzip'))).text();
  return JSON.parse(text) as Recording;
}

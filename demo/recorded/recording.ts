/** The recorded run of the default recipe, which scripts/record.mjs writes. */

import type { Metrics } from '../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { fetchBytes } from '../engine/configs.ts';
import url from './gsm8k-tool.bin?url';

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

/** Fetches the recorded run. */
export async function openRecording(): Promise<Recording> {
  const stream = new Blob([await fetchBytes(url, 'The recorded run')]).stream();
  const text = await new Response(stream.pipeThrough(new DecompressionStream('gzip'))).text();
  return JSON.parse(text) as Recording;
}

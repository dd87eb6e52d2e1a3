/** Runs the commands of README and the documents that use a GPU without a rollout engine (sft, verify, tune), in `npm test -- --full`. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { documentCommands, filled, runnerOf } from '../documentRuns.ts';
import { isFull } from './full.ts';

const folder = mkdtempSync(join(tmpdir(), 'webgrpo-documents-'));
const lines = new Map(
  documentCommands.filter((one) => runnerOf(one) === 'gpu').map(({ line, words }) => [line, words]),
);

/** Each command runs in a separate process, because a loss that `--import` registers stays registered until its process ends. */
test.runIf(isFull).each([...lines])('%s', (_, [, ...words]) => {
  const args = filled(words, (name) => join(folder, name));
  if (args[0] === 'sft') args.push(`trainer.defaultLocalDir=${folder}`);
  const { status, stderr } = spawnSync(process.execPath, ['scripts/webgrpo.mjs', ...args], { encoding: 'utf8' });
  expect(status, stderr.slice(-500)).toBe(0);
});

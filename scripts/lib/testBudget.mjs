/** Compares the time of each test file with test/seconds.json, as a share of its stage, so that the speed of the machine does not matter. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../setup.mjs';
import { messageOf, SetupError } from './say.mjs';

/**
 * Stored times of each stage: wall seconds, number of tests, and seconds by test file.
 * @typedef {{ seconds: number, tests: number, files: Record<string, number> }} StageTimes
 * @typedef {Record<string, StageTimes>} Times
 * @typedef {{ stage: string, file: string, seconds: number, share: number, stored: number }} Overrun
 */

const FILE = join(ROOT, 'test', 'seconds.json');
/** A test file is reported if its share of the stage's time is more than this many times its stored share. */
const FACTOR = 3;
/** Shares of a stage below this one are not reported, because they vary by chance and cost little. */
const LEAST_SHARE = 0.03;

/** @returns {Times} */
export function storedTimes() {
  if (!existsSync(FILE)) return {};
  try {
    return JSON.parse(readFileSync(FILE, 'utf8'));
  } catch (error) {
    throw new SetupError(
      `test/seconds.json is not JSON (${messageOf(error)}). Restore it, or delete it and run npm test -- --times.`,
      1,
    );
  }
}

/**
 * Replaces the stored times of the stages that ran; keeps the others.
 * @param {Times} times
 */
export const storeTimes = (times) =>
  writeFileSync(FILE, `${JSON.stringify({ ...storedTimes(), ...times }, null, 2)}\n`);

const total = (/** @type {Record<string, number>} */ files) => Object.values(files).reduce((a, b) => a + b, 0);

/**
 * Returns the test files that took more than three times their stored share of their stage. The stored share of a new file is 0.
 * @param {Times} times of complete stages
 * @param {Times} [stored]
 * @returns {Overrun[]}
 */
export function overruns(times, stored = storedTimes()) {
  return Object.entries(times).flatMap(([stage, { files }]) => {
    if (!stored[stage]) return [];
    const [sum, storedSum] = [total(files), total(stored[stage].files)];
    return Object.entries(files)
      .map(([file, seconds]) => {
        const known = stored[stage].files[file] ?? 0;
        return { stage, file, seconds, share: seconds / sum, stored: storedSum === 0 ? 0 : known / storedSum };
      })
      .filter(({ share, stored }) => share >= LEAST_SHARE && share > FACTOR * stored);
  });
}

/**
 * Returns one line for each overrun; '' without overruns.
 * @param {Overrun[]} found
 */
export function overrunLines(found) {
  if (found.length === 0) return '';
  const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(1)}%`;
  const lines = found.map(
    ({ stage, file, seconds, share, stored }) =>
      `  ${stage} ${file}: ${seconds.toFixed(1)} s, ${percent(share)} of its stage; stored: ${percent(stored)}`,
  );
  return [
    `\nOver ${FACTOR} times their share in test/seconds.json. Make them faster, or store new times with npm test -- --times:`,
    ...lines,
    '',
  ].join('\n');
}

/** Tests that each break of scripts/mutations.mjs can still be made, and that its tests exist. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MUTATIONS } from '../../scripts/lib/mutations.mjs';

test.each(MUTATIONS)('$name', ({ file, find, replace, tests }) => {
  expect(readFileSync(file, 'utf8').split(find), `"${find}" in ${file}`).toHaveLength(2);
  expect(replace).not.toBe(find);
  for (const path of tests) expect(existsSync(path), path).toBe(true);
});

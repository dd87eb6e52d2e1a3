/** Tests that each break of scripts/mutations.mjs, and each insertion of CONTRIBUTING's recipes, still finds its line. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MUTATIONS } from '../../scripts/lib/mutations.mjs';

test.each(MUTATIONS)('$name', ({ file, find, replace, tests }) => {
  expect(readFileSync(file, 'utf8').split(find), `"${find}" in ${file}`).toHaveLength(2);
  expect(replace).not.toBe(find);
  for (const path of tests) expect(existsSync(path), path).toBe(true);
});

const insertions = readFileSync('CONTRIBUTING.md', 'utf8').matchAll(/<!-- insert (\S+) (?:before|after) "(.*)" -->/g);
test.each(
  Array.from(insertions, ([, file, line]) => [file, line.replace(/\\(.)/g, '$1')]).filter(([file]) => existsSync(file)),
)('CONTRIBUTING inserts into %s at "%s"', (file, part) => {
  expect(
    readFileSync(file, 'utf8')
      .split('\n')
      .filter((line) => line.includes(part)),
  ).toHaveLength(1);
});

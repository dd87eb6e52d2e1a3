/** Tests that each break of scripts/mutations.mjs, and each insertion of CONTRIBUTING's recipes, still finds its line. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MUTATIONS } from '../../scripts/lib/mutations.mjs';

test.each(MUTATIONS)('$name', ({ file, find, replace, tests }) => {
  expect(readFileSync(file, 'utf8').split(find), `"${find}" in ${file}`).toHaveLength(2);
  expect(replace).not.toBe(find);
  for (const path of tests) expect(existsSync(path), path).toBe(true);
});

const recipes = readFileSync('CONTRIBUTING.md', 'utf8');
const created = new Set(Array.from(recipes.matchAll(/<!-- create (\S+) -->/g), ([, file]) => file));
const insertions = Array.from(
  recipes.matchAll(/<!-- insert (\S+) (?:before|after) "(.*)" -->/g),
  ([, file, line]): [string, string] => [file, line.replace(/\\(.)/g, '$1')],
);
test.each(insertions.filter(([file]) => !created.has(file)))('CONTRIBUTING inserts into %s at "%s"', (file, part) => {
  const lines = readFileSync(file, 'utf8').split('\n');
  expect(lines.filter((line) => line.includes(part))).toHaveLength(1);
});

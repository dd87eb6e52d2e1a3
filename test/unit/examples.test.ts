/** Every file of examples/ stands in a document as it is, with the number of lines that a user writes. */

import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

const documents = [
  'README.md',
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' }).map((name) => `docs/${name}`),
]
  .filter((name) => name.endsWith('.md'))
  .map((name) => readFileSync(name, 'utf8'));

/** `<!-- examples/NAME, 12 lines -->`, then the file as a block of code. Lines with nothing on them are not counted. */
const quoted = new Map(
  documents.flatMap((text) =>
    [...text.matchAll(/<!-- (examples\/[^,]+), (\d+) lines -->\n+```\w*\n([^]*?)```/g)].map(
      ([, name, lines, code]) => [name, { lines: Number(lines), code }] as const,
    ),
  ),
);

const files = readdirSync('examples', { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map(({ parentPath, name }) => `${parentPath}/${name}`.replaceAll('\\', '/'));

const linesOf = (text: string): number => text.split('\n').filter((line) => line.trim() !== '').length;

describe('examples', () => {
  test.each(files)('%s is in a document', (file) => {
    const text = readFileSync(file, 'utf8');
    const found = quoted.get(file);
    expect(found?.code).toBe(text);
    expect(found?.lines).toBe(linesOf(text));
  });

  test("README's table has the lines of each", () => {
    const told: [string, number][] = [...documents[0].matchAll(/\[[^\]]+\]\((examples\/[^)]+)\) (\d+)/g)].map(
      ([, file, count]) => [file, Number(count)],
    );
    expect(told.length).toBeGreaterThan(10);
    for (const [file, count] of told) expect([file, linesOf(readFileSync(file, 'utf8'))]).toEqual([file, count]);
  });

  test('a document quotes no file that is not there', () => {
    expect([...quoted.keys()].filter((name) => !files.includes(name))).toEqual([]);
  });
});

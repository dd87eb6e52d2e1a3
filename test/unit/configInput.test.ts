/**
 * Tests that the comment of a key in an editor equals the schema's text. test/e2e/pack.test.ts compares the printed types with the inferred
 * ones.
 */

import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { printedInputs } from '../../scripts/lib/printedInputs.ts';

test("a key's comment has reason, range, unit and default", () => {
  expect(printedInputs()['src/grpo/config/input.ts']).toContain(
    '/** Maximum number of tokens after the prompt, including tool output. Allowed: integer >= 1 (tokens). Default: 160. */\n  maxResponseLength?: number | undefined;',
  );
});

test.each([
  ['src/grpo/config/input.ts', 3],
  ['src/extensions/sft/input.ts', 1],
])('the printed types have the names that %s exports', async (file, count) => {
  const source = await readFile(file, 'utf8');
  const names = [...source.matchAll(/^export type (\w+)/gm)].map(([, name]) => name);
  expect(names).toHaveLength(count);
  for (const name of names) expect(printedInputs()[file]).toContain(`export interface ${name} {`);
});

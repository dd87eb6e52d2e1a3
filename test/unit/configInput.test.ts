/**
 * Tests that the comment of a key in an editor equals the schema's text. test/e2e/pack.test.ts compares the printed types with the inferred
 * ones.
 */

import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { printedInputs } from '../../scripts/lib/printedInputs.ts';

test("a key's comment has reason, range, unit and default", () => {
  expect(printedInputs()).toContain(
    '/** Maximum number of tokens after the prompt, including tool output. Allowed: integer >= 1 (tokens). Default: 160. */\n  maxResponseLength?: number | undefined;',
  );
});

test('the printed types have the names that src/grpo/config/input.ts exports', async () => {
  const source = await readFile('src/grpo/config/input.ts', 'utf8');
  const names = [...source.matchAll(/^export type (\w+)/gm)].map(([, name]) => name);
  expect(names).toHaveLength(4);
  for (const name of names) expect(printedInputs()).toContain(`export interface ${name} {`);
});

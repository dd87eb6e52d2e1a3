/** Tests that OPFS and IndexedDB give the same results, in a page that imports source files from Vite's development server. */

import { resolve } from 'node:path';
import { expect, test } from '@playwright/test';

test('OPFS and IndexedDB give the same answers', async ({ page }) => {
  await page.goto('/?config=none');
  const answers = await page.evaluate(
    async (path) => {
      const { answers } = (await import(path)) as { answers(): Promise<Record<string, unknown[]>> };
      return answers();
    },
    `/@fs${resolve('test/e2e/fileSystems.ts')}`,
  );
  expect(answers['indexedDb']).toEqual(answers['opfs']);
  expect(answers['opfs'][1]).toBe('{"training/global_step":1}\n{"training/global_step":2}\n');
  expect(answers['opfs']).toHaveLength(19);
});

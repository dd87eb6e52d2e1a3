/** Where runs are kept: OPFS and IndexedDB answer alike, and a window without OPFS keeps its runs all the same. */

import { resolve } from 'node:path';
import { expect, test } from '@playwright/test';
import { expectState, openPage, reloadAtStep, TINY } from './demo.ts';

const WITHOUT_OPFS = () => {
  StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));
};

test('OPFS and IndexedDB answer alike', async ({ page }) => {
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

test('without OPFS, a run is kept in IndexedDB, and gone on with after a reload', async ({ page }) => {
  await page.addInitScript(WITHOUT_OPFS);
  await openPage(page, { ...TINY, steps: 3, 'trainer.saveFreq': 1 });
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await reloadAtStep(page, 2);
  await page.getByRole('button', { name: 'Go on', exact: true }).first().click();
  await expectState(page, 'done', 90_000);
  await expect(page.getByText('Not saved.')).toHaveCount(0);
  await expect(page.locator('#runs tbody tr')).toContainText('3 of 3');
});

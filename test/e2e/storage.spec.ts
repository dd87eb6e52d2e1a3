/** Tests that a window without OPFS saves its runs too. */

import { expect } from '@playwright/test';
import { expectKept, expectState, openPage, test, TINY } from './demo.ts';

const WITHOUT_OPFS = () => {
  StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));
};

test('without OPFS a run is stored in IndexedDB, and continues after a reload', async ({ page, engine }) => {
  engine.upTo(2);
  await page.addInitScript(WITHOUT_OPFS);
  await openPage(page, { ...TINY, steps: 3, 'trainer.saveFreq': 1 });
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await expectKept(page, 2);
  await page.reload();
  engine.open();
  await page.getByRole('button', { name: 'Resume', exact: true }).first().click();
  await expectState(page, 'done');
  await expect(page.getByText('Not saved.')).toHaveCount(0);
  await expect(page.locator('#runs tbody tr')).toContainText('3 of 3');
});

/** Tests that a window without OPFS, or with an OPFS that pages cannot write to, saves its runs too. */

import { expect } from '@playwright/test';
import { expectKept, expectState, openPage, testInFull, TINY } from './demo.ts';

const WITHOUT = {
  OPFS: () => {
    StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));
  },
  createWritable: () => void Reflect.deleteProperty(FileSystemFileHandle.prototype, 'createWritable'),
};

// The everyday tests run autosave.spec.ts without any storage, and compare IndexedDB with OPFS in test/browser.
for (const [missing, remove] of Object.entries(WITHOUT))
  testInFull(
    `without ${missing} a run is stored in IndexedDB, and continues after a reload`,
    async ({ page, engine }) => {
      engine.upTo(2);
      await page.addInitScript(remove);
      await openPage(page, { ...TINY, steps: 3, 'trainer.saveFreq': 1 });
      await page.getByRole('button', { name: 'Start', exact: true }).click();
      await expectKept(page, 2);
      await page.reload();
      engine.open();
      await page.getByRole('button', { name: 'Resume', exact: true }).first().click();
      await expectState(page, 'done');
      await expect(page.getByText('Not saved.')).toHaveCount(0);
      await expect(page.locator('.run-list > li')).toContainText('3 of 3');
    },
  );

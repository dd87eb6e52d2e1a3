/** A model from another server: downloaded into the browser's own file system, then trained. */

import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from '@playwright/test';
import { expectState, openPage, TINY } from './demo.ts';

const SERVER = 'https://models.example/tiny';

test('the URL of a folder: its files are kept in OPFS and the run starts', async ({ page }) => {
  const asked: string[] = [];
  await page.route(`${SERVER}/**`, async (route) => {
    const name = route
      .request()
      .url()
      .slice(SERVER.length + 1);
    asked.push(name);
    const file = `checkpoints/gsm8k-tool/${name}`;
    const headers = { 'access-control-allow-origin': '*', 'access-control-expose-headers': '*' };
    if (!existsSync(file)) return route.fulfill({ status: 404, headers });
    return route.fulfill({ body: readFileSync(file), headers });
  });
  await openPage(page, { ...TINY, 'model.path': SERVER });
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'running', 120_000);
  expect(asked).toContain('model.safetensors');
  const bytes = await page.evaluate(async () => {
    let folder = await navigator.storage.getDirectory();
    for (const part of ['models', 'models.example', 'tiny']) folder = await folder.getDirectoryHandle(part);
    return (await (await folder.getFileHandle('model.safetensors')).getFile()).size;
  });
  expect(bytes).toBe(readFileSync('checkpoints/gsm8k-tool/model.safetensors').length);
});

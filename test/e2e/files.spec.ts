/** Tests that the command line can use a run of the page, and the page a run of the command line. */

import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, type Page } from '@playwright/test';
import { bundle } from '../../scripts/lib/bundle.mjs';
import { readZip } from '../../demo/storage/zip.ts';
import { expectPoints, expectState, isFull, openDrawer, openPage, test, stepInFull, TINY } from './demo.ts';

let folder: string;
let webgrpo: (...args: string[]) => string;

test.beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'webgrpo-files-'));
  if (!isFull) return;
  const main = join(await bundle(process.cwd()), 'bin.js');
  webgrpo = (...args) =>
    execFileSync(process.execPath, ['--no-warnings', main, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
});

test('a run is saved by the page, continued by the command line, and loaded into the page again', async ({ page }) => {
  await openPage(page, { ...TINY, steps: 1, 'trainer.saveFreq': 1 });
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await expectState(page, 'done');
  await openDrawer(page, 'runs');
  await expect(page.locator('.run-list > li')).toHaveCount(1);

  const run = await unpacked(page, 'Run (.zip, opens here and in the command line)');
  await stepInFull('the command line writes its report', () => {
    expect(webgrpo('report', run)).toContain('report.html');
    expect(readFileSync(join(run, 'report.html'), 'utf8')).toContain('"kind":"run"');
  });

  await test.step('the report that the page saves is the same but for its name', async () => {
    const file = await saved(page, 'Report (.html)');
    expect(readFileSync(file, 'utf8')).toContain('"kind":"run"');
    if (!isFull) return;
    const report = (path: string) => {
      const [, text] = /<script id="report" type="application\/json">(.*?)<\/script>/s.exec(
        readFileSync(path, 'utf8'),
      )!;
      return { ...(JSON.parse(text) as object), title: '' };
    };
    expect(report(file)).toEqual(report(join(run, 'report.html')));
  });

  await stepInFull('the model has the files of its layout, and no more', async () => {
    const model = await unpacked(page, 'Model (.zip, Hugging Face layout)');
    for (const name of ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'])
      expect(existsSync(join(model, name)), name).toBe(true);
    expect(existsSync(join(model, 'trainer_state.json'))).toBe(false);
    expect(
      readFileSync(await saved(page, 'Model (.gguf, for llama.cpp)'))
        .subarray(0, 4)
        .toString(),
    ).toBe('GGUF');
  });

  await stepInFull('the command line goes on with it', () => {
    webgrpo(
      'train',
      join(run, 'config.yaml'),
      'trainer.resumeMode=resume_path',
      `trainer.resumeFromPath=${run}`,
      `trainer.defaultLocalDir=${folder}/runs`,
      'name=longer',
      'trainer.totalTrainingSteps=2',
    );
  });

  if (!isFull) cpSync(run, join(folder, 'runs', 'longer'), { recursive: true });
  await test.step('what it wrote is loaded, shown, and gone on with', async () => {
    const longer = join(folder, 'runs', 'longer');
    writeFileSync(
      join(longer, 'config.yaml'),
      readFileSync(join(longer, 'config.yaml'), 'utf8').replace(/totalTrainingSteps: \d/, 'totalTrainingSteps: 3'),
    );
    await page.getByLabel('Open folder').setInputFiles(longer);
    await expect(page.locator('.run-list > li')).toHaveCount(2);
    const name = `${isFull ? 'longer' : 'gsm8k-tool'}, loaded`;
    await expect(page.getByLabel('Name of the run').first()).toHaveValue(name);
    await expectPoints(page, 'reward', 1);
    await expect(page.locator('#rollouts')).toContainText(isFull ? 'Step 2,' : 'Step 1,');
    await page.getByRole('button', { name: `Resume ${name}` }).click();
    await expectState(page, 'done');
    await expectPoints(page, 'reward', isFull ? 2 : 3);
    await expect(page.locator('.bar')).toBeVisible();
    await expect(page.locator('.machine'), 'another machine trained it too').toHaveCount(0);
  });

  await test.step('what is no run is refused in words', async () => {
    const other = join(folder, 'other.zip');
    writeFileSync(other, 'no zip');
    await page.getByLabel('Open .zip').setInputFiles(other);
    await expect(page.getByText('other.zip cannot be read as a .zip')).toBeVisible();
    await page.getByLabel('Open folder').setInputFiles(dirname(join(run, 'rollouts', 'x')));
    await expect(page.getByText('Not a run folder: config.yaml or metrics.jsonl is missing.')).toBeVisible();
  });
});

/** Saves the newest run with an item of its menu, and returns the file. */
async function saved(page: Page, choice: string): Promise<string> {
  const row = page.locator('.run-list > li').first();
  const menu = row.locator('.save');
  if ((await menu.getAttribute('open')) === null) await menu.locator('summary').click();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    row.getByRole('button', { name: choice, exact: true }).click(),
  ]);
  const path = join(folder, download.suggestedFilename());
  await download.saveAs(path);
  return path;
}

/** Saves the newest run as a .zip, and returns the unpacked folder. */
async function unpacked(page: Page, choice: string): Promise<string> {
  const path = await saved(page, choice);
  const files = await readZip(readFileSync(path), path);
  for (const [name, bytes] of files) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), bytes);
  }
  return join(folder, [...files.keys()][0].split('/')[0]);
}

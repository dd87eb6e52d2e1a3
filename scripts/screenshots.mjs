/**
 * `node scripts/screenshots.mjs` takes all pictures of the page in docs/images: README's demo.png, of a real run, and every state of
 * test/e2e/states.spec.ts with the scripted engine, on one sheet per size and colour scheme (page-1440-light.webp and so on). Takes minutes.
 *
 * `--demo` takes only demo.png. `--into FOLDER` keeps the full pictures of the states. With WORDs it takes the pictures of the states that
 * have one of them in their name, and writes no sheet.
 */

/* global document */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const IMAGES = join(ROOT, 'docs', 'images');
const LIMIT_MS = 600_000;

/** Columns of a sheet and width of its pictures in pixels, by the width of the window. */
const SHEETS = { 1440: [5, 640], 1280: [5, 640], 390: [10, 312] };
/** Quality of the sheets, as WebP. */
const QUALITY = 70;

/** Steps of the unchanged recipe after which the run of demo.png shows curves and compared tries. */
const DEMO_STEPS = 25;

/** @param {import('playwright').Browser} browser */
async function takeDemo(browser) {
  const { createServer } = await import('vite');
  const server = await createServer({ configFile: join(ROOT, 'vite.config.ts'), server: { host: '127.0.0.1' } });
  await server.listen(0);
  try {
    const page = await browser.newPage({ viewport: { width: 1440, height: 1150 } });
    page.setDefaultTimeout(LIMIT_MS);
    await page.goto(server.resolvedUrls?.local[0] ?? '');
    await page.locator('#start[aria-disabled="false"]').click();
    await page.waitForFunction(
      (wanted) => Number(document.querySelector('[data-chart="reward"]')?.getAttribute('data-points') ?? 0) >= wanted,
      DEMO_STEPS,
    );
    await page.getByText('Updating the model').waitFor();
    await page.waitForTimeout(500); // charts follow in a later frame
    await page.screenshot({ path: join(IMAGES, 'demo.png') });
    await page.close();
  } finally {
    await server.close();
  }
  process.stdout.write('docs/images/demo.png\n');
}

/**
 * Takes full pictures of the states into a folder. Returns the exit code of the tests that reach the states.
 * @param {string} folder
 * @param {string[]} words of the names of states
 */
function takeStates(folder, words) {
  mkdirSync(folder, { recursive: true });
  const named = words.length > 0 ? ['-g', words.join('|')] : [];
  const args = ['test', '--project=scripted', '--reporter=line', 'states', ...named];
  return runNode(join(ROOT, 'node_modules/@playwright/test/cli.js'), args, { cwd: ROOT, env: { PICTURES: folder } });
}

/**
 * Lays the pictures of a size and a colour scheme out on one sheet, each with the name of its state below.
 * @param {import('playwright').Browser} browser
 * @param {string} folder
 * @param {string} kind such as 1440-light
 */
async function writeSheet(browser, folder, kind) {
  const files = readdirSync(folder).filter((file) => file.endsWith(`-${kind}.png`));
  if (files.length === 0) throw new SetupError(`${folder} has no picture of ${kind}. Take them again.`);
  const [columns, width] = SHEETS[/** @type {keyof typeof SHEETS} */ (Number.parseInt(kind))];
  const cells = files.map((file) => {
    const name = file.slice(0, -`-${kind}.png`.length).replaceAll('-', ' ');
    return `<figure><img src="data:image/png;base64,${readFileSync(join(folder, file), 'base64')}"><figcaption>${name}</figcaption></figure>`;
  });
  const page = await browser.newPage();
  await page.setContent(`<style>
    body { display: grid; grid-template-columns: repeat(${columns}, ${width}px); gap: 16px; width: fit-content; margin: 0; padding: 16px;
      background: #8a929c; font: 600 20px sans-serif }
    figure { margin: 0 } img { display: block; width: 100% } figcaption { padding-top: 4px }
  </style>${cells.join('')}`);
  const size = await page.evaluate(() => ({ width: document.body.scrollWidth, height: document.body.scrollHeight }));
  await page.setViewportSize(size);
  const devtools = await page.context().newCDPSession(page); // Playwright itself writes no WebP
  const { data } = await devtools.send('Page.captureScreenshot', { format: 'webp', quality: QUALITY });
  await page.close();
  const path = join(IMAGES, `page-${kind}.webp`);
  writeFileSync(path, data, 'base64');
  process.stdout.write(
    `docs/images/page-${kind}.webp: ${files.length} states, ${Math.round(statSync(path).size / 1000)} kB\n`,
  );
}

try {
  Object.assign(process.env, setup({ browser: true }));
  const { positionals: words, values } = parseArgs({
    allowPositionals: true,
    options: { demo: { type: 'boolean' }, into: { type: 'string' } },
  });
  const folder = values.into === undefined ? mkdtempSync(join(tmpdir(), 'webgrpo-page-')) : resolve(values.into);
  if (!values.demo) process.exitCode = await takeStates(folder, words);
  const { chromium } = await import('playwright');
  const browser = await chromium.launch(webGpuLaunchOptions());
  try {
    if (!values.demo && words.length === 0)
      for (const width of Object.keys(SHEETS))
        for (const colours of ['light', 'dark']) await writeSheet(browser, folder, `${width}-${colours}`);
    if (words.length === 0) await takeDemo(browser);
  } finally {
    await browser.close();
    if (values.into === undefined) rmSync(folder, { recursive: true });
  }
} catch (error) {
  exitOnSetupError(error);
}

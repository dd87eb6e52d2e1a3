/**
 * Checks which bundlers build and run the packed library with their default settings, with the engine in the page's thread and in a worker.
 * Prints a Markdown table; exits with 1 if one fails. Names select bundlers: `node scripts/bundlers.mjs webpack next`. Needs a build (`npm
 * run build`) and npm's registry.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BUNDLERS, buildWith, installProject, pack, serveFolder } from './lib/bundlers.mjs';
import { webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { exitOnSetupError, messageOf, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const LIMIT_MS = 180_000;

/** @param {import('playwright').Browser} browser @param {string} address */
async function trainIn(browser, address) {
  const page = await browser.newPage();
  try {
    await page.goto(address);
    await page.waitForFunction('/^(done|failed)/.test(document.title)', undefined, { timeout: LIMIT_MS });
    const title = await page.title();
    if (!title.startsWith('done')) throw new Error(title);
  } finally {
    await page.close();
  }
}

/** @param {string} name @param {string} tarball @param {import('playwright').Browser} browser */
async function tryBundler(name, tarball, browser) {
  const folder = mkdtempSync(join(tmpdir(), `webgrpo-${name}-`));
  try {
    installProject({ root: ROOT, folder, tarball, packages: BUNDLERS[name].packages });
    const served = await serveFolder(buildWith(name, folder));
    try {
      for (const mode of ['?local', '?worker']) await trainIn(browser, served.address + mode);
    } finally {
      served.close();
    }
    return true;
  } catch (error) {
    say(`${name}: ${messageOf(error)}`);
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

try {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(BUNDLERS);
  const unknown = names.find((name) => !(name in BUNDLERS));
  if (unknown) throw new SetupError(`No bundler "${unknown}". There are ${Object.keys(BUNDLERS).join(', ')}.`);
  const { CHROME_PATH } = setup({ browser: true });
  const tarballs = mkdtempSync(join(tmpdir(), 'webgrpo-pack-'));
  const tarball = pack(ROOT, tarballs);
  const { chromium } = await import('playwright');
  const browser = await chromium.launch(webGpuLaunchOptions({ CHROME_PATH }));
  process.stdout.write('| bundler | builds and trains, page and worker |\n| --- | --- |\n');
  for (const name of names) {
    const ok = await tryBundler(name, tarball, browser);
    process.stdout.write(`| ${BUNDLERS[name].packages[0].replace('@', ' ')} | ${ok ? 'yes' : 'NO'} |\n`);
    if (!ok) process.exitCode = 1;
  }
  await browser.close();
  rmSync(tarballs, { recursive: true });
} catch (error) {
  exitOnSetupError(error);
}

/** `webgrpo train --in chromium`: runs a command whose engines are in pages of a headless Chromium. */

import type { Browser } from '@playwright/test';
import { InputError, NoAdapterError } from '../../errors.ts';
import { webGpuLaunchOptions } from '../chromium.mjs';
import { currentIo, withIo } from '../process/io.ts';
import { say } from '../run/progress.ts';
import { openPageEngine } from './pageEngine.ts';

/** Runs `work` with its engines in browser pages. If the browser has crashed, the next engine starts a new one. */
export async function inChromium<T>(work: () => Promise<T>): Promise<T> {
  const io = currentIo();
  let browser: Browser | undefined;
  const createEngine: typeof io.createEngine = async (spec) => {
    if (!browser?.isConnected()) browser = await launch(io.env);
    return openPageEngine(await browser.newPage(), spec);
  };
  try {
    return await withIo({ ...io, createEngine }, work);
  } finally {
    await browser?.close();
  }
}

async function launch(env: NodeJS.ProcessEnv): Promise<Browser> {
  const playwright = import('@playwright/test').catch(() => import('playwright'));
  const { chromium } = await playwright.catch(() => {
    throw new InputError('--in chromium needs Playwright, which is not installed. Run "npm install @playwright/test".');
  });
  const options = webGpuLaunchOptions(env);
  // Playwright does not handle signals: they end the run, and the run closes the browser.
  const signals = { handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false };
  const browser = await chromium.launch({ ...options, ...signals }).catch((error: Error) => {
    const [reason] = error.message.split('\n');
    throw new NoAdapterError(
      `No Chromium could be started (${reason}). Run "npx playwright install chromium", or set CHROME_PATH to a Chromium or Chrome.`,
    );
  });
  say(`browser: Chromium ${browser.version()}, headless`);
  return browser;
}

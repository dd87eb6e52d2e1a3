/**
 * `node scripts/preview.mjs` writes demo/public/preview.png, the picture of link previews: 1200 x 630 pixels of the page with its recorded
 * run.
 */

/* global document */

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { exitOnSetupError, say } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const FILE = join(ROOT, 'demo', 'public', 'preview.png');

try {
  Object.assign(process.env, setup({ browser: true }));
  const { createServer } = await import('vite');
  const server = await createServer({
    configFile: join(ROOT, 'vite.config.ts'),
    server: { host: '127.0.0.1', port: 0 },
  });
  await server.listen();
  const { chromium } = await import('playwright');
  const path = process.env.CHROME_PATH;
  const browser = await chromium.launch({ ...(path && { executablePath: path }), args: ['--no-sandbox'] });
  const page = await browser.newPage({
    viewport: { width: 1200, height: 630 },
    colorScheme: 'light',
    reducedMotion: 'reduce',
  });
  await page.goto(server.resolvedUrls?.local[0] ?? '');
  await page.waitForFunction(() => {
    const reward = document.querySelector('figure[data-chart="reward"]');
    return Number(/** @type {HTMLElement | null} */ (reward)?.dataset.points) === 80;
  });
  // Hide settings and notices: a preview shows the content.
  await page.addStyleTag({
    content: `#notices, #told, #cards, .top > :not(h1), .intro, #ask, #rules { display: none !important }
      main { display: flex !important; flex-direction: column-reverse; justify-content: flex-end } #charts { order: 1 } h1 { font-size: 40px }`,
  });
  await page.waitForTimeout(500);
  mkdirSync(join(FILE, '..'), { recursive: true });
  await page.screenshot({ path: FILE });
  await browser.close();
  await server.close();
  say(FILE);
} catch (error) {
  exitOnSetupError(error);
}

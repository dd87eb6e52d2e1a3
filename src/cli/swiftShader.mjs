/**
 * Finds an installed Chromium, and the SwiftShader that is shipped with it: a Vulkan driver that runs on the CPU. Plain Node without
 * packages, because the set-up of a checkout runs it before anything is installed.
 */

import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

/**
 * Returns the path of a full Chromium or Chrome (the headless shell has no WebGPU), preferably Playwright's newest; '' if not found.
 * @param {NodeJS.ProcessEnv} env
 */
export function installedChromium(env) {
  return [...playwrightChromiums(env), ...systemChromiums()].find((path) => existsSync(path)) ?? '';
}

/**
 * Returns Playwright's Chromiums, newest first.
 * @param {NodeJS.ProcessEnv} env
 */
function playwrightChromiums(env) {
  const home = homedir();
  /** @type {Partial<Record<NodeJS.Platform, string>>} */
  const caches = {
    darwin: join(home, 'Library/Caches/ms-playwright'),
    win32: join(home, 'AppData/Local/ms-playwright'),
  };
  const cache = env.PLAYWRIGHT_BROWSERS_PATH || caches[process.platform] || join(home, '.cache/ms-playwright');
  if (!existsSync(cache)) return [];
  const builds = readdirSync(cache)
    .filter((name) => /^chromium-\d+$/.test(name))
    .sort((a, b) => Number(b.slice(9)) - Number(a.slice(9)));
  return builds.flatMap((build) =>
    readdirSync(join(cache, build)).flatMap((platform) =>
      [
        'chrome',
        'chrome.exe',
        'Chromium.app/Contents/MacOS/Chromium',
        'Google Chrome for Testing.app/Contents/MacOS/Google Chrome for Testing',
      ].map((executable) => join(cache, build, platform, executable)),
    ),
  );
}

function systemChromiums() {
  return [
    '/usr/bin/chromium',
    '/usr/lib/chromium/chromium',
    '/opt/google/chrome/chrome',
    '/usr/bin/google-chrome',
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    'C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe',
    'C:\\Program Files (x86)\\Microsoft\\Edge\\Application\\msedge.exe',
  ];
}

/**
 * Returns the SwiftShader driver description in a Chromium's folder, or ''.
 * @param {string} chromium
 */
export function swiftShaderBeside(chromium) {
  if (!chromium) return '';
  // Linux distributions start Chromium by a script in another folder.
  const folders = [dirname(chromium), '/usr/lib/chromium', '/opt/google/chrome'];
  return folders.map((folder) => join(folder, 'vk_swiftshader_icd.json')).find((path) => existsSync(path)) ?? '';
}

/** Finds a full Chromium (the headless shell has no WebGPU), or installs one. */

import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { runLoud, say, SetupError } from './say.mjs';

/** Path of a Chromium or Chrome executable, or '' when there is none. Throws SetupError for a wrong CHROME_PATH. */
export function findChromium(env = process.env) {
  if (env.CHROME_PATH) {
    if (existsSync(env.CHROME_PATH)) return env.CHROME_PATH;
    throw new SetupError(`CHROME_PATH is "${env.CHROME_PATH}", which does not exist; correct it or unset it.`);
  }
  return [...playwrightChromiums(env), ...systemChromiums()].find((path) => existsSync(path)) ?? '';
}

/** Chromium for the tests and, without a hardware GPU, for its software adapter: found or installed. */
export function ensureChromium() {
  const found = findChromium();
  if (found) return found;
  say('browser: no Chromium found; installing one');
  installChromium();
  const installed = findChromium();
  if (installed) return installed;
  throw new SetupError(
    'No Chromium could be installed. Install Chromium or Chrome yourself and set CHROME_PATH to its executable, then start again.',
  );
}

/** Playwright's build where it can be downloaded, else the distribution's. */
function installChromium() {
  // Without its system packages first: on a machine that cannot download, this fails before anything is installed.
  const patience = process.env.PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT ?? '10000';
  const env = { PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT: patience };
  if (runLoud('npx', ['playwright', 'install', 'chromium'], { env, errors: false })) {
    if (process.platform !== 'linux') return;
    if (runLoud('npx', ['playwright', 'install', '--with-deps', 'chromium'])) return;
  }
  if (!existsSync('/usr/bin/apt-get')) return;
  say("browser: Playwright's cannot be downloaded; installing the distribution's chromium with apt-get");
  const apt = (/** @type {string[]} */ ...args) => {
    const asRoot = process.getuid?.() === 0 ? [] : ['sudo'];
    const [command, ...rest] = [...asRoot, 'apt-get', ...args];
    return runLoud(command, rest, { env: { DEBIAN_FRONTEND: 'noninteractive' } });
  };
  if (apt('update')) apt('install', '-y', '--no-install-recommends', 'chromium', 'libvulkan1');
}

/**
 * Newest first.
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
  ];
}

/**
 * The SwiftShader driver description beside a Chromium, or ''.
 * @param {string} chromium
 */
export function swiftShaderBeside(chromium) {
  if (!chromium) return '';
  // Distributions start Chromium by a script elsewhere.
  const folders = [dirname(chromium), '/usr/lib/chromium', '/opt/google/chrome'];
  return folders.map((folder) => join(folder, 'vk_swiftshader_icd.json')).find((path) => existsSync(path)) ?? '';
}

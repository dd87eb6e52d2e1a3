/** Finds a full Chromium (the headless shell has no WebGPU), or installs one. */

import { existsSync } from 'node:fs';
import { chosenChromium } from '../../src/cli/chromium.mjs';
import { aptInstall } from './apt.mjs';
import { howToInstall, isDebian, thisSystem } from './requirements.mjs';
import { runLoud, say, SetupError } from './say.mjs';

/** Returns the path of a Chromium or Chrome executable, or '' if not found. Throws SetupError for a wrong CHROME_PATH. */
export function findChromium(env = process.env) {
  if (env.CHROME_PATH) {
    if (existsSync(env.CHROME_PATH)) return env.CHROME_PATH;
    throw new SetupError(`CHROME_PATH is "${env.CHROME_PATH}", which does not exist. Correct it or unset it.`);
  }
  return chosenChromium(env);
}

/** Finds or installs a Chromium. Tests use it, and on a machine without a hardware GPU also its software adapter. */
export function ensureChromium() {
  const found = findChromium();
  if (found) return found;
  say('browser: no Chromium found; installing one');
  installChromium();
  const installed = findChromium();
  if (installed) return installed;
  throw new SetupError(`No Chromium could be installed. ${howToInstall('browser')}; then start again.`, 1);
}

/** Installs Debian's Chromium on Debian. Elsewhere installs Playwright's build if it can be downloaded, otherwise the distribution's. */
function installChromium() {
  if (isDebian() && aptInstall('chromium', 'libvulkan1')) return;
  // First try without --with-deps, which installs system packages. If no Chromium can be downloaded, this fails before they are installed.
  const patience = process.env.PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT ?? '10000';
  const env = { PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT: patience };
  if (runLoud('npx', ['playwright', 'install', 'chromium'], { env, errors: false })) {
    if (process.platform !== 'linux') return;
    if (runLoud('npx', ['playwright', 'install', '--with-deps', 'chromium'])) return;
  }
  if (!thisSystem().hasApt) return;
  say("browser: Playwright's cannot be downloaded; installing the distribution's chromium with apt-get");
  aptInstall('chromium', 'libvulkan1');
}

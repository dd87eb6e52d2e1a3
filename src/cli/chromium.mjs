/**
 * Finds an installed Chromium, the command-line switches that enable WebGPU in it, and the SwiftShader shipped with it (a Vulkan driver
 * that runs on the CPU). Uses only Node's own modules, because the set-up of a checkout runs this file before packages are installed.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';

/**
 * Features of Chromium 156 that load the pages of the address bar's popup in every window, which takes more processor time than our page.
 */
const POPUP = ['WebUIOmniboxPopup', 'WebUIOmniboxAimPopup'];

/** Features that Playwright disables. Chromium obeys only the last --disable-features, so ours must repeat Playwright's list. */
const DISABLED_BY_PLAYWRIGHT = [
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'DestroyProfileOnBrowserClose',
  'HttpsUpgrades',
  'HttpsFirstBalancedModeAutoEnable',
  'LensOverlay',
  'MediaRouter',
  'PaintHolding',
  'ThirdPartyStoragePartitioning',
  'AvoidCorsURLLoaderRestartOnRedirect',
  'OptimizationHints',
  'NetworkTimeServiceQuerying',
  'AimEnabled',
  'PreconnectToSearch',
];

/** Chromium switches for every launch by Playwright. */
export const CHROMIUM_ARGS = [
  '--no-sandbox',
  '--enable-unsafe-webgpu', // otherwise headless Chromium hides its software adapter
  `--disable-features=${[...POPUP, ...DISABLED_BY_PLAYWRIGHT].join(',')}`,
];

/**
 * Returns Playwright's launch options for a headless Chromium with WebGPU. Without an installed Chromium, Playwright looks for its own full
 * build, and its error names the command that installs it.
 * @param {NodeJS.ProcessEnv} env
 */
export function webGpuLaunchOptions(env = process.env) {
  const executablePath = chosenChromium(env);
  return { ...(executablePath ? { executablePath } : { channel: 'chromium' }), args: CHROMIUM_ARGS };
}

/**
 * Returns the Chromium of CHROME_PATH, otherwise an installed one; '' if not found.
 * @param {NodeJS.ProcessEnv} env
 */
export const chosenChromium = (env) => env.CHROME_PATH || installedChromium(env);

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
 * Returns the path of the SwiftShader driver's JSON file in a Chromium's folder; '' if not found.
 * @param {string} chromium
 */
export function swiftShaderBeside(chromium) {
  if (!chromium) return '';
  // Linux distributions start Chromium by a script that is in another folder than the program.
  const folders = [dirname(chromium), '/usr/lib/chromium', '/opt/google/chrome'];
  return folders.map((folder) => join(folder, 'vk_swiftshader_icd.json')).find((path) => existsSync(path)) ?? '';
}

/** Devices of GPUs on Linux: those of Mesa and AMD, of NVIDIA, of WSL, and of phones. */
const GPU_DEVICES = /^(dri|nvidia\d+|dxg|(mali|kgsl|pvr).*)$/;

/** Returns true if a GPU can be behind a Vulkan driver: Linux has a device for it. @param {string} [folder] */
export const hasGpuDevice = (folder = '/dev') =>
  existsSync(folder) && readdirSync(folder).some((name) => GPU_DEVICES.test(name));

/**
 * Returns true if Dawn can find a hardware GPU: there is a driver, and a device for it.
 * @param {NodeJS.ProcessEnv} env
 */
export const mayHaveGpu = (env) => hasVulkanDriver(env) && (Boolean(env.VK_ADD_DRIVER_FILES) || hasGpuDevice());

/**
 * Returns true if a folder that the Vulkan loader searches on Linux has the JSON file of a driver whose library exists.
 * @param {NodeJS.ProcessEnv} env
 */
export function hasVulkanDriver(env) {
  if (env.VK_ADD_DRIVER_FILES) return true;
  const home = env.HOME || homedir();
  /**
   * Splits a list of folders, as an environment variable has it, at each colon.
   * @param {string | undefined} list @param {string} otherwise the list to split if `list` is missing or empty
   */
  const paths = (list, otherwise) => (list || otherwise).split(':');
  const roots = [
    ...paths(env.XDG_CONFIG_HOME, join(home, '.config')),
    ...paths(env.XDG_CONFIG_DIRS, '/etc/xdg'),
    ...['/usr/local/etc', '/etc'],
    ...paths(env.XDG_DATA_HOME, join(home, '.local/share')),
    ...paths(env.XDG_DATA_DIRS, '/usr/local/share:/usr/share'),
  ];
  return roots
    .map((root) => join(root, 'vulkan/icd.d'))
    .filter((folder) => existsSync(folder))
    .some((folder) =>
      readdirSync(folder)
        .filter((name) => name.endsWith('.json'))
        .some((name) => hasLibrary(folder, name)),
    );
}

/**
 * Returns true if the library that a Vulkan driver's JSON file names exists, or if the loader must search for the library.
 * @param {string} folder
 * @param {string} name
 */
function hasLibrary(folder, name) {
  try {
    const path = String(JSON.parse(readFileSync(join(folder, name), 'utf8')).ICD.library_path);
    return !path.includes('/') || existsSync(resolve(folder, path));
  } catch {
    return false;
  }
}

/** Programs that the tests need in addition to the packages: how to install each on this system, and what is skipped without it. */

import { existsSync, readFileSync } from 'node:fs';

/**
 * @typedef {'adapter' | 'browser' | 'nats-server' | 'lavapipe'} Program
 * @typedef {{ platform: NodeJS.Platform, hasApt: boolean }} System
 */

/** @returns {System} */
export const thisSystem = () => ({ platform: process.platform, hasApt: existsSync('/usr/bin/apt-get') });

/** True on Debian, whose apt-get has a Chromium. Ubuntu's package of that name needs snap. */
export const isDebian = () =>
  existsSync('/etc/os-release') && /^ID=debian$/m.test(readFileSync('/etc/os-release', 'utf8'));

/**
 * How to get a program on each kind of system; `other` applies to systems without an entry.
 * @type {Record<Program, { apt: string, darwin?: string, win32?: string, other: string }>}
 */
const INSTALL = {
  adapter: {
    apt: 'apt-get install chromium (its SwiftShader runs on the CPU), or install a Vulkan driver for your GPU',
    darwin: 'macOS includes Metal: update macOS, or run on a machine with a GPU',
    win32: 'update the GPU driver (Dawn uses Direct3D 12)',
    other: 'install a Vulkan driver for your GPU, or Chromium and set CHROME_PATH (its SwiftShader runs on the CPU)',
  },
  browser: {
    apt: 'apt-get install chromium',
    other: 'npx playwright install chromium, or install Chrome and set CHROME_PATH to its executable',
  },
  'nats-server': {
    apt: 'apt-get install nats-server',
    darwin: 'brew install nats-server',
    win32: 'choco install nats-server',
    other: 'see https://nats.io/download, and put nats-server on PATH',
  },
  lavapipe: {
    apt: 'apt-get install mesa-vulkan-drivers (Mesa 25 or newer; Debian 12 has it in bookworm-backports)',
    darwin: 'lavapipe is not available on macOS',
    win32: 'lavapipe is not available on Windows',
    other: 'install Mesa 25 or newer with its lavapipe driver, or set LAVAPIPE_ICD to its lvp_icd.json',
  },
};

/**
 * Returns the command or instruction that installs a program on a system.
 * @param {Program} program
 * @param {System} [system]
 * @returns {string}
 */
export function howToInstall(program, { platform, hasApt } = thisSystem()) {
  const ways = INSTALL[program];
  if (platform === 'linux') return hasApt ? ways.apt : ways.other;
  if (platform === 'darwin') return ways.darwin ?? ways.other;
  return (platform === 'win32' && ways.win32) || ways.other;
}

/**
 * Returns one line that names a missing program, what is skipped without it, and how to install it.
 * @param {Program} program
 * @param {string} skipped
 * @param {System} [system]
 */
export const missingLine = (program, skipped, system = thisSystem()) =>
  `${program}: not found; ${skipped} are skipped. To install it: ${howToInstall(program, system)}`;

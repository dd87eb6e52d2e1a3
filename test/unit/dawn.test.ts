import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { NoAdapterError } from '../../src/errors.ts';
import { checkDrivers, restLoop } from '../../src/cli/dawn.ts';
import { openAdapter, requestAdapter } from '../../src/gpu/adapter.ts';
import { hasGpuDevice, hasVulkanDriver } from '../../src/cli/chromium.mjs';

const turns = async (n: number) => {
  for (let i = 0; i < n; i++) await new Promise((resolve) => setImmediate(resolve));
};

test('one rest per turn of the event loop while a result is awaited, however many are requested, and none afterwards', async () => {
  let rests = 0;
  const loop = restLoop(() => rests++);
  for (let i = 0; i < 50; i++) {
    loop.begin();
    await turns(1);
    loop.end(); // and the next request follows in the same turn of the event loop
  }
  loop.begin();
  await turns(1);
  rests = 0;
  await turns(10);
  expect(rests).toBe(10);
  loop.end();
  await turns(2);
  rests = 0;
  await turns(5);
  expect(rests).toBe(0);
});

test('a rest is told how many turns have passed since the last request', async () => {
  const told: number[] = [];
  const loop = restLoop((passed) => told.push(passed));
  loop.begin();
  await turns(4);
  loop.begin();
  await turns(2);
  expect(told).toEqual([0, 1, 2, 3, 0, 1]);
  loop.end();
  loop.end();
});

test.each(['VK_ICD_FILENAMES', 'VK_DRIVER_FILES'])(
  '%s of a file that cannot be read is named, among others too',
  (name) => {
    const [there, missing] = ['package.json', '/nowhere/icd.json'];
    const sentence = `${name} names "${missing}", which cannot be read. Unset it, or set it to the .json file of a Vulkan driver.`;
    expect(() => checkDrivers({ [name]: missing })).toThrow(new NoAdapterError(sentence));
    expect(() => checkDrivers({ [name]: [there, missing].join(delimiter) })).toThrow(sentence);
    expect(() => checkDrivers({ [name]: [there, missing].join(delimiter) }, true)).not.toThrow();
    expect(() => checkDrivers({ [name]: missing }, true)).toThrow(sentence);
    for (const value of ['', there]) expect(() => checkDrivers({ [name]: value })).not.toThrow();
  },
);

test('a Vulkan driver is a description in a folder of the loader whose library exists', () => {
  const root = mkdtempSync(join(tmpdir(), 'webgrpo-vulkan-'));
  const folder = join(root, 'share/vulkan/icd.d');
  mkdirSync(folder, { recursive: true });
  const empty = { HOME: join(root, 'home'), XDG_CONFIG_DIRS: root, XDG_DATA_DIRS: root };
  const found = (name: string, text: string): boolean => {
    writeFileSync(join(folder, name), text);
    return hasVulkanDriver({ ...empty, XDG_DATA_DIRS: `${root}/none:${root}/share` });
  };
  // No environment variable replaces /etc and /usr/local/etc, where this machine can have a driver. So if the test's own folder has none,
  // the result must be that of this machine.
  const machine = hasVulkanDriver(empty);
  const ofLibrary = (path: string) => JSON.stringify({ ICD: { library_path: path } });
  expect(found('a.txt', ofLibrary('libvulkan_x.so'))).toBe(machine);
  expect(found('broken.json', '{')).toBe(machine);
  expect(found('gone.json', ofLibrary('/none/lib.so'))).toBe(machine);
  expect(found('near.json', ofLibrary('./near.json'))).toBe(true);
  expect(hasVulkanDriver({ ...empty, XDG_DATA_HOME: join(root, 'share') })).toBe(true);
  expect(hasVulkanDriver({ ...empty, VK_ADD_DRIVER_FILES: 'x.json' })).toBe(true);
});

test('a GPU of Linux is a device of its driver, of WSL too', () => {
  const dev = mkdtempSync(join(tmpdir(), 'webgrpo-dev-'));
  for (const name of ['null', 'tty0', 'nvidiactl', 'kvm', 'drip']) writeFileSync(join(dev, name), '');
  expect([hasGpuDevice(dev), hasGpuDevice('/nowhere')]).toEqual([false, false]);
  for (const name of ['dri', 'nvidia0', 'dxg', 'mali0', 'kgsl-3d0']) {
    const one = mkdtempSync(join(tmpdir(), 'webgrpo-dev-'));
    writeFileSync(join(one, name), '');
    expect(hasGpuDevice(one), name).toBe(true);
  }
});

test('without WebGPU a page that is not secure is told so, and any other place what to use', async () => {
  onTestFinished(() => void vi.unstubAllGlobals());
  vi.stubGlobal('navigator', {});
  for (const [isSecureContext, words] of [
    [undefined, 'Use a browser with WebGPU, or in Node call installWebGpu()'],
    [true, 'Use a browser with WebGPU'],
    [false, 'Open it through https or localhost.'],
  ] as const) {
    vi.stubGlobal('isSecureContext', isSecureContext);
    await expect(requestAdapter()).rejects.toThrow(words);
  }
});

test.each(['adapter', 'device'])(
  'a GPU that never gives out the %s ends in a sentence after 30 seconds',
  async (what) => {
    onTestFinished(() => void vi.unstubAllGlobals());
    onTestFinished(() => void vi.useRealTimers());
    vi.useFakeTimers();
    const never = new Promise(() => {});
    const adapter = { features: new Set(), limits: {}, requestDevice: () => never };
    vi.stubGlobal('navigator', {
      gpu: { requestAdapter: () => (what === 'adapter' ? never : Promise.resolve(adapter)) },
    });
    const opened = openAdapter().then(
      () => 'opened',
      (error: unknown) => String(error),
    );
    await vi.advanceTimersByTimeAsync(29_999);
    expect(await Promise.race([opened, Promise.resolve('waits')])).toBe('waits');
    await vi.advanceTimersByTimeAsync(1);
    expect(await opened).toBe(
      `NoAdapterError: The GPU gave out no ${what} within 30 seconds. Close other programs that use it, then start again.`,
    );
  },
);

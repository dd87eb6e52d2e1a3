import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { expect, test } from 'vitest';
import { NoAdapterError } from '../../src/errors.ts';
import { checkDrivers, restLoop } from '../../src/cli/dawn.ts';
import { hasVulkanDriver } from '../../src/cli/chromium.mjs';

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

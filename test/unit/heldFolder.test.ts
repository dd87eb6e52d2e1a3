/**
 * Tests the lock of a run folder: its holder, refused processes, the lock of a killed process, and a folder that is moved away during its
 * run.
 */

import { spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { beforeEach, expect, test } from 'vitest';
import { holdFolder } from '../../src/cli/process/heldFolder.ts';
import { lockFolder } from '../../src/cli/process/lock.ts';
import { FolderGoneError, InputError } from '../../src/errors.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { asJavaScript } from '../asJavaScript.ts';

let parent: string;
let folder: string;

beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), 'webgrpo-held-'));
  folder = join(parent, 'run');
});

const lockFile = () => join(parent, '.run.lock');
const written = () => JSON.parse(readFileSync(lockFile(), 'utf8')) as Record<string, unknown>;
/** Writes a lock file as a process that ended would have left it. */
const leave = (holder: object) =>
  writeFileSync(lockFile(), JSON.stringify({ host: hostname(), since: 'then', nonce: '0123456789ab', ...holder }));
const deadPid = () => spawnSync(process.execPath, ['-e', '']).pid;

test('a folder can be locked once; the error names holder and time; it is free again after release', () => {
  const lock = lockFolder(folder);
  expect(written()).toMatchObject({ pid: process.pid, host: hostname() });
  expect(() => lockFolder(folder)).toThrow(InputError);
  expect(existsSync(folder)).toBe(false);
  lock.release();
  expect(readdirSync(parent)).toEqual([]);
  lockFolder(folder).release();
});

test('the lock of a live process is refused with its id and what to do', () => {
  const other = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)']);
  try {
    leave({ pid: other.pid });
    expect(() => lockFolder(folder)).toThrow(
      `${folder} is in use by another run: process ${other.pid} on ${hostname()}, since then. Wait until it ends, stop it (kill ${other.pid}), or`,
    );
  } finally {
    other.kill('SIGKILL');
  }
});

test('locks of dead processes are taken over, also if another process has the id now', () => {
  for (const dead of [{ pid: deadPid() }, { pid: process.pid, started: 'another boot 17' }]) {
    // Without /proc, a process cannot be distinguished from a later process with the same id.
    if (dead.started !== undefined && process.platform !== 'linux') continue;
    leave(dead);
    const lock = lockFolder(folder);
    expect(written()).toMatchObject({ pid: process.pid });
    expect(readdirSync(parent)).toEqual(['.run.lock']);
    lock.release();
  }
});

test('files that killed processes left while they locked are deleted', () => {
  const pid = deadPid();
  leave({ pid });
  // The lock file of a process that was about to replace the dead holder, and then died too.
  const taker = { host: hostname(), since: 'then', nonce: 'ffffffffffff', pid };
  writeFileSync(`${lockFile()}.0123456789ab`, JSON.stringify(taker));
  lockFolder(folder).release();
  expect(readdirSync(parent)).toEqual([]);
});

test('the lock of another machine is refused, with the file to delete', () => {
  leave({ pid: 1, host: 'elsewhere' });
  expect(() => lockFolder(folder)).toThrow(
    /process 1 on elsewhere, .* cannot be seen from .*; if it does not, delete .*\.run\.lock\.$/,
  );
});

test('a file that is not a lock is refused by name', () => {
  for (const text of ['', '{}', '{"pid": -1, "host": "x", "nonce": "../../../etc"}']) {
    writeFileSync(lockFile(), text);
    expect(() => lockFolder(folder)).toThrow(/\.run\.lock is not a lock file of webgrpo\. Delete it if no other run/);
  }
});

test('a place where no lock can be written ends in one error message', () => {
  writeFileSync(folder, 'a file');
  expect(() => lockFolder(join(folder, 'inner', 'run'))).toThrow(InputError);
});

test('folders that a lock needed are deleted with it, unless they contain something else', () => {
  lockFolder(join(parent, 'a', 'b', 'run')).release();
  expect(readdirSync(parent)).toEqual([]);
  const lock = lockFolder(join(parent, 'a', 'b', 'run'));
  mkdirSync(join(parent, 'a', 'kept'));
  lock.release();
  expect(readdirSync(join(parent, 'a'))).toEqual(['kept']);
});

test('of many processes that start together exactly one gets the lock, of a free folder and of a dead process', async () => {
  const code = await asJavaScript('src/cli/process/lock.ts', 'src/errors.ts');
  const program = `
    import { readSync } from 'node:fs';
    const { lockFolder } = await import(${JSON.stringify(pathToFileURL(join(code, 'src/cli/process/lock.js')))});
    console.log('ready');
    readSync(0, new Uint8Array(1)); // all start at a byte from the test
    try { lockFolder(process.argv[1]); console.log('won'); } catch (error) { console.log(error.name); }
    setTimeout(() => {}, 60_000);`; // the holder keeps the lock until the last has tried
  for (const isLeft of [false, true]) {
    if (isLeft) leave({ pid: deadPid() });
    const all = Array.from({ length: 3 }, () => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', program, folder]);
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      const said = async () => (await lines.next()).value as string;
      return { said, start: () => child.stdin.write('x'), end: () => child.kill('SIGKILL') };
    });
    await Promise.all(all.map(({ said }) => said()));
    for (const { start } of all) start();
    const heard = await Promise.all(all.map(({ said }) => said()));
    all.forEach(({ end }) => end());
    expect(heard.sort()).toEqual([...Array.from({ length: 2 }, () => 'InputError'), 'won']);
  }
});

test('two names of one folder share a lock', async () => {
  mkdirSync(folder);
  symlinkSync(folder, join(parent, 'link'), 'junction');
  const held = holdFolder(folder);
  expect(() => holdFolder(join(parent, 'link'))).toThrow(/is in use by another run/);
  held[Symbol.dispose]();
  holdFolder(join(parent, 'link'))[Symbol.dispose]();
});

test.each<[string, () => void]>([
  ['renamed', () => renameSync(folder, `${folder}-away`)],
  ['deleted', () => rmSync(folder, { recursive: true })],
  [
    'replaced',
    () => {
      renameSync(folder, `${folder}-away`);
      mkdirSync(folder);
    },
  ],
  ['given to another run', () => rmSync(lockFile())],
])('a folder %s under its run ends the run, and no other is made', async (_, take) => {
  using held = holdFolder(folder);
  const { files } = held;
  const { folder: run } = await RunFolder.create(files, folder, { seed: 1 });
  await run.appendMetrics({ 'training/global_step': 1 });
  take();
  const before = readdirSync(parent, { recursive: true });
  await expect(run.appendMetrics({ 'training/global_step': 2 })).rejects.toThrow(FolderGoneError);
  await expect(files.writeFolder(run.checkpoint(2), new Map([['a', 'b']]))).rejects.toThrow(/was renamed, deleted or/);
  expect(readdirSync(parent, { recursive: true })).toEqual(before);
});

test('a run renames an earlier run of its name', async () => {
  const create = async (seed: number) => {
    using held = holdFolder(folder);
    return await RunFolder.create(held.files, folder, { seed });
  };
  await create(1);
  const { moved } = await create(2);
  expect(moved).toBe(`${folder}-1`);
  expect(readFileSync(join(folder, 'config.yaml'), 'utf8')).toBe('seed: 2\n');
});

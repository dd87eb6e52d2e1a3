/** Tests metrics.csv and TensorBoard's event files: compares them with bytes that other programs wrote, and reads them with TensorBoard. */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openTrackers } from '../../src/cli/run/trackers.ts';
import { disk } from '../../src/cli/files.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { crc32c, event, fileHeader, maskedCrc, scalars, sessionStart } from '../../src/report/tensorboard.ts';

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
const ascii = (text: string) => new TextEncoder().encode(text);
const wallTime = 1700000000.5;

const STEPS: Metrics[] = [
  { 'training/global_step': 0, 'val-core/t/acc/mean@1': 0.25 },
  { 'training/global_step': 1, 'critic/score/mean': 0.5, 'actor/pg_loss': NaN },
  { 'training/global_step': 2, 'critic/score/mean': 0.75, 'val-core/t/acc/mean@1': 0.5 },
];

/** Logs `steps` as a run does that starts, or that resumes after the steps of `earlier`. */
async function log(folder: RunFolder, loggers: string[], steps: Metrics[], earlier: Metrics[] = []): Promise<void> {
  const history = [...earlier];
  const trackers = await openTrackers(loggers, folder, history);
  for (const line of steps) {
    history.push(line);
    for (const tracker of trackers) await tracker.log(line, history);
  }
}

const newFolder = async () =>
  (await RunFolder.create(disk, join(mkdtempSync(join(tmpdir(), 'webgrpo-trackers-')), 'run'), {})).folder;

test("CRC-32C gives RFC 3720's values, and the check value of the catalogue", () => {
  expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
  expect(crc32c(new Uint8Array(32).fill(0xff))).toBe(0x62a8ab43);
  expect(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i))).toBe(0x46dd794e);
  expect(crc32c(ascii('123456789'))).toBe(0xe3069283);
});

test('events equal the bytes of protobuf', () => {
  // Bytes of Event(...).SerializeToString() as hex, by event_pb2 of tensorboard 2.21 with protobuf 7.36.
  const values = { 'critic/score/mean': 0.25, 'actor/pg_loss': -1.5 };
  expect(hex(event({ wallTime, step: 3 }, { scalars: values }))).toBe(
    '0900002040fc54d94110032a300a180a116372697469632f73636f72652f6d65616e150000803e0a140a0d6163746f722f70675f6c6f7373150000c0bf',
  );
  expect(hex(event({ wallTime, step: 300 }, { sessionStart: true }))).toBe('0900002040fc54d94110ac023a020801');
});

test('records are the bytes that tensorboardX wrote', () => {
  // Bytes that tensorboardX 2.6.5 wrote: SummaryWriter(purge_step=2); add_scalar('critic/score/mean', 0.25, 3); time.time() = 1700000000.5.
  expect(hex(fileHeader(wallTime))).toBe(
    '1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110',
  );
  expect(hex(sessionStart({ wallTime, step: 2 }))).toBe(
    '0f000000000000006d532b090900002040fc54d94110023a020801429b4049',
  );
  expect(hex(scalars({ wallTime, step: 3 }, { 'critic/score/mean': 0.25 }))).toBe(
    '2700000000000000bbe1b1460900002040fc54d94110032a1a0a180a116372697469632f73636f72652f6d65616e150000803ebaf876b4',
  );
  expect(maskedCrc(new Uint8Array(0))).toBe(0xa282ead8);
});

test('metrics.csv has one row per step; a later metric is added as the last column', async () => {
  const folder = await newFolder();
  const table = () => readFileSync(folder.file('metrics.csv'), 'utf8');
  await log(folder, ['csv'], STEPS);
  const header = 'training/global_step,val-core/t/acc/mean@1,critic/score/mean,actor/pg_loss\n';
  expect(table()).toBe(`${header}0,0.25,,\n1,,0.5,NaN\n2,0.5,0.75,\n`);
  // The run resumed after step 1, whose NaN had been stored, and was read back, as null.
  const kept = throughJson(STEPS.slice(0, 2));
  await log(folder, ['csv'], [{ 'training/global_step': 2, 'reward/a,b': 1 }], kept);
  expect(table()).toBe(`${header.trim()},"reward/a,b"\n0,0.25,,,\n1,,0.5,NaN,\n2,,,,1\n`);
  expect(readdirSync(folder.path).filter((name) => name.includes('csv'))).toEqual(['metrics.csv']);
});

test('without a tracker no other file is written', async () => {
  const folder = await newFolder();
  await log(folder, ['console', 'jsonl'], STEPS);
  expect(readdirSync(folder.path).sort()).toEqual(['config.yaml']);
});

/** Returns the records of an event file, parsed as the format is documented. Checks their lengths and CRCs. */
function records(file: string): Uint8Array[] {
  const bytes = readFileSync(file);
  const found: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = Number(bytes.readBigUInt64LE(at));
    expect(bytes.readUInt32LE(at + 8)).toBe(maskedCrc(bytes.subarray(at, at + 8)));
    const data = bytes.subarray(at + 12, at + 12 + length);
    expect(bytes.readUInt32LE(at + 12 + length)).toBe(maskedCrc(data));
    found.push(data);
    at += 16 + length;
  }
  return found;
}

test('a resumed run writes a second event file, which first purges the repeated steps', async () => {
  const folder = await newFolder();
  await log(folder, ['tensorboard'], STEPS);
  await log(folder, ['tensorboard'], STEPS.slice(2), STEPS.slice(0, 2));
  const files = readdirSync(folder.path).filter((name) => name.startsWith('events.out.tfevents.'));
  const [first, second] = files.sort().map((name) => records(folder.file(name)));
  expect([first.length, second.length]).toEqual([4, 3]);
  expect(hex(second[1])).toMatch(/10023a020801$/); // step 2, session_log { status: START }
});

const VENV = 'node_modules/.cache/webgrpo/tensorboard';

/** Returns the path of a Python with TensorBoard. `npm test -- --full` installs one into the cache if possible. */
function tensorboardPython(): string | undefined {
  const has = (python: string) =>
    spawnSync(python, ['-c', 'import tensorboard.backend.event_processing.event_accumulator']).status === 0;
  const found = [`${VENV}/bin/python`, 'python3'].find(has);
  if (found !== undefined || process.env['FULL_TESTS'] !== '1') return found;
  const pip = (...args: string[]) =>
    spawnSync(`${VENV}/bin/pip`, ['install', '--retries', '0', '--timeout', '5', ...args]);
  spawnSync('python3', ['-m', 'venv', VENV]);
  pip('numpy', 'protobuf', 'absl-py');
  pip('--no-deps', 'tensorboard'); // the packages of its server are not needed for reading
  return has(`${VENV}/bin/python`) ? `${VENV}/bin/python` : undefined;
}

const READER = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
runs = EventAccumulator(sys.argv[1])
runs.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in runs.Scalars(tag)] for tag in runs.Tags()['scalars']}
  if runs.Tags()['scalars'] else
  {tag: [[e.step, e.tensor_proto.float_val[0]] for e in runs.Tensors(tag)] for tag in runs.Tags()['tensors']}))
`;
import { throughJson } from '../json.ts';

test('TensorBoard reads every step once, and for a repeated step the second values', async (context) => {
  const python = tensorboardPython();
  if (!python) return context.skip('no Python with TensorBoard here');
  const folder = await newFolder();
  await log(folder, ['tensorboard'], STEPS);
  const again = [{ 'training/global_step': 2, 'critic/score/mean': 0.875 }];
  await log(folder, ['tensorboard'], again, STEPS.slice(0, 2));
  const { stdout, stderr } = spawnSync(python, ['-c', READER, folder.path], { encoding: 'utf8' });
  expect(stderr).not.toMatch(/Traceback/);
  const read = JSON.parse(stdout.replaceAll('NaN', 'null')) as Record<string, [number, number][]>;
  expect(read).toEqual({
    'val-core/t/acc/mean@1': [[0, 0.25]],
    'critic/score/mean': [
      [1, 0.5],
      [2, 0.875],
    ],
    'actor/pg_loss': [[1, null]],
  });
  expect(existsSync(folder.file('metrics.csv'))).toBe(false);
});

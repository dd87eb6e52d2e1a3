/** Tests complete models that `webgrpo merge --dtype` saves with 16-bit weights. */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readDtype } from '../../src/cli/run/checkpoints.ts';
import { merge } from '../../src/cli/commands/merge.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';

const SOURCE = 'checkpoints/gsm8k-tool';
const io = { json: false, text: () => {}, result: () => {} };
const tensorsOf = (folder: string) => readSafetensors(readFileSync(join(folder, 'model.safetensors')));

test.each([
  ['float32', 'float32', 0, 1],
  ['bfloat16', 'bfloat16', 2 ** -8, 0.51],
  ['float16', 'float16', 2 ** -11, 0.51],
])('%s: config, size and values', async (dtype, torchDtype, error, share) => {
  const out = join(mkdtempSync(join(tmpdir(), 'webgrpo-dtype-')), 'model');
  await merge.run({ positionals: [], overrides: [], flags: { model: SOURCE, out, dtype } }, io);
  const config = JSON.parse(readFileSync(join(out, 'config.json'), 'utf8')) as Record<string, unknown>;
  expect(config['torch_dtype']).toBe(torchDtype);
  const [saved, original] = [out, SOURCE].map((folder) => readFileSync(join(folder, 'model.safetensors')).length);
  if (dtype !== 'float32') expect(saved / tensorBytes()).toBeLessThan(share);
  expect(original).toBeGreaterThan(0);
  const before = tensorsOf(SOURCE);
  for (const [name, { data }] of tensorsOf(out)) {
    const want = before.get(name)!.data;
    const isFar = (v: number, i: number) => Math.abs(v - want[i]) > Math.abs(want[i]) * error + 2 ** -25;
    expect(Array.from(data).findIndex(isFar), name).toBe(-1);
  }
});

/** Converts the bytes of 16-bit values to float32. */
const tensorBytes = () => [...tensorsOf(SOURCE).values()].reduce((sum, { data }) => sum + data.byteLength, 0);

test('an unknown dtype is refused, and so is a merge without an adapter', async () => {
  expect(() => readDtype('int8')).toThrow('--dtype is "int8"; allowed: float32, float16, bfloat16.');
  const flags = { model: SOURCE, out: join(tmpdir(), 'webgrpo-never') };
  await expect(merge.run({ positionals: [], overrides: [], flags }, io)).rejects.toThrow(
    'is a full model without an adapter. Give one with --adapter FOLDER.',
  );
});

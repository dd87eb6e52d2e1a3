/**
 * Tests checkpoints and the disk: damaged checkpoints are refused with their name, interrupted writes are finished or removed, and errors
 * are clear messages.
 */

import * as promises from 'node:fs/promises';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, test, vi } from 'vitest';
import { damage } from '../../campaign/damage.ts';
import { FaultyFs, STOPS } from '../../campaign/files/faultyFs.ts';
import { diskFiles } from '../../src/cli/diskFiles.ts';
import { disk } from '../../src/cli/files.ts';
import { merge } from '../../src/cli/commands/merge.ts';
import { loadModelFiles } from '../../src/cli/run/checkpoints.ts';
import { checkpointToResume } from '../../src/cli/run/resume.ts';
import { InputError } from '../../src/errors.ts';
import { DifficultySampler } from '../../src/grpo/generate/difficultySampler.ts';
import { ReplayBuffer } from '../../src/extensions/pipelines/replayBuffer.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { initWeights } from '../../src/model/params.ts';
import { savedSteps } from '../../src/model/optimizer/savedState.ts';
import {
  expectRoom,
  loadTrainerCheckpoint,
  modelFiles,
  newestCheckpoint,
  writeCheckpoint,
} from '../../src/runs/checkpointFolder.ts';
import { parseTrainerState } from '../../src/runs/trainerState.ts';
import { tinyConfig } from '../gpu/tinyModel.ts';
import { refusalBy } from '../refusal.ts';

let root: string;
let run: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'webgrpo-checkpoint-'));
  run = join(root, 'run');
  vi.restoreAllMocks();
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
});

const weights = initWeights(tinyConfig, 1);
const optimizer = () =>
  new Map([
    ['step', { shape: [1], data: Float32Array.of(3) }],
    ['w.exp_avg', { shape: [2], data: Float32Array.of(-1, 1) }],
    ['w.exp_avg_sq', { shape: [2], data: Float32Array.of(0, 1) }],
  ]);
const folderOf = (step: number) => `${run}/checkpoints/step-${step}`;
const save = (step: number) =>
  writeCheckpoint(
    disk,
    folderOf(step),
    modelFiles(
      { config: tinyConfig, weights, tokenizerJson: {}, tokenizerConfigJson: {} },
      { state: { step, problems: step, updates: step }, weights, optimizer: optimizer() },
    ),
  );

/** Flips one bit of the byte at `at` in a file. */
function flip(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at] ^= 1;
  writeFileSync(path, bytes);
}

const configOf = (trainer: object) =>
  resolveTrainConfig({ name: 'run', model: { path: 'x' }, trainer: { defaultLocalDir: root, ...trainer } });

test('a damaged checkpoint is refused by file and name; the newest intact one is used, with a message', async () => {
  for (const step of [1, 2, 3]) await save(step);
  flip(`${folderOf(3)}/optimizer.safetensors`, 200);
  rmSync(`${folderOf(2)}/trainer_state.json`);
  const notes: string[] = [];
  expect(await newestCheckpoint(disk, run, 'trainer', (line) => notes.push(line))).toBe(folderOf(1));
  expect(notes).toEqual([
    expect.stringMatching(
      /step-3\/optimizer\.safetensors has changed since it was saved \(SHA-256\): the checkpoint is damaged/,
    ),
    expect.stringMatching(/step-2\/trainer_state\.json is missing: /),
    `using ${folderOf(1)}, the newest intact checkpoint`,
  ]);
  await expect(loadTrainerCheckpoint(disk, folderOf(3))).rejects.toThrow(
    /step-3\/optimizer\.safetensors has changed since/,
  );
  expect(await checkpointToResume(configOf({ resumeMode: 'auto' }))).toBe(folderOf(1));
  await expect(
    checkpointToResume(configOf({ resumeMode: 'resume_path', resumeFromPath: folderOf(3) })),
  ).rejects.toThrow(
    new RegExp(`^trainer\\.resumeFromPath: .*damaged.* The newest intact checkpoint of that run is ${folderOf(1)}\\.$`),
  );
  // Used as a model, the checkpoint of step 3 is intact. So is that of step 2, because a model does not read the file that is missing.
  expect(await newestCheckpoint(disk, run)).toBe(folderOf(3));
  flip(`${folderOf(3)}/model.safetensors`, 5000);
  await expect(loadModelFiles(folderOf(3))).rejects.toThrow(/step-3\/model\.safetensors has changed since/);
});

test('if no checkpoint is intact, a run does not restart in its place', async () => {
  await save(1);
  writeFileSync(`${folderOf(1)}/manifest.json`, '{"format": 1, "files": {}}');
  await expect(checkpointToResume(configOf({ resumeMode: 'auto' }))).rejects.toThrow(
    /^No checkpoint of .*run is intact\. .*manifest\.json is damaged, or of a newer version/,
  );
});

test('the error for a changed file says what to do; a folder without a manifest is reported as unchecked', async () => {
  await save(1);
  const path = `${folderOf(1)}/config.json`;
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace('"max_position_embeddings": 128', '"max_position_embeddings": 256'),
  );
  await expect(loadModelFiles(folderOf(1))).rejects.toThrow(
    /config\.json has changed since .* If you changed the file on purpose, delete manifest\.json next to it to read the folder unchecked\.$/,
  );
  rmSync(`${folderOf(1)}/manifest.json`);
  expect((await loadModelFiles(folderOf(1))).config.maxPositionEmbeddings).toBe(256);
  const notes: string[] = [];
  const { state } = await loadTrainerCheckpoint(disk, folderOf(1), (line) => notes.push(line));
  expect([state.step, notes]).toEqual([
    1,
    [expect.stringMatching(/has no manifest\.json, .*: it cannot be checked for damage$/)],
  ]);
});

test('files next to the weights are kept by merge, by export, and in checkpoints of training', async () => {
  const [source, out] = [join(root, 'source'), join(root, 'merged')];
  await writeCheckpoint(
    disk,
    source,
    modelFiles({ config: tinyConfig, weights, tokenizerJson: {}, tokenizerConfigJson: {} }),
  );
  rmSync(join(source, 'manifest.json'));
  const beside = {
    'generation_config.json': '{"eos_token_id":  [5, 6]}',
    'tokenizer.json': '{ }',
    'added_tokens.json': '{  }',
  };
  for (const [name, content] of Object.entries(beside)) writeFileSync(join(source, name), content);
  const model = await loadModelFiles(source);
  expect(model.config.eosTokenIds).toEqual([5, 6]);
  const io = { json: true, text: () => {}, result: () => {} };
  await merge.run({ flags: { model: source, out, dtype: 'bfloat16' }, positionals: [], overrides: [] }, io);
  const trained = { state: { step: 1, problems: 1, updates: 1 }, weights, optimizer: optimizer() };
  await writeCheckpoint(disk, folderOf(1), modelFiles({ ...model, weights }, trained));
  for (const folder of [out, folderOf(1)]) {
    for (const [name, content] of Object.entries(beside))
      expect(readFileSync(join(folder, name), 'utf8'), name).toBe(content);
    expect((await loadModelFiles(folder)).config.eosTokenIds).toEqual([5, 6]);
  }
});

test('the same checkpoint is not written twice, and a damaged one is replaced', async () => {
  await save(1);
  const fs = new FaultyFs();
  const again = new Map(readdirSync(folderOf(1)).map((name) => [name, readFileSync(`${folderOf(1)}/${name}`)]));
  again.delete('manifest.json');
  const order = JSON.parse(readFileSync(`${folderOf(1)}/manifest.json`, 'utf8')) as { files: Record<string, unknown> };
  const contents = new Map(Object.keys(order.files).map((name) => [name, again.get(name)!]));
  await writeCheckpoint(diskFiles(fs.operations), folderOf(1), contents);
  expect(fs.log).toEqual([]);
  flip(`${folderOf(1)}/model.safetensors`, 5000);
  await writeCheckpoint(diskFiles(fs.operations), folderOf(1), contents);
  expect(await newestCheckpoint(disk, run, 'trainer')).toBe(folderOf(1));
});

test('a replaced folder exists at every operation, and tidy finishes the replacement', async () => {
  const content = (value: string) =>
    new Map([
      ['a', value],
      ['b', value],
    ]);
  for (const fault of STOPS)
    for (let k = 0, more = true; more; k++) {
      const path = join(root, `${fault}-${k}`, 'checkpoints', 'step-8');
      await writeCheckpoint(disk, path, content('before'));
      more = await writeCheckpoint(diskFiles(new FaultyFs(k, fault).operations), path, content('after')).then(
        () => false,
        () => true,
      );
      const newest = await newestCheckpoint(
        { ...disk, exists: disk.exists },
        join(root, `${fault}-${k}`),
        'trainer',
      ).catch(() => '');
      expect(newest).toBeUndefined(); // no trainer's checkpoint, so it is not used as one
      await disk.tidy(join(root, `${fault}-${k}`));
      expect(readdirSync(join(root, `${fault}-${k}`, 'checkpoints'))).toEqual(['step-8']);
      expect(['before', 'after']).toContain(readFileSync(join(path, 'a'), 'utf8'));
      expect(readFileSync(join(path, 'b'), 'utf8')).toBe(readFileSync(join(path, 'a'), 'utf8'));
    }
});

test('tidy clears temporaries in all folders, and nothing else', async () => {
  const keep = ['metrics.jsonl', '.notes', 'checkpoints/step-1/a', 'rollouts/step-1.jsonl', '.git/x'];
  const clear = [
    '.config.yaml.01234567',
    '.step-2.89abcdef/model',
    'checkpoints/.step-2.89abcdef/a',
    'rollouts/.step-2.jsonl.00000000',
  ];
  const old = ['checkpoints/.step-1.old/a', 'checkpoints/.step-9.old/a'];
  for (const name of [...keep, ...clear, ...old]) await disk.write(join(run, name), name);
  await disk.tidy(run);
  const left = readdirSync(run, { recursive: true, encoding: 'utf8' }).filter((name) =>
    [...keep, 'checkpoints/step-9/a'].includes(name),
  );
  expect(left.sort()).toEqual([...keep, 'checkpoints/step-9/a'].sort());
  for (const name of [...clear, ...old]) expect(existsSync(join(run, name))).toBe(false);
  expect(readFileSync(join(run, 'checkpoints/step-1/a'), 'utf8')).toBe(keep[2]); // the new file stays, the old one is deleted
});

describe('errors of the disk', () => {
  const failing = (code: string) =>
    diskFiles({
      ...promises,
      open: () => Promise.reject(Object.assign(new Error(`${code}: x`), { code })),
    });

  test.each([
    [
      'ENOSPC',
      /the disk is full \(5 bytes are needed, and \d+ are free\)\. What was saved before is intact\. Free some space/,
    ],
    ['EDQUOT', /the quota of the disk is used up \(5 bytes are needed/],
    ['EROFS', /: the disk is read-only\.$/],
    ['EACCES', /: no permission\.$/],
    ['EPERM', /: no permission\.$/],
    ['ENOTDIR', /: a part of its path is a file, not a folder\.$/],
    ['ENAMETOOLONG', /: the name is too long for this disk\. Choose a shorter one\.$/],
    ['EMFILE', /: too many files are open/],
    ['EIO', /: the disk reports an error\./],
    ['EBUSY', /: another program holds it\.$/],
    ['EISDIR', /: it is a folder\.$/],
  ])('%s', async (code, sentence) => {
    const files = failing(code);
    for (const write of [
      () => files.write(`${run}/x`, 'hello'),
      () => files.append(`${run}/x`, 'hello'),
      () => files.writeFolder(run, new Map([['x', 'hello']])),
    ]) {
      const said = await refusalBy(write());
      expect(said).toMatch(sentence);
      expect(said).toMatch(/^Cannot write \S+: [^\n]+$/);
    }
  });

  test('errors of the real disk: a file instead of a folder, a long name, a folder instead of a file', async () => {
    writeFileSync(run, 'a file');
    await expect(disk.write(`${run}/checkpoints/x`, '')).rejects.toThrow(
      /^Cannot write .*: (a part of its path is a file|there is a file in its place)/,
    );
    await expect(disk.write(join(root, 'x'.repeat(300)), '')).rejects.toThrow(/the name is too long/);
    mkdirSync(join(root, 'folder'));
    await expect(disk.write(join(root, 'folder'), '')).rejects.toThrow(/^Cannot write .*folder: /);
    expect(readdirSync(root).sort()).toEqual(['folder', 'run']); // and no temporary files
  });

  test('a full disk leaves no temporary files, and keeps the existing ones', async () => {
    await save(1);
    const before = readdirSync(`${run}/checkpoints`);
    for (let k = 0; k < 12; k++) {
      const files = diskFiles(new FaultyFs(k, 'ENOSPC').operations);
      await files
        .writeFolder(folderOf(1), new Map([['a', 'after']]))
        .catch((error: unknown) => expect(error).toBeInstanceOf(InputError));
      if (existsSync(`${folderOf(1)}/a`)) break; // either it failed after everything was in place, or not at all
      expect(readdirSync(`${run}/checkpoints`)).toEqual(before);
      await loadTrainerCheckpoint(disk, folderOf(1));
    }
  });

  test('a checkpoint that does not fit is refused before it is written', async () => {
    const full = { ...disk, free: () => Promise.resolve(1000) };
    await expect(expectRoom(full, run, 3_000_000)).rejects.toThrow(
      /^A checkpoint in .*run needs 2\.9 MiB \(3000000 bytes\), but only 0\.0 MiB \(1000 bytes\) are free there\. Free some space, or/,
    );
    await expect(expectRoom(disk, run, 1)).resolves.toBeUndefined();
    await expect(writeCheckpoint(full, folderOf(1), new Map([['a', 'x'.repeat(2000)]]))).rejects.toThrow(InputError);
    expect(existsSync(run)).toBe(false);
  });
});

test('a state is accepted only if a run can have written it', () => {
  const parse = (state: object) => () => parseTrainerState(JSON.stringify(state), 'f', 8);
  const good = { step: 8, problems: 2, updates: 3 };
  const more = {
    klCoef: 0.1,
    carried: [1, 2],
    entropy: { coeff: 0, acts: true },
    roleBaselines: { a: -1 },
    parts: { x: [1] },
  };
  expect(parse({ ...good, ...more })()).toEqual({ ...good, ...more });
  expect(parse({ ...good, step: 4 })).toThrow(
    'f is of step 4, but its folder is of step 8: the checkpoint is damaged.',
  );
  expect(parse({ step: 8 })).toThrow(
    'f: "problems" is missing; no run of this version wrote that, so the checkpoint is damaged or newer.',
  );
  expect(parse({ ...good, carried: [0.5] })).toThrow('f: "carried.0" is 0.5; it must be a whole number');
  expect(parse({ ...good, stpe: 1 })).toThrow('f: "stpe" is not known');
});

test('impossible optimizer states are refused', () => {
  const wrong = (edit: (tensors: ReturnType<typeof optimizer>) => void) => () => {
    const tensors = optimizer();
    edit(tensors);
    savedSteps(tensors, 'S');
  };
  expect(savedSteps(optimizer(), 'S')).toBe(3);
  for (const value of [NaN, -7, 1e30, 0.5, Infinity])
    expect(wrong((t) => (t.get('step')!.data[0] = value))).toThrow(
      `S has the "step" ${Math.fround(value)}; allowed: a whole number`,
    );
  expect(wrong((t) => t.delete('step'))).toThrow('S has no "step"');
  expect(wrong((t) => (t.get('w.exp_avg')!.data[1] = NaN))).toThrow('S: tensor "w.exp_avg" holds NaN at element 1');
  expect(wrong((t) => (t.get('w.exp_avg_sq')!.data[0] = Infinity))).toThrow('S: tensor "w.exp_avg_sq" holds Infinity');
  expect(wrong((t) => (t.get('w.exp_avg_sq')!.data[0] = -1))).toThrow(
    'S: "w.exp_avg_sq" holds -1 at element 0, but a mean of squares',
  );
});

test('impossible states of other parts are refused', () => {
  const sampler = new DifficultySampler(configOf({}), 4);
  sampler.restore([[3, 0.5]]);
  for (const state of [null, {}, [[4, 0]], [[0, null]], [[-1, 0]], [['0', 0]], [0]]) {
    expect(() => sampler.restore(state)).toThrow(InputError);
    expect(sampler.state()).toEqual([[3, 0.5]]);
  }
  for (const state of [null, {}, [{}], [{ score: null, step: 1, samples: [] }], [{ score: 1, step: 1, samples: [{}] }]])
    expect(() => new ReplayBuffer(2).restore(state)).toThrow(InputError);
});

test('every kind of damage to every file is detected, and the run folder stays unchanged', async () => {
  const rows = await damage.run({ seed: 7, full: false, say: () => undefined });
  expect(rows.flatMap(({ failures }) => failures)).toEqual([]);
});

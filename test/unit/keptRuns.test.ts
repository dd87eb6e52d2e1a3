/** Tests the page's saved runs: which checkpoints are kept, how a run is named by its changes, a run as a .zip, and a repeated step. */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import { stringify } from 'yaml';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { evenlySpaced } from '../../demo/storage/thinning.ts';
import { differing } from '../../demo/training/differing.ts';
import { changesInWords, worded } from '../../demo/state/rules.ts';
import { changeWords, runName } from '../../demo/state/changeWords.ts';
import { diagnosisOf, reportPage } from '../../demo/storage/exports.ts';
import { HeldRun } from '../../demo/storage/heldRun.ts';
import { importRun } from '../../demo/storage/imports.ts';
import { trainedOn } from '../../demo/state/page.ts';
import { present } from '../../demo/state/present.ts';
import { changesText } from '../../demo/storage/changesFile.ts';
import { claim, expectSameSettings, type RunRecord, type SavedRun, SavedRuns } from '../../demo/storage/savedRuns.ts';
import { InputError } from '../../src/errors.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { initWeights } from '../../src/model/params.ts';
import { modelFiles, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { readZip, writeZip } from '../../demo/storage/zip.ts';
import { tinyConfig } from '../gpu/tinyModel.ts';
import { hasPython } from '../python.ts';
import { stub } from '../stub.ts';

describe('checkpoints that stay', () => {
  const saved = (steps: number[], bytes = 1) => steps.map((step) => ({ step, bytes }));
  const to = (last: number) => Array.from({ length: last }, (_, i) => i + 1);

  test('all checkpoints are kept if there is space', () =>
    expect(evenlySpaced(saved([1, 2, 3]), 3)).toEqual([1, 2, 3]));

  test('the newest two are always kept', () => expect(evenlySpaced(saved(to(9), 10), 1)).toEqual([8, 9]));

  test('the other checkpoints are evenly spaced over the run, whenever they are thinned', () => {
    let kept: number[] = [];
    for (const step of to(64)) {
      kept = evenlySpaced(saved([...kept, step]), 8);
      expect(kept.length).toBeLessThanOrEqual(8);
      expect(kept.slice(-2)).toEqual(to(step).slice(-2));
    }
    const gaps = [0, ...kept.slice(0, -1)].map((step, i) => kept[i] - step);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(2 * Math.ceil(64 / 6));
  });
});

/** Files in memory. Each byte takes one of `space` bytes. */
function memoryFiles(space = Infinity): FileSystem {
  const all = new Map<string, Uint8Array>();
  const under = (folder: string) => [...all.keys()].filter((path) => path.startsWith(`${folder}/`));
  const write = (path: string, content: string | Uint8Array) =>
    Promise.resolve(void all.set(path, typeof content === 'string' ? new TextEncoder().encode(content) : content));
  return stub<FileSystem>({
    exists: (path) => Promise.resolve(all.has(path) || under(path).length > 0),
    list: (folder) =>
      Promise.resolve([...new Set(under(folder).map((path) => path.slice(folder.length + 1).split('/')[0]))]),
    size: (path) => Promise.resolve(all.get(path)?.length),
    read: (path) => (all.has(path) ? Promise.resolve(all.get(path)!) : Promise.reject(new Error(`no ${path}`))),
    write,
    sha256: (path) => Promise.resolve(createHash('sha256').update(all.get(path)!).digest('hex')),
    async writeFolder(path, files) {
      for (const [name, content] of files) await write(`${path}/${name}`, content);
    },
    remove: (path) => Promise.resolve([path, ...under(path)].forEach((name) => all.delete(name))),
    tidy: () => Promise.resolve(),
    free: () => Promise.resolve(space - [...all.values()].reduce((sum, { length }) => sum + length, 0)),
  });
}

describe('saved runs', () => {
  const config = parseTrainConfig(readFileSync('configs/gsm8k-tool.yaml', 'utf8'), { source: 'c', note: () => {} });
  beforeEach(() => void vi.stubGlobal('navigator', {})); // a window without Web Locks
  afterEach(() => void vi.unstubAllGlobals());

  /** Stores a run of `bytes` bytes for each record. Run 1 is the oldest. */
  async function store(records: Partial<RunRecord>[], { space = Infinity, bytes = 0 } = {}) {
    const runs = new SavedRuns(memoryFiles(space));
    const deleted: string[] = [];
    runs.onDeleted = ({ id }) => deleted.push(id);
    for (const [i, record] of records.entries()) {
      await runs.files.write(`runs/${i + 1}/config.yaml`, stringify(config));
      await runs.files.write(`runs/${i + 1}/checkpoints/step-1/model`, new Uint8Array(bytes));
      await runs.writeRecord(`${i + 1}`, { started: i + 1, finished: false, ...record });
    }
    return { runs, deleted };
  }
  const many = (count: number): Partial<RunRecord>[] => Array.from({ length: count }, () => ({}));

  test('an eleventh run deletes the oldest, and reports it', async () => {
    const { runs, deleted } = await store(many(10));
    await HeldRun.begin(runs, config, {});
    expect(deleted).toEqual(['1']);
    expect((await runs.all()).map(({ id }) => id)).not.toContain('1');
  });

  test('a fork of the oldest of ten runs deletes none, and a later run keeps its parent', async () => {
    const { runs, deleted } = await store(many(10));
    await runs.fork(await runs.read('1'), 1);
    expect(deleted).toEqual([]);
    await HeldRun.begin(runs, config, {}).then((held) => held.end(false));
    expect(deleted).toEqual(['2']);
  });

  test('a fork has the changes of the steps that it keeps, and not those of later steps', async () => {
    const { runs } = await store([{}]);
    const rate = { key: 'actor.optim.lr', from: 0.0003, to: 0.0001 };
    await runs.files.write('runs/1/changes.jsonl', changesText([1, 2].map((step) => ({ step, ...rate }))));
    expect((await runs.fork(await runs.read('1'), 1)).changes).toEqual([{ step: 1, ...rate }]);
  });

  test('a run that this tab holds stays, also without Web Locks', async () => {
    const { runs, deleted } = await store(many(11));
    const { held } = await HeldRun.resume(runs, '1', config);
    await runs.prune();
    expect(deleted).toEqual([]);
    await held.end(false);
    const release = await claim('1');
    expect(await claim('1')).toBeUndefined();
    release!();
  });

  test('a run that is resumed with other settings is not replayed from an earlier step, in a fork either', async () => {
    const { runs } = await store([{}]);
    const weights = initWeights(tinyConfig, 1);
    const optimizer = new Map([['step', { shape: [1], data: Float32Array.of(3) }]]);
    for (const step of [2, 4]) {
      const trainer = { state: { step, problems: step, updates: step }, weights, optimizer };
      const model = { config: tinyConfig, weights, tokenizerJson: {}, tokenizerConfigJson: {} };
      await writeCheckpoint(runs.files, `runs/1/checkpoints/step-${step}`, modelFiles(model, trainer));
    }
    const resume = async (...overrides: string[]) => {
      const { held } = await HeldRun.resume(runs, '1', parseTrainConfig(stringify(config), { source: 'c', overrides }));
      await held.end(false);
      return runs.read('1');
    };
    expectSameSettings(await resume('trainer.saveFreq=9'), 0); // no step depends on it
    const changed = await resume('rollout.n=4');
    expect(() => expectSameSettings(changed, 2)).toThrow('the steps up to 4 were trained with other settings');
    expectSameSettings(changed, 4);
    const [early, late] = [await runs.fork(changed, 2), await runs.fork(changed, 4)];
    expect([early, late].map(({ record }) => record.changedAfter)).toEqual([2, 4]);
  });

  test('a run that is trained is not deleted', async () => {
    const { runs } = await store([{}]);
    const { held } = await HeldRun.resume(runs, '1', config);
    await expect(runs.discard('1')).rejects.toThrow('This run is open in another tab.');
    expect(await runs.all()).toHaveLength(1);
    await held.end(false);
    await runs.discard('1');
    expect(await runs.all()).toEqual([]);
  });

  test('a run shows the tries of the last step in its history, not of a later one', async () => {
    const { runs } = await store([{}]);
    const tries = (step: number, answer: string) => `${JSON.stringify({ step, answer, messages: [] })}\n`;
    await runs.files.write('runs/1/rollouts/step-30.jsonl', tries(30, 'some'));
    await runs.files.write('runs/1/latest.jsonl', tries(38, 'all'));
    const shown = async (step: number) => {
      await runs.files.write('runs/1/metrics.jsonl', `{"training/global_step":${step}}\n`);
      return (await runs.read('1')).tries.map(({ answer }) => answer);
    };
    expect([await shown(30), await shown(38)]).toEqual([['some'], ['all']]);
  });

  test('the diagnosis and the report name the changes during the run, and the newest settings', async () => {
    const { runs } = await store([{}]);
    await runs.files.write('runs/1/metrics.jsonl', '{"training/global_step":3,"training/not_finite":1}\n');
    const change = { step: 2, key: 'actor.optim.lr', from: 0.0003, to: 0.0001 };
    const run = { ...(await runs.read('1')), changes: [change, { ...change, step: 3, to: 0.00005 }] };
    const words = changesInWords(worded(run.changes));
    expect(await diagnosisOf(runs, run, words)).toMatch(
      /^Changed during the run: .* at step 3\.[^]*actor\.optim\.lr=0\.00005/,
    );
    expect((await reportPage(runs, run, words)).bytes).toContain(words);
    expect(await diagnosisOf(runs, { ...run, changes: [] }, '')).not.toContain('Changed');
  });

  const MIB = 2 ** 20;
  /** Saves a checkpoint of the newest of five runs with 1 MiB each. */
  async function saveWith(space: number, newest: Partial<RunRecord> = {}, bytes = 1.5 * MIB) {
    const { runs, deleted } = await store([...many(4), newest], { space, bytes: MIB });
    const { held } = await HeldRun.resume(runs, '5', config);
    const saved = await held.save(2, new Map([['model', new Uint8Array(bytes)]])).catch((error: unknown) => error);
    await held.end(false);
    return { saved, deleted };
  }

  test('a checkpoint deletes as few runs as it needs, oldest first', async () => {
    expect(await saveWith(7.5 * MIB)).toEqual({ saved: undefined, deleted: [] });
    expect(await saveWith(6 * MIB)).toEqual({ saved: undefined, deleted: ['1'] });
    expect(await saveWith(5.2 * MIB)).toEqual({ saved: undefined, deleted: ['1', '2'] });
  });

  test('a checkpoint of a fork does not delete the run from which it was forked', async () =>
    expect(await saveWith(6 * MIB, { forkedFrom: { id: '1', step: 1 } })).toEqual({
      saved: undefined,
      deleted: ['2'],
    }));

  test('a checkpoint that does not fit into the space that the browser reported deletes runs, and is saved', async () => {
    const { runs, deleted } = await store(many(4), { bytes: MIB });
    const { held } = await HeldRun.resume(runs, '4', config);
    const cause = new DOMException('', 'QuotaExceededError');
    vi.spyOn(runs.files, 'writeFolder').mockRejectedValueOnce(new InputError('There is no space left.', { cause }));
    await held.save(2, new Map([['model', new Uint8Array(1.5 * MIB)]]));
    await held.end(false);
    expect([deleted, (await runs.read('4')).checkpoints]).toEqual([
      ['1', '2'],
      [1, 2],
    ]);
  });

  test('the run in progress keeps as many of its checkpoints as fit into 96 MiB', async () => {
    const { runs } = await store([]);
    const held = await HeldRun.begin(runs, config, {});
    const files = new Map([['model', new Uint8Array(33 * MIB)]]);
    for (const step of [1, 2, 3]) await held.save(step, files);
    await held.end(false);
    expect((await runs.read(held.id)).checkpoints).toEqual([2, 3]);
  });

  test('a checkpoint that would not fit anyway deletes nothing', async () =>
    expect(await saveWith(5.1 * MIB, {}, 5 * MIB)).toEqual({
      saved: expect.objectContaining({ name: 'InputError' }) as unknown,
      deleted: [],
    }));
});

describe('what changed', () => {
  const text = readFileSync('configs/gsm8k-tool.yaml', 'utf8');
  const config = (...overrides: string[]) => parseTrainConfig(text, { source: 'c', overrides, note: () => {} });
  const words = (...overrides: string[]) => changeWords(stringify(config()), config(...overrides));

  test('no changes give no text', () => expect(words()).toEqual([]));

  test('changes are in plain words, the important keys first', () => {
    expect(words('seed=7', 'actor.optim.lr=1e-5', 'rollout.topK=5', 'actor.policyLoss.lossMode=cispo')).toEqual([
      expect.stringMatching(/^loss \w+ \u2192 cispo$/),
      expect.stringMatching(/^learning rate .* \u2192 1e\u22125$/),
      expect.stringMatching(/^seed \d+ \u2192 7$/),
      expect.stringMatching(/^rollout\.topK .* \u2192 5$/),
    ]);
  });

  test('a run is named by what it changes, unless it has a name', () => {
    const run = (changes: SavedRun['changes'], name?: string, ...overrides: string[]) =>
      stub<SavedRun>({
        config: stringify(config(...overrides)),
        changes,
        record: { started: Date.parse('2026-11-26T09:02:00'), name },
      });
    const first = run([]);
    const cheat = { step: 3, rule: 'reward' as const, name: 'reward guessing', code: 'x' };
    expect(runName(first, undefined)).toMatch(/^Run .*09:02$/);
    expect(runName(run([], undefined, 'actor.optim.lr=1e-5', 'seed=7'), first)).toBe('lr 1e\u22125, seed 7');
    expect(runName(run([cheat]), first)).toBe('reward guessing');
    expect(runName(run([cheat, { step: 9, rule: 'reward', name: "the task's own reward" }]), first)).toMatch(/^Run /);
    expect(runName(run([cheat], 'Calm'), first)).toBe('Calm');
  });

  test('the name of the run is not a change', () => expect(words('name=other')).toEqual([]));
});

test('a run that is deleted while it is renamed is gone, and a later name is dropped', async () => {
  const contents = new Map([['runs/a/run.json', '{"started":1}']]);
  let writing = 0;
  const files = {
    exists: (path: string) => Promise.resolve(contents.has(path)),
    read: (path: string) => Promise.resolve(new TextEncoder().encode(contents.get(path))),
    async write(path: string, text: string) {
      writing++;
      await new Promise((settled) => setImmediate(settled));
      contents.set(path, text);
      writing--;
    },
    async remove(path: string) {
      if (writing > 0) throw new Error('being written'); // as the browser's files do
      for (const name of contents.keys()) if (name.startsWith(path)) contents.delete(name);
    },
  };
  const runs = new SavedRuns(stub<FileSystem>(files));
  vi.stubGlobal('navigator', {});
  const changed = [runs.updateRecord('a', { name: 'Calm' }), runs.discard('a')];
  await new Promise((settled) => setImmediate(settled)); // the run is claimed, and "Calm" is being written
  await Promise.all([...changed, runs.updateRecord('a', { name: 'Late' })]);
  vi.unstubAllGlobals();
  expect([...contents]).toEqual([]);
});

test('a run has the name of the GPU that trained it, its forks too, and an imported run has none', async () => {
  onTestFinished(() => void vi.unstubAllGlobals());
  vi.stubGlobal('navigator', {}); // without Web Locks
  vi.stubGlobal('cancelAnimationFrame', () => {});
  const contents = new Map<string, Uint8Array>();
  const bytes = (content: string | Uint8Array) =>
    typeof content === 'string' ? new TextEncoder().encode(content) : content;
  const runs = new SavedRuns(
    stub<FileSystem>({
      exists: (path: string) => Promise.resolve(contents.has(path)),
      list: (folder: string) => {
        const inside = [...contents.keys()].filter((path) => path.startsWith(`${folder}/`));
        return Promise.resolve([...new Set(inside.map((path) => path.slice(folder.length + 1).split('/')[0]))]);
      },
      size: (path: string) => Promise.resolve(contents.get(path)?.length),
      tidy: () => Promise.resolve(),
      read: (path: string) => Promise.resolve(contents.get(path)!),
      write: (path: string, content: string | Uint8Array) => Promise.resolve(void contents.set(path, bytes(content))),
    }),
  );
  const config = parseTrainConfig(readFileSync('configs/gsm8k-tool.yaml', 'utf8'), { source: 'c' });
  const { id } = await HeldRun.begin(runs, config, { hub: undefined, adapter: 'This GPU' });
  await runs.files.write(`${runs.path(id)}/metrics.jsonl`, '');
  const begun = await runs.read(id);
  expect(begun.record.adapter).toBe('This GPU');
  expect((await runs.fork(begun, 0)).record.adapter).toBe('This GPU');
  const zip = new File([writeZip('run', await runs.contents(id)).slice()], 'run.zip');
  const imported = await importRun(runs, [zip]);
  expect(imported.record.adapter).toBeUndefined();

  present({ id, config, adapter: begun.record.adapter });
  expect(trainedOn.value).toBe('This GPU');
  present({ id: imported.id, config, adapter: imported.record.adapter });
  expect(trainedOn.value).toBeUndefined();
});

describe('a step done again', () => {
  test('a repeated step is equal whatever a clock measured', () =>
    expect(differing({ a: 0.1, 'timing_s/step': 1, 'perf/x': 2, 'val-core/t': 1 }, { a: 0.1 })).toEqual([]));

  test('a repeated step differs if one bit does', () =>
    expect(differing({ a: 0.1, b: 1 }, { a: 0.1 + 2 ** -55, b: 1, c: 0 })).toEqual(['a', 'c']));
});

describe('.zip', () => {
  const files = new Map<string, Uint8Array | string>([
    ['config.yaml', 'name: \u00fc\n'],
    ['checkpoints/step-1/model.safetensors', Uint8Array.from({ length: 5000 }, (_, i) => i % 251)],
    ['empty', ''],
  ]);
  const bytesOf = (content: Uint8Array | string) =>
    typeof content === 'string' ? new TextEncoder().encode(content) : content;

  test('a .zip is read back unchanged', async () => {
    const read = await readZip(writeZip('a run', files), 'run.zip');
    expect(read).toEqual(new Map(Array.from(files, ([path, content]) => [`a run/${path}`, bytesOf(content)])));
  });

  test.skipIf(!hasPython)('is opened by other programs', () => {
    const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-zip-')), 'run.zip');
    writeFileSync(path, writeZip('run', files));
    const listed = execFileSync('python3', ['-m', 'zipfile', '-t', path], { encoding: 'utf8' });
    expect(listed).toContain('Done testing');
  });

  test.skipIf(!hasPython)('that another program compressed is read', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-zip-')), 'run.zip');
    const code = `import zipfile; z = zipfile.ZipFile(${JSON.stringify(path)}, 'w', zipfile.ZIP_DEFLATED); z.writestr('run/a.txt', 'a' * 9999); z.mkdir('run/b') if hasattr(z, 'mkdir') else 0; z.close()`;
    execFileSync('python3', ['-c', code]);
    expect(new TextDecoder().decode((await readZip(readFileSync(path), 'run.zip')).get('run/a.txt'))).toBe(
      'a'.repeat(9999),
    );
  });

  test('that is damaged is refused in words', async () => {
    const zip = writeZip('run', files);
    const broken = zip.slice();
    broken[48] ^= 1;
    for (const [bytes, words] of [
      [new Uint8Array(10), 'no directory'],
      [zip.subarray(0, zip.length - 1), 'no directory'],
      [zip.subarray(100), 'directory is damaged|cut short|damaged'],
      [broken, 'is damaged'],
    ] as const)
      await expect(readZip(bytes, 'run.zip')).rejects.toThrow(
        new RegExp(`^run.zip cannot be read as a .zip: .*(${words})`),
      );
  });

  test('that unpacks to more than it says is refused', async () => {
    const packed = deflateRawSync(new Uint8Array(100_000));
    const zip = writeZip('run', new Map([['a', packed]]));
    const view = new DataView(zip.buffer);
    const line = zip.length - 22 - 46 - 'run/a'.length;
    view.setUint16(line + 10, 8, true);
    view.setUint32(line + 24, 10, true);
    await expect(readZip(zip, 'run.zip')).rejects.toThrow('is damaged');
  });
});

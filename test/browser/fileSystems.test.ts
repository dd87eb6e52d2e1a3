/** Tests that OPFS and IndexedDB give the same results for the operations that a run folder needs. */

import { expect, test } from 'vitest';
import { indexedDbFileSystem } from '../../demo/storage/indexedDb.ts';
import { loadTrainerCheckpoint, newestCheckpoint, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { type FileSystem, readFileText } from '../../src/runs/fileSystem.ts';
import { opfsFileSystem } from '../../demo/storage/opfs.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';

const PLACES: Record<'opfs' | 'indexedDb', () => Promise<FileSystem>> = {
  opfs: async () =>
    opfsFileSystem(await (await navigator.storage.getDirectory()).getDirectoryHandle('t', { create: true })),
  indexedDb: () => indexedDbFileSystem('webgrpo test'),
};

test('OPFS and IndexedDB give the same answers', async () => {
  const [opfs, indexedDb] = await Promise.all(Object.values(PLACES).map(async (open) => ask(await open())));
  expect(indexedDb).toEqual(opfs);
  expect(opfs[1]).toBe('{"training/global_step":1}\n{"training/global_step":2}\n');
  expect(opfs).toHaveLength(19);
});

async function ask(files: FileSystem): Promise<unknown[]> {
  const said: unknown[] = [];
  const say = async (answer: unknown) => void said.push(await answer);
  const text = (path: string) => readFileText(files, path).catch((error: Error) => `${error.name}: ${error.message}`);
  const sorted = async (folder: string) => (await files.list(folder)).sort();

  await say(files.exists('runs/a'));
  await files.write('runs/a/config.yaml', 'name: a');
  await files.append('runs/a/metrics.jsonl', '{"training/global_step":1}\n');
  await files.append('runs/a/metrics.jsonl', new TextEncoder().encode('{"training/global_step":2}\n'));
  await say(text('runs/a/metrics.jsonl'));
  await say(text('runs/a/none'));
  await say(files.size('runs/a/config.yaml'));
  await say(files.size('runs/a'));
  await say(Array.from(await files.read('runs/a/config.yaml', 2, 4)));
  await say(files.sha256('runs/a/config.yaml'));
  await say([await files.exists('runs/a'), await files.exists('runs/a/config.yaml'), await files.exists('runs')]);

  const folder = RunFolder.open(files, 'runs/a');
  await writeCheckpoint(files, folder.checkpoint(1), checkpoint(1));
  await writeCheckpoint(files, folder.checkpoint(2), checkpoint(2));
  await writeCheckpoint(files, folder.checkpoint(2), checkpoint(2, ' ')); // replaces the existing one
  await say(sorted('runs/a'));
  await say(sorted(folder.checkpoint(2)));
  await say(text(`${folder.checkpoint(2)}/trainer_state.json`));
  await say(newestCheckpoint(files, 'runs/a'));
  await say(loadTrainerCheckpoint(files, folder.checkpoint(1)).catch((error: Error) => error.message));
  await files.tidy('runs/a');
  await say(sorted('runs/a/checkpoints'));

  await files.rename('runs/a', 'runs/b');
  await say([await sorted('runs'), await sorted('runs/b'), await text('runs/b/config.yaml')]);
  await say(RunFolder.open(files, 'runs/b').metrics());
  await files.remove('runs/b/config.yaml');
  await files.remove('runs/none');
  await say(sorted('runs/b'));
  await files.remove('runs/b');
  await say([await files.exists('runs/b'), await sorted('runs')]);
  await say(typeof (await files.free('runs')));
  return said;
}

const checkpoint = (step: number, space = '') =>
  new Map<string, string | Uint8Array>([
    ['model.safetensors', Uint8Array.of(step, 0, 255)],
    ['trainer_state.json', `{"step":${step},${space}"problems":0,"updates":0}`],
  ]);

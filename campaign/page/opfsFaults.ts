/**
 * A scripted run in the browser's files that is stopped, or fails once, at operation k, and is then opened again and resumed. Runs in a
 * page.
 */

import { InputError } from '../../src/errors.ts';
import { newestCheckpoint, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { type FileSystem, readFileText } from '../../src/runs/fileSystem.ts';
import { KeptCheckpoints } from '../../src/runs/keptCheckpoints.ts';
import { opfsFileSystem } from '../../demo/storage/opfs.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { Closed, type Fault, FaultyRoot } from './faultyFolder.ts';

const STEPS = 4;
const RUN = 'runs/run';
const NAMES = ['config.json', 'model.safetensors', 'optimizer.safetensors'];

/** Last step that is known to be saved. */
interface Progress {
  step: number;
}

/** Returns the number of operations of a complete run. */
export const countOperations = (): Promise<number> =>
  inFolder(async (real) => {
    const faulty = new FaultyRoot();
    await script(opfsFileSystem(faulty.folder(real)), { step: 0 });
    return faulty.log.length;
  });

/** Runs with the fault, then resumes. Returns what went wrong; undefined = nothing. */
export const brokenAt = (k: number, fault: Fault): Promise<string | undefined> =>
  inFolder(async (real) => {
    const want = await inFolder(async (other) => {
      await script(opfsFileSystem(other), { step: 0 });
      return snapshot(other);
    });
    const [faulty, progress] = [new FaultyRoot(k, fault), { step: 0 }];
    const ended = await script(opfsFileSystem(faulty.folder(real)), progress).catch((error: unknown) => error);
    if (fault === 'full' ? !(ended instanceof InputError) : !(ended instanceof Closed))
      return `ended with ${String(ended)}`;
    await faulty.close();
    const files = opfsFileSystem(real);
    await files.tidy(RUN);
    const found = await newestCheckpoint(files, RUN, 'trainer');
    const step = found === undefined ? 0 : await stepOf(files, found);
    if (Number.isNaN(step)) return `${found} is mixed`;
    if (step < progress.step) return `step ${progress.step} was saved, and step ${step} is found`;
    try {
      await script(files, { step });
    } catch (error) {
      return `does not go on: ${String(error)}`;
    }
    return difference(want, await snapshot(real));
  });

/** Resumes after `progress.step`, or starts a new run if `progress.step` is 0. The last step is saved twice. */
async function script(files: FileSystem, progress: Progress): Promise<void> {
  const config = { name: 'run' };
  const folder =
    progress.step === 0 && !(await files.exists(RUN))
      ? (await RunFolder.create(files, RUN, config)).folder
      : await RunFolder.reopen(files, RUN, progress.step, config);
  const kept = await KeptCheckpoints.open(folder, { maxActorCkptToKeep: 2 });
  await kept.prune(); // deletes checkpoints whose deletion failed before the interruption
  for (let step = progress.step + 1; step <= STEPS; step++) {
    await folder.appendMetrics({ 'training/global_step': step });
    await writeCheckpoint(files, folder.checkpoint(step), contents(step, `step ${step}`));
    progress.step = step;
    await kept.prune();
  }
  await writeCheckpoint(files, folder.checkpoint(STEPS), contents(STEPS, `step ${STEPS} again`));
}

function contents(step: number, text: string): Map<string, string> {
  const state = JSON.stringify({ step, problems: step, updates: step });
  return new Map([...NAMES.map((name) => [name, `${name} of ${text}`] as const), ['trainer_state.json', state]]);
}

/** Returns the step of a checkpoint folder; NaN if its files come from several steps. */
async function stepOf(files: FileSystem, folder: string): Promise<number> {
  const texts = await Promise.all(
    NAMES.map(async (name) => (await readFileText(files, `${folder}/${name}`)).split(' of ')[1]),
  );
  return new Set(texts).size === 1 ? Number(texts[0].split(' ')[1]) : NaN;
}

/** Returns the content of every file, by path. */
async function snapshot(folder: FileSystemDirectoryHandle, path = ''): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for await (const [name, handle] of folder.entries())
    if (handle instanceof FileSystemFileHandle) found[`${path}${name}`] = await (await handle.getFile()).text();
    else Object.assign(found, await snapshot(handle, `${path}${name}/`));
  return found;
}

function difference(want: Record<string, string>, got: Record<string, string>): string | undefined {
  const names = new Set([...Object.keys(want), ...Object.keys(got)]);
  const wrong = [...names].find((name) => want[name] !== got[name]);
  return wrong === undefined ? undefined : `${wrong} is "${got[wrong]}", not "${want[wrong]}"`;
}

/** Runs `work` in a separate folder, which is deleted afterwards. */
async function inFolder<T>(work: (folder: FileSystemDirectoryHandle) => Promise<T>): Promise<T> {
  const root = await navigator.storage.getDirectory();
  const name = `campaign-${crypto.randomUUID()}`;
  try {
    return await work(await root.getDirectoryHandle(name, { create: true }));
  } finally {
    await root.removeEntry(name, { recursive: true });
  }
}

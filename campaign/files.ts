/**
 * The disk under a run stops, or fails once, at operation k, for every k (like SQLite's own tests). The run is then resumed. The resumed
 * run must produce the same metrics, rollouts and checkpoints, bit for bit, as the undisturbed run.
 */

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { diskFiles } from '../src/cli/diskFiles.ts';
import { InputError } from '../src/errors.ts';
import { checkCheckpoint, newestCheckpoint, writeCheckpoint } from '../src/runs/checkpointFolder.ts';
import { readFileText } from '../src/runs/fileSystem.ts';
import { Died, type Fault, FaultyFs, STOPS } from './files/faultyFs.ts';
import { runOn } from './files/scriptedRun.ts';
import { difference, snapshot } from './files/snapshot.ts';
import type { CampaignOptions, CampaignPart, CampaignRow } from './part.ts';

/** Settings of two runs. In the first, each operation meets each fault; in the second, the faults alternate. */
const SETTINGS = {
  'saveFreq 2': {},
  'the newest two and the best kept, two steps of rollouts, CSV, TensorBoard': {
    ...{ keepRollouts: 2, saveFreq: 1, maxActorCkptToKeep: 2, metricForBestModel: 'critic/score/mean' },
    logger: ['jsonl', 'csv', 'tensorboard'],
  },
};
const ERRORS: Fault[] = ['ENOSPC', 'EIO'];

/** Returns all numbers from 0 to `count` - 1 in the complete form, otherwise one of every `keep`. */
const sampled = (count: number, { full, seed }: CampaignOptions, keep: number): number[] =>
  Array.from({ length: count }, (_, k) => k).filter((k) => full || (k + seed) % keep === 0);

/** Runs `work` in an empty folder, which is deleted afterwards. Progress lines are not shown. */
export async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  // The campaign makes thousands of runs, so use a disk in memory if there is one.
  const root = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'webgrpo-campaign-'));
  const write = process.stderr.write.bind(process.stderr);
  process.stderr.write = () => true;
  try {
    return await work(join(root, 'run'));
  } finally {
    process.stderr.write = write;
    rmSync(root, { recursive: true });
  }
}

/** Runs with a fault, then resumes. Returns how the broken run ended, and what is wrong with the final result. */
function brokenAt(k: number, fault: Fault, trainer: object, want: Map<string, string>): Promise<string | undefined> {
  return inFolder(async (path) => {
    const ended = await runOn(diskFiles(new FaultyFs(k, fault).operations), path, trainer).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (STOPS.includes(fault) ? !(ended instanceof Died) && ended !== undefined : !isSentence(ended))
      return `ended with ${String(ended)}`;
    try {
      await runOn(diskFiles(), path, trainer);
    } catch (error) {
      return `does not go on: ${String(error)}`;
    }
    return difference(want, snapshot(path));
  });
}

/** True if there was no error, or an error that is meant for the user and has a message of one line. */
const isSentence = (error: unknown): boolean =>
  error === undefined || (error instanceof InputError && !error.message.includes('\n'));

async function runs(
  options: CampaignOptions,
  faults: readonly Fault[],
  what: string,
  keep: number,
): Promise<CampaignRow[]> {
  const rows: CampaignRow[] = [];
  for (const [name, trainer] of Object.entries(SETTINGS)) {
    const { want, count } = await inFolder(async (path) => {
      const fs = new FaultyFs();
      await runOn(diskFiles(fs.operations), path, trainer);
      return { want: snapshot(path), count: fs.log.length };
    });
    const failures: string[] = [];
    let tried = 0;
    const turns = trainer === SETTINGS['saveFreq 2'] && faults === STOPS ? undefined : faults.length;
    for (const k of sampled(count, options, keep))
      for (const fault of turns === undefined ? faults : [faults[(k + options.seed) % turns]]) {
        tried++;
        const wrong = await brokenAt(k, fault, trainer, want);
        if (wrong !== undefined) failures.push(`${name}: operation ${k}, ${fault}: ${wrong}`);
      }
    options.say(`${what}, ${name}: ${tried} of ${count} operations, ${failures.length} wrong`);
    rows.push({
      ...{ what: `${what}, ${name}: gone on with, identical`, tried, wrong: failures.length, failures },
      note: `${count} operations in a run of 8 steps`,
    });
  }
  return rows;
}

/** Saves the same step again with other content. Wherever the second save fails, one of the two checkpoints must be found intact. */
async function savedAgain(options: CampaignOptions): Promise<CampaignRow> {
  const content = (value: string) =>
    new Map([['trainer_state.json', state], ...FILES.map((name) => [name, value] as const)]);
  const failures: string[] = [];
  let tried = 0;
  const attempt = (k: number, fault: Fault) =>
    inFolder(async (path) => {
      const [disk, fs] = [diskFiles(), new FaultyFs(k, fault)];
      const folder = `${path}/checkpoints/step-8`;
      await writeCheckpoint(disk, folder, content('before'));
      const ended = await writeCheckpoint(diskFiles(fs.operations), folder, content('after')).catch(
        (error: unknown) => error,
      );
      for (const tidied of [false, true]) {
        if (tidied) await disk.tidy(path);
        const newest = await newestCheckpoint(disk, path, 'model');
        const found = newest === undefined ? 'nothing' : await readFileText(disk, `${newest}/a`);
        if (found !== 'after' && (found !== 'before' || ended === undefined))
          failures.push(`operation ${k}, ${fault}: ${found} is there`);
        if (tidied && newest !== folder) failures.push(`operation ${k}, ${fault}: ${newest} is the newest`);
        if (newest !== undefined) await checkCheckpoint(disk, newest, 'trainer');
      }
      const left = (await disk.list(`${path}/checkpoints`)).length;
      if (left !== 1) failures.push(`operation ${k}, ${fault}: ${left} folders are left`);
      return fs.log.length;
    });
  const count = await attempt(Infinity, 'none');
  for (const k of sampled(count, options, 4))
    for (const fault of [...STOPS, ...ERRORS]) {
      tried++;
      await attempt(k, fault).catch((error: unknown) => failures.push(`operation ${k}, ${fault}: ${String(error)}`));
    }
  options.say(`saved again: ${tried}, ${failures.length} wrong`);
  return { what: 'the same step saved again: one of the two is whole', tried, wrong: failures.length, failures };
}

const FILES = ['a', 'b', 'c', 'optimizer.safetensors'];
const state = JSON.stringify({ step: 8, problems: 1, updates: 1 });

export const files: CampaignPart = {
  name: 'files',
  run: async (options) => [
    ...(await runs(options, STOPS, 'a run stopped at a file operation (before, torn, after)', 90)),
    ...(await runs(options, ERRORS, 'a disk that fails once (full, error) ends the run in a sentence', 90)),
    await savedAgain(options),
  ],
};

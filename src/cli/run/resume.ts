/** Finds the checkpoint from which a run resumes (`trainer.resumeMode`), and formats the command that resumes a stopped run. */

import { existsSync } from 'node:fs';
import { basename, dirname, join, normalize, resolve, sep } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { InputError } from '../../errors.ts';
import { parseAdapterConfig } from '../../model/lora/adapter.ts';
import type { ParsedArgs } from '../args.ts';
import { quoted, startedAs } from '../process/startedAs.ts';
import {
  ADAPTER_CONFIG,
  checkCheckpoint,
  checkpointSteps,
  isOfTrainer,
  newestCheckpoint,
  stepOf,
} from '../../runs/checkpointFolder.ts';
import { freeName } from '../../runs/fileSystem.ts';
import type { RunFolder } from '../../runs/runFolder.ts';
import type { Task } from '../../tasks/task.ts';
import { disk, readJsonFile, readText } from '../files.ts';
import { importedHash } from '../importModule.ts';
import { configChanges } from '../../extensions/yaml/index.ts';
import { say } from './progress.ts';

/**
 * Returns the checkpoint folder to resume from; undefined = start from scratch. Throws InputError if trainer.resumeFromPath is not a
 * checkpoint, or is one of this run that was set aside.
 */
export async function checkpointToResume({ name, trainer }: TrainConfig): Promise<string | undefined> {
  const path = join(trainer.defaultLocalDir, name);
  if (trainer.resumeMode === 'resume_path') return checkpointIn(trainer.resumeFromPath!, path);
  if (trainer.resumeMode === 'disable') return undefined;
  const newest = await newestCheckpoint(disk, path, 'trainer', say);
  if (newest) return newest;
  say(`trainer.resumeMode is auto, but ${path} has no checkpoint of a training run: training from scratch`);
  return undefined;
}

async function checkpointIn(path: string, runFolder: string): Promise<string> {
  const isOfTraining = await isOfTrainer(disk, path);
  if (isOfTraining && runFolderOfCheckpoint(path) === resolve(runFolder) && stepOf(path) === undefined)
    throw new InputError(
      `trainer.resumeFromPath: ${path} was set aside when its run resumed from an earlier step, so the logs of the run are not those of ` +
        `its steps. Give the new run another name, for example name=${basename(runFolder)}-2.`,
    );
  if (isOfTraining) return checked(path);
  const newest = await newestCheckpoint(disk, path, 'trainer', say);
  if (newest) return newest;
  const what = existsSync(path) ? 'is not a checkpoint of a training run and contains none' : 'does not exist';
  throw new InputError(
    `trainer.resumeFromPath: ${path} ${what}. Give a folder such as runs/NAME/checkpoints/step-20, or a run folder.`,
  );
}

/** Returns the run folder of a checkpoint, whose path can be relative to a folder inside the run. */
export const runFolderOfCheckpoint = (checkpoint: string): string => dirname(dirname(resolve(checkpoint)));

/** Returns the folder if the checkpoint is intact. Otherwise throws: the user named this checkpoint, so no other may replace it. */
async function checked(folder: string): Promise<string> {
  try {
    await checkCheckpoint(disk, folder, 'trainer');
    return folder;
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    const newest = await newestCheckpoint(disk, runFolderOfCheckpoint(folder), 'trainer').catch(() => undefined);
    const instead = newest === undefined ? '' : ` The newest intact checkpoint of that run is ${newest}.`;
    throw new InputError(`trainer.resumeFromPath: ${error.message}${instead}`);
  }
}

/**
 * Returns a line for each setting that differs between `config` and the config of the run that wrote the checkpoint.
 * @param step step of the checkpoint
 */
export async function changesSince(checkpoint: string, config: TrainConfig, step: number): Promise<string[]> {
  const path = join(runFolderOfCheckpoint(checkpoint), 'config.yaml');
  return existsSync(path) ? configChanges(await readText(path), config, step) : [];
}

/**
 * Renames checkpoints of steps after `step`, which the resumed run will train again. Otherwise they would count as the run's newest
 * checkpoints.
 */
export async function setLaterAside(folder: RunFolder, step: number): Promise<void> {
  for (const later of (await checkpointSteps(folder.files, folder.path)).filter((saved) => saved > step)) {
    const path = folder.checkpoint(later);
    const aside = await freeName(folder.files, path);
    await folder.files.rename(path, aside);
    say(`the earlier checkpoint of step ${later} was renamed to ${aside}`);
  }
}

/**
 * Writes the SHA-256 of the task's module or data files, and of the files of `--import`, to task.json. Prints a warning if they have changed
 * since the part of the run that is resumed.
 * @param from checkpoint from which the run resumes
 */
export async function noteTask(
  folder: RunFolder,
  { name, sha256 }: Pick<Task, 'name' | 'sha256'>,
  from?: string,
): Promise<void> {
  const imports = importedHash();
  if (sha256 === undefined && imports === undefined) return;
  const path = folder.file('task.json');
  const earlier = from === undefined ? path : join(runFolderOfCheckpoint(from), 'task.json');
  const before = await notedHashes(earlier);
  sayChange(`task ${name}`, before.sha256, sha256, ' Problems that were trained on can return.');
  sayChange('--import', before.imports, imports);
  await folder.files.write(path, `${JSON.stringify({ name, sha256, imports }, null, 2)}\n`);
}

function sayChange(what: string, before: string | undefined, now: string | undefined, effect = ''): void {
  if (before === undefined || now === undefined || before === now) return;
  const [was, is] = [before, now].map((hash) => `${hash.slice(0, 12)}...`);
  say(`the files of ${what} have changed since the run started: SHA-256 ${is}, not ${was}.${effect}`);
}

/**
 * True if the base that a checkpoint records can be the model at `base`: the same path, also one relative to another working folder, or the
 * run whose checkpoint is at `base`.
 */
function isSameModel(recorded: string, base: string): boolean {
  const [was, now] = [resolve(recorded), resolve(base)];
  return now === was || now.startsWith(was + sep) || (!existsSync(was) && now.endsWith(sep + normalize(recorded)));
}

/** Prints a note if the adapters of the checkpoint `from` were trained on another base than `base`, which model.path names now. */
export async function noteBase(from: string, base: string): Promise<void> {
  const path = join(from, ADAPTER_CONFIG);
  if (!existsSync(path)) return;
  const { baseModel } = parseAdapterConfig(await readJsonFile(path));
  if (baseModel === undefined || isSameModel(baseModel, base)) return;
  say(
    `the adapters of ${from} were trained on ${baseModel}, but model.path names ${base} now. To train on the same base, set model.path=${baseModel}.`,
  );
}

/** SHA-256 of the code and the data of a user that a run has read. */
export interface FileHashes {
  /** Hash of the task's module or data files; undefined for a task without files. */
  sha256?: string | undefined;
  /** Hash of the files of `--import`; undefined without the flag. */
  imports?: string | undefined;
}

/** Returns the hashes in a task.json; none if the file does not exist. */
export async function notedHashes(path: string): Promise<FileHashes> {
  return existsSync(path) ? ((await readJsonFile(path)) as FileHashes) : {};
}

const RESUME_KEYS = /^trainer\.resume(Mode|FromPath)?=/;

type ResumedArgs = Pick<ParsedArgs, 'overrides'> & { [K in 'flags' | 'lists']?: ParsedArgs[K] | undefined };

/** Flags that are left out of the command line that resumes a run, because they do not affect the run. */
const LEFT_OUT = ['json'];
/** Flags with a secret in their value, and the text that the command line that resumes a run shows in its place. */
const SECRETS: Record<string, readonly [secret: RegExp, shown: string]> = {
  token: [/.+/, 'TEXT'],
  nats: [/(?<=\/\/[^:@]*:).*(?=@)/, 'PASSWORD'],
  worker: [/(?<=:).*/, 'PASSWORD'],
};

/** Returns the command line that resumes the run that was started with these arguments. */
export function resumeCommand(
  source: string,
  { overrides, flags = {}, lists = {} }: ResumedArgs,
  command = 'train',
): string {
  const kept = overrides.filter((word) => !RESUME_KEYS.test(word));
  const given = Object.entries({ ...flags, ...lists }).filter(([name]) => !LEFT_OUT.includes(name));
  const asked = given.flatMap(([name, values]) =>
    [values]
      .flat()
      .flatMap((value) => (value === true ? [`--${name}`] : value ? [`--${name}`, shown(name, value)] : [])),
  );
  return [startedAs(), command, ...[source, ...kept, 'trainer.resumeMode=auto', ...asked].map(quoted)].join(' ');
}

/** Returns the value of a flag without its secret. */
function shown(flag: string, value: string): string {
  const [secret, text] = SECRETS[flag] ?? [];
  return secret && text ? value.replace(secret, text) : value;
}

/** Decides what a path that a user gives means: a run, one of its checkpoints, or the config of either. */

import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { InputError } from '../../errors.ts';
import { readText, shippedPath } from '../files.ts';
import { say } from './progress.ts';

/** A run that a path names, and the weights that the path means. */
export interface NamedRun {
  /** Run folder, which has the config. */
  folder: string;
  /** The run folder, which means its newest checkpoint, or one of its checkpoint folders. */
  model: string;
}

const CONFIG = 'config.yaml';
/** Files of a folder that a run has trained into, unlike a folder that only has a config. */
const OF_RUN = ['metrics.jsonl', 'checkpoints'];

const isRun = (folder: string): boolean =>
  existsSync(join(folder, CONFIG)) && OF_RUN.some((name) => existsSync(join(folder, name)));

/** Returns the run of a run folder, of its config.yaml or of a folder runs/NAME/checkpoints/step-N; undefined for any other path. */
export function runOf(path: string): NamedRun | undefined {
  const folder = basename(path) === CONFIG ? dirname(path) : path;
  if (isRun(folder)) return { folder, model: folder };
  const above = dirname(resolve(path));
  if (basename(above) !== 'checkpoints' || !existsSync(path) || !isRun(dirname(above))) return undefined;
  return { folder: dirname(dirname(path)), model: path };
}

/** Returns the folder of the run that a path names, otherwise the path. */
export const runFolderOf = (path: string): string => runOf(path)?.folder ?? path;

/** Returns the model that a path names. The config of a run names the run's model. Throws InputError for any other config. */
export function modelOf(path: string): string {
  const run = runOf(path);
  if (run || !/\.ya?ml$/.test(path) || !existsSync(path)) return run?.model ?? path;
  throw new InputError(`${path} is a config, not a model. Train it, then give the run folder.`);
}

/** A config file, and the run that it is in, if any. */
export interface ConfigFile {
  /** Path of the file, for errors. */
  source: string;
  text: string;
  run?: NamedRun;
}

/** Reads the config that a path names: a config file, or the config of a run. Throws InputError. */
export async function openConfig(path: string): Promise<ConfigFile> {
  const run = runOf(path);
  const shipped = shippedPath(path);
  const isFolder = existsSync(shipped) && statSync(shipped).isDirectory();
  const source = run ? join(run.folder, CONFIG) : isFolder ? join(path, CONFIG) : path;
  if (isFolder && !existsSync(shippedPath(source)))
    throw new InputError(`${path} is a folder without ${CONFIG}. Give a config file or a run folder.`);
  return { source, text: await readText(source), ...(run && { run }) };
}

/**
 * Like `openConfig`, for a command that trains. A run folder or a checkpoint is resumed in its own folder, for which overrides are added to
 * the user's. The config of a run starts again from the run's start model, even if that run was resumed.
 */
export async function openTraining(
  path: string,
  given: readonly string[],
): Promise<ConfigFile & { overrides: string[] }> {
  const file = await openConfig(path);
  const meant = file.run ? resumed(path, file.run) : [];
  if (file.run && basename(path) === CONFIG && !given.some((word) => word.startsWith('trainer.resume')))
    say(`${path} is trained from its start model. To resume the run instead, give ${file.run.folder}.`);
  return { ...file, overrides: [...meant, ...given] };
}

function resumed(path: string, { folder, model }: NamedRun): string[] {
  if (basename(path) === CONFIG) return ['trainer.resumeMode=disable'];
  const place = { name: basename(resolve(folder)), 'trainer.defaultLocalDir': dirname(folder) };
  const from =
    model === folder
      ? { 'trainer.resumeMode': 'auto' }
      : { 'trainer.resumeMode': 'resume_path', 'trainer.resumeFromPath': model };
  return Object.entries({ ...place, ...from }).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
}

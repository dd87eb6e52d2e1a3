/** Resolves a path that a user gives to a run, to one of its checkpoints, or to a config file. */

import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { InputError } from '../../errors.ts';
import { readText, shippedPath } from '../files.ts';
import { say } from './progress.ts';

/** The run that a path names, and which of its weights the path selects. */
export interface NamedRun {
  /** Run folder. It contains config.yaml. */
  folder: string;
  /** Path of the weights: the run folder, which stands for its newest checkpoint, or a checkpoint folder of the run. */
  model: string;
}

const CONFIG = 'config.yaml';
/** A folder with config.yaml is a run folder only if it also has one of these files or folders. */
const OF_RUN = ['metrics.jsonl', 'checkpoints'];

const isRun = (folder: string): boolean =>
  existsSync(join(folder, CONFIG)) && OF_RUN.some((name) => existsSync(join(folder, name)));

/**
 * Returns the run that a path names: by its run folder, its config.yaml or a checkpoint folder (runs/NAME/checkpoints/step-N). Undefined
 * for any other path.
 */
export function runOf(path: string): NamedRun | undefined {
  const folder = withName(basename(path) === CONFIG ? dirname(path) : path);
  if (isRun(folder)) return { folder, model: folder };
  const above = dirname(resolve(path));
  if (basename(above) !== 'checkpoints' || !existsSync(path) || !isRun(dirname(above))) return undefined;
  const upper = dirname(dirname(path));
  return { folder: resolve(upper) === dirname(above) ? withName(upper) : dirname(above), model: path };
}

/** Returns the absolute path of a folder whose path does not end with its name, such as "." or ".."; otherwise the path itself. */
const withName = (folder: string): string => (/^\.{0,2}$/.test(basename(folder)) ? resolve(folder) : folder);

/** Returns the folder of the run that a path names; the path itself if it does not name a run. Prints `noteLiveChanges`. */
export function runFolderOf(path: string): string {
  const folder = runOf(path)?.folder ?? path;
  noteLiveChanges(folder);
  return folder;
}

/** Prints a note on a run of the page whose settings or rules were changed while it trained: config.yaml does not have them. */
export function noteLiveChanges(folder: string): void {
  const file = join(folder, 'changes.jsonl');
  if (!existsSync(file)) return;
  say(`${file} has settings or rules that were changed while the run trained. ${CONFIG} has those of its start.`);
}

/**
 * Returns the path of the model that a path names. The config.yaml of a run stands for the run's newest checkpoint. Throws InputError for
 * any other config file.
 */
export function modelOf(path: string): string {
  const run = runOf(path);
  if (run || !/\.ya?ml$/.test(path) || !existsSync(path)) return run?.model ?? path;
  throw new InputError(`${path} is a config, not a model. Train it, then give the run folder.`);
}

/** A config file, and the run to which it belongs, if any. */
export interface ConfigFile {
  /** Path of the config file, for errors. */
  source: string;
  text: string;
  run?: NamedRun;
}

/** Reads a config file, or the config.yaml of the run that the path names. Prints `noteLiveChanges`. Throws InputError. */
export async function openConfig(path: string): Promise<ConfigFile> {
  const file = await readConfig(path);
  if (file.run) noteLiveChanges(file.run.folder);
  return file;
}

async function readConfig(path: string): Promise<ConfigFile> {
  const run = runOf(path);
  const shipped = shippedPath(path);
  const isFolder = existsSync(shipped) && statSync(shipped).isDirectory();
  const source = run ? join(run.folder, CONFIG) : isFolder ? join(path, CONFIG) : path;
  if (isFolder && !existsSync(shippedPath(source)))
    throw new InputError(`${path} is a folder without ${CONFIG}. Give a config file or a run folder.`);
  if (/\.([cm]?[jt]s|jsonl|py|md|gguf)$/.test(source) && existsSync(source))
    throw new InputError(`${path} is not a config. Give the YAML file that names it, such as ${CONFIG}.`);
  return { source, text: await readText(source), ...(run && { run }) };
}

/**
 * Like `openConfig`, for commands that train and print the note only if they resume. For a run folder or a checkpoint, adds overrides that resume the run in its own folder. For
 * the config.yaml of a run, adds the override that starts again from the run's start model.
 */
export async function openTraining(
  path: string,
  given: readonly string[],
): Promise<ConfigFile & { overrides: string[] }> {
  const file = await readConfig(path);
  const meant = file.run ? resumed(path, file.run) : [];
  if (file.run && basename(path) === CONFIG && !given.some((word) => word.startsWith('trainer.resume')))
    say(
      `${path} is only the config: training starts again from the run's start model. To resume the run instead, give ${file.run.folder}.`,
    );
  return { ...file, overrides: [...meant, ...given] };
}

function resumed(path: string, { folder, model }: NamedRun): string[] {
  if (basename(path) === CONFIG) return ['trainer.resumeMode=disable'];
  const place = { name: basename(folder), 'trainer.defaultLocalDir': dirname(folder) };
  const from =
    model === folder
      ? { 'trainer.resumeMode': 'auto' }
      : { 'trainer.resumeMode': 'resume_path', 'trainer.resumeFromPath': model };
  return Object.entries({ ...place, ...from }).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
}

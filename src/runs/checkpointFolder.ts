/**
 * Writes and reads checkpoint folders: a model or adapter (Hugging Face format), trainer state and a manifest.
 * Files that differ from their manifest are never returned.
 */

import type { Checkpoint, TrainerState } from '../grpo/types.ts';
import { type ModelCheckpoint, loadCheckpoint, saveCheckpoint } from '../model/checkpoint/checkpoint.ts';
import { expectFinite, openCheckpoint } from '../model/checkpoint/open.ts';
import { readSafetensors, type SafetensorsDtype, writeSafetensors } from '../model/checkpoint/safetensors.ts';
import { filesBeside } from '../model/checkpoint/sourceFiles.ts';
import type { TensorMap } from '../model/engine.ts';
import { type Adapter, saveAdapter } from '../model/lora/adapter.ts';
import { savedSteps } from '../model/optimizer/savedState.ts';
import { InputError } from '../errors.ts';
import { filesIn, type FileSystem, type FolderFiles } from './fileSystem.ts';
import { checkFiles, MANIFEST, readChecked, readManifest, withManifest } from './manifest.ts';
import { parseTrainerState } from './trainerState.ts';

const STATE = 'trainer_state.json';
const OPTIMIZER = 'optimizer.safetensors';
/** Weights of the reference model of a KL term. Written only if the reference is refreshed during the run. */
const REFERENCE = 'reference.safetensors';
/** Files that a trainer reads, and a reader of the model does not. */
const OF_TRAINER = [STATE, OPTIMIZER, REFERENCE];

/** True for a file that belongs to the model: neither a file of the trainer nor the manifest. */
export const ofModelAlone = (name: string): boolean => ![...OF_TRAINER, MANIFEST].includes(name);

export const ADAPTER_CONFIG = 'adapter_config.json';
const ADAPTER_WEIGHTS = 'adapter_model.safetensors';

/** Purpose of reading a checkpoint folder: only its model (or adapter), or to resume training. */
export type CheckpointUse = 'model' | 'trainer';

/** Returns the files of a model. With `trainer`, adds the files with its optimizer state and counters. */
export function modelFiles(model: ModelCheckpoint, trainer?: Checkpoint, dtype?: SafetensorsDtype): FolderFiles {
  const files = new Map<string, Uint8Array | string>(saveCheckpoint(model, dtype));
  if (trainer) addTrainer(files, trainer);
  return files;
}

/**
 * Returns the files of a checkpoint with an adapter: the adapter as PEFT saves it, the base model's text files except config.json, and the
 * trainer's state.
 */
export function adapterFiles(
  adapter: Adapter,
  base: Omit<ModelCheckpoint, 'config' | 'weights'>,
  trainer: Checkpoint,
): FolderFiles {
  const files = new Map<string, Uint8Array | string>([...saveAdapter(adapter), ...filesBeside(base)]);
  addTrainer(files, trainer);
  return files;
}

function addTrainer(files: Map<string, Uint8Array | string>, { optimizer, reference, state }: Checkpoint): void {
  files.set(OPTIMIZER, writeSafetensors(optimizer));
  if (reference) files.set(REFERENCE, writeSafetensors(reference));
  files.set(STATE, `${JSON.stringify(state, null, 2)}\n`);
}

/**
 * Writes a checkpoint folder and its manifest, unless the folder has the same content already. Throws InputError before writing if the disk
 * has too little space.
 */
export async function writeCheckpoint(files: FileSystem, folder: string, contents: FolderFiles): Promise<void> {
  const all = await withManifest(contents);
  if (await isSaved(files, folder, all)) return;
  const sizes = Array.from(all.values(), (content) => new Blob([content as BlobPart]).size);
  await expectRoom(
    files,
    folder,
    sizes.reduce((a, b) => a + b, 0),
  );
  await files.writeFolder(folder, all);
}

async function isSaved(files: FileSystem, folder: string, contents: FolderFiles): Promise<boolean> {
  try {
    const manifest = await readManifest(files, folder);
    if (!manifest || `${JSON.stringify(manifest, null, 2)}\n` !== contents.get(MANIFEST)) return false;
    await checkFiles(files, folder, manifest, () => true);
    return true;
  } catch (error) {
    if (error instanceof InputError) return false; // a damaged one is replaced
    throw error;
  }
}

/** Throws InputError if `bytes` more do not fit into the free space. */
export async function expectRoom(files: FileSystem, path: string, bytes: number): Promise<void> {
  const free = await files.free(path);
  if (free === undefined || bytes <= free) return;
  const mib = (n: number) => `${(n / 2 ** 20).toFixed(1)} MiB`;
  throw new InputError(
    `A checkpoint in ${path} needs ${mib(bytes)} (${bytes} bytes), but only ${mib(free)} (${free} bytes) are free there. Free some space, or ` +
      'choose another folder with trainer.defaultLocalDir.',
  );
}

/**
 * Reads a checkpoint for `GrpoTrainer.restore` from a folder that a trainer has written. Throws InputError if a file differs from what was
 * saved, or if no run can have written its content.
 * @param note called with a warning if the folder has no manifest to check its files by
 */
export async function loadTrainerCheckpoint(
  files: FileSystem,
  folder: string,
  note?: (line: string) => void,
): Promise<Checkpoint> {
  const manifest = await readManifest(files, folder);
  if (!manifest)
    note?.(`${folder} has no ${MANIFEST}, which older versions did not write: it cannot be checked for damage`);
  else await checkFiles(files, folder, manifest, () => false);
  const has = async (name: string) =>
    manifest ? Object.hasOwn(manifest.files, name) : files.exists(`${folder}/${name}`);
  const read = (name: string) => readChecked(files, folder, manifest, name);
  const source = async (name: string) => ((await has(name)) ? read(name) : undefined);
  const tensors = async (name: string) => readTensors(await read(name), name, folder);
  const state = await readState(folder, read);
  const weights = (await has(ADAPTER_CONFIG)) ? await tensors(ADAPTER_WEIGHTS) : (await loadCheckpoint(source)).weights;
  const optimizer = await tensors(OPTIMIZER);
  savedSteps(optimizer, `${folder}/${OPTIMIZER}`);
  return {
    state,
    weights,
    optimizer,
    ...((await has(REFERENCE)) && { reference: await tensors(REFERENCE) }),
  };
}

/** Returns the step after which a run resumes from a checkpoint of a training run. Throws InputError. */
export const stepToResume = async (files: FileSystem, folder: string): Promise<number> =>
  (await readState(folder, (name) => files.read(`${folder}/${name}`))).step;

function readTensors(bytes: Uint8Array, name: string, folder: string): TensorMap {
  const tensors = readSafetensors(bytes, `${folder}/${name}`);
  expectFinite(tensors, `${folder}/${name}`);
  return tensors;
}

async function readState(folder: string, read: (name: string) => Promise<Uint8Array>): Promise<TrainerState> {
  return parseTrainerState(new TextDecoder().decode(await read(STATE)), `${folder}/${STATE}`, stepOf(folder));
}

/** Throws InputError if a folder is damaged. Without a manifest, its weights are read and so checked only if `use` is 'trainer'. */
export async function checkCheckpoint(files: FileSystem, folder: string, use: CheckpointUse): Promise<void> {
  const manifest = await readManifest(files, folder);
  const forTrainer = use === 'trainer';
  if (manifest) {
    await checkFiles(files, folder, manifest, (name) => forTrainer || !OF_TRAINER.includes(name));
    if (forTrainer) await readState(folder, (name) => files.read(`${folder}/${name}`));
  } else if (forTrainer) await loadTrainerCheckpoint(files, folder);
  else if (!(await files.exists(`${folder}/${ADAPTER_CONFIG}`))) await openCheckpoint(filesIn(files, folder));
}

/** Returns true for a checkpoint that a training run has written, even if it is damaged. */
export async function isOfTrainer(files: FileSystem, folder: string): Promise<boolean> {
  for (const name of [STATE, OPTIMIZER]) if (await files.exists(`${folder}/${name}`)) return true;
  return false;
}

/** Matches the folder of a step, and the name of its older version while it is being replaced (`FileSystem.writeFolder`). */
const STEP_FOLDER = /^(?:step-(\d+)|\.step-(\d+)\.old)$/;

/** Returns the step in the name of a checkpoint folder; undefined for another name, such as that of a checkpoint that was set aside. */
export function stepOf(folder: string): number | undefined {
  const [, step, old] = STEP_FOLDER.exec(folder.split(/[\\/]+/).findLast((part) => part !== '') ?? '') ?? [];
  return step === undefined && old === undefined ? undefined : Number(step ?? old);
}

/** Returns the steps whose checkpoints are in a run folder, in ascending order. */
export async function checkpointSteps(files: FileSystem, runFolder: string): Promise<number[]> {
  const names = await files.list(`${runFolder}/checkpoints`);
  const steps = names.flatMap((name) => /^step-(\d+)$/.exec(name)?.[1] ?? []).map(Number);
  return steps.sort((a, b) => a - b);
}

/**
 * Returns the folder of the newest intact checkpoint of a run. Undefined if the run has no checkpoint. Throws InputError if all are
 * damaged.
 * @param note called with a message on each newer checkpoint that is damaged
 */
export async function newestCheckpoint(
  files: FileSystem,
  runFolder: string,
  use: CheckpointUse = 'model',
  note: (line: string) => void = () => {},
): Promise<string | undefined> {
  const damaged: InputError[] = [];
  for (const folder of await newestFirst(files, `${runFolder}/checkpoints`)) {
    if (use === 'trainer' && !(await isOfTrainer(files, folder))) continue;
    try {
      await checkCheckpoint(files, folder, use);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      damaged.push(error);
      continue;
    }
    for (const { message } of damaged) note(message);
    if (damaged.length > 0) note(`using ${folder}, the newest intact checkpoint`);
    return folder;
  }
  if (damaged.length === 0) return undefined;
  throw new InputError(`No checkpoint of ${runFolder} is intact. ${damaged[0].message}`);
}

async function newestFirst(files: FileSystem, folder: string): Promise<string[]> {
  const names = (await files.list(folder)).filter((name) => STEP_FOLDER.test(name));
  // Among equal steps, the folder of the step is before the older version that it replaces.
  names.sort((a, b) => stepOf(b)! - stepOf(a)! || (a < b ? 1 : -1));
  return names.map((name) => `${folder}/${name}`);
}

/** Exports a saved run, its model and its report as files. The command line can open them. */

import { InputError } from '../../src/errors.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { treeWith } from '../../src/grpo/live.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import { loadCheckpoint, withTokenizer } from '../../src/model/checkpoint/checkpoint.ts';
import { ADAPTER_CONFIG, newestCheckpoint, ofModelAlone } from '../../src/runs/checkpointFolder.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { withManifest } from '../../src/runs/manifest.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { writeZip } from './zip.ts';
import { nameOf } from './saved.ts';
import type { SavedRun, SavedRuns } from './savedRuns.ts';

/** A file that a browser saves. */
export interface Download {
  name: string;
  bytes: Uint8Array<ArrayBuffer> | string;
}

/** Returns the run's folder with its newest checkpoint. */
export async function runZip(runs: SavedRuns, run: SavedRun): Promise<Download> {
  const all = await runs.contents(run.id);
  const older = (path: string) => path.startsWith('checkpoints/') && !path.startsWith(`checkpoints/step-${run.step}/`);
  const name = fileName(run);
  return { name: `${name}.zip`, bytes: writeZip(name, new Map([...all].filter(([path]) => !older(path)))) };
}

/** Returns the newest model (or adapter) in the format of Hugging Face's libraries. Throws InputError without a model. */
export async function modelZip(runs: SavedRuns, run: SavedRun): Promise<Download> {
  const folder = await checkpointOf(runs, run);
  const files = new Map<string, Uint8Array>();
  for (const file of (await runs.files.list(folder)).filter(ofModelAlone))
    files.set(file, await runs.files.read(`${folder}/${file}`));
  const name = `${fileName(run)}-step-${run.step}`;
  return { name: `${name}.zip`, bytes: writeZip(name, await withManifest(files)) };
}

/** Returns the newest model for llama.cpp. Throws InputError without a model, or if there is only an adapter. */
export async function modelGguf(runs: SavedRuns, run: SavedRun): Promise<Download> {
  const folder = await checkpointOf(runs, run);
  if (await runs.files.exists(`${folder}/${ADAPTER_CONFIG}`))
    throw new InputError(
      'This run trained a LoRA adapter. Save the model, then merge the adapter with "webgrpo merge".',
    );
  const { ggufModel } = await import('../../src/extensions/gguf/index.ts');
  const model = withTokenizer(folder, await loadCheckpoint(sourceOf(runs.files, folder)));
  const name = `${fileName(run)}-step-${run.step}`;
  const { bytes } = ggufModel({ name, type: 'F16' }, model);
  return { name: `${name}.gguf`, bytes: bytes };
}

/** Returns report.html, as `webgrpo report` writes it. @param changed changes during the run, in words */
export async function reportPage(runs: SavedRuns, run: SavedRun, changed: string): Promise<Download> {
  const [{ runReport }, { standalonePage }] = await Promise.all([
    import('../../src/report/runReport.ts'),
    import('../../src/report/standalonePage.ts'),
  ]);
  const folder = RunFolder.open(runs.files, runs.path(run.id));
  const report = runReport({
    name: nameOf(run),
    metrics: run.history,
    rollouts: await folder.rollouts(),
    valRollouts: await folder.valRollouts(),
    config: run.config,
  });
  return {
    name: `${fileName(run)}-report.html`,
    bytes: standalonePage({ ...report, summary: underChanges(changed, report.summary) }),
  };
}

/** Returns what `webgrpo doctor` prints about the run, with the newest settings. @param changed changes during the run, in words */
export async function diagnosisOf(runs: SavedRuns, run: SavedRun, changed: string): Promise<string> {
  const { id, history, changes } = run;
  const { diagnose, diagnosisText } = await import('../../src/report/doctor.ts');
  const samples = await RunFolder.open(runs.files, runs.path(id)).rollouts();
  const config = parseTrainConfig(run.config, { source: 'config.yaml', note: () => {} });
  const settings = Object.fromEntries(changes.flatMap((of) => ('key' in of ? [[of.key, of.to]] : [])));
  const newest = treeWith(config, settings) as unknown as TrainConfig;
  return underChanges(changed, diagnosisText(diagnose({ history, samples, config: newest })));
}

const underChanges = (changed: string, text: string): string =>
  changed === '' ? text : `Changed during the run: ${changed}.\n\n${text}`;

async function checkpointOf(runs: SavedRuns, run: SavedRun): Promise<string> {
  const folder = await newestCheckpoint(runs.files, runs.path(run.id));
  if (folder !== undefined) return folder;
  throw new InputError('This run has no saved model yet. The first one is saved after step 1.');
}

const sourceOf = (files: FileSystem, folder: string) => async (name: string) =>
  (await files.size(`${folder}/${name}`)) === undefined ? undefined : files.read(`${folder}/${name}`);

/** Replaces characters that some disks do not allow in names. */
const fileName = (run: SavedRun): string =>
  nameOf(run)
    .replaceAll(/[^\p{L}\p{N}._-]+/gu, '-')
    .replaceAll(/^[-.]+|[-.]+$/g, '') || 'run';

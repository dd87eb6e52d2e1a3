/** Imports a run of the command line or of another browser, from its folder or a .zip of it. */

import { InputError } from '../../src/errors.ts';
import { isGguf } from '../../src/model/checkpoint/address.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import { readMetrics } from '../../src/runs/readLog.ts';
import { readZip } from './zip.ts';
import { readChanges } from './changesFile.ts';
import { hasCode } from './runChanges.ts';
import { CHANGES, type RunRecord, type SavedRun, type SavedRuns } from './savedRuns.ts';

/** Maximum number of bytes of a folder or a .zip. More would not fit into a page's memory. */
const MAX_BYTES = 512 * 2 ** 20;

/** Files of a run that the page reads, or needs to resume. */
const WANTED =
  /^(config(-\d+)?\.yaml|metrics\.jsonl|changes\.jsonl|run\.json|rollouts\/(val-)?step-\d+\.jsonl|checkpoints\/step-\d+\/[\w.-]+)$/;

/** Stores the run in these files. Throws InputError if they contain no run, or one that this version cannot read. */
export async function importRun(runs: SavedRuns, chosen: readonly File[]): Promise<SavedRun> {
  const model = chosen.find(({ name }) => isGguf(name));
  if (model)
    throw new InputError(`${model.name} is a model and not a run. Choose it under "Your model", above the settings.`);
  const size = chosen.reduce((sum, file) => sum + file.size, 0);
  if (size > MAX_BYTES)
    throw new InputError(
      `The files are ${Math.round(size / 2 ** 20)} MiB, but a page opens at most ${MAX_BYTES / 2 ** 20} MiB. Leave out older checkpoints.`,
    );
  const files = runOf(await unpacked(chosen));
  const text = (name: string) => new TextDecoder().decode(files.get(name));
  const config = parseTrainConfig(text('config.yaml'), { source: 'config.yaml' });
  const last = readMetrics(text('metrics.jsonl'), 'metrics.jsonl').at(-1)?.['training/global_step'] ?? 0;
  files.delete('run.json');
  const changes = files.has(CHANGES) ? readChanges(text(CHANGES), CHANGES) : [];
  const record: RunRecord = {
    started: Date.now(),
    finished: last >= config.trainer.totalTrainingSteps,
    name: `${config.name}, loaded`,
    ...(hasCode(changes) && { foreign: true }),
  };
  return runs.add(files, record, config.name);
}

async function unpacked(chosen: readonly File[]): Promise<Map<string, Uint8Array>> {
  const read = async (file: File) => new Uint8Array(await file.arrayBuffer());
  if (chosen.length === 1 && chosen[0].name.endsWith('.zip')) return readZip(await read(chosen[0]), chosen[0].name);
  return new Map(
    await Promise.all(chosen.map(async (file) => [file.webkitRelativePath || file.name, await read(file)] as const)),
  );
}

/** Returns the files of the run's folder, at any depth. */
function runOf(all: ReadonlyMap<string, Uint8Array>): Map<string, Uint8Array> {
  const config = [...all.keys()].find((path) => /(^|\/)config\.yaml$/.test(path));
  const folder = config?.slice(0, -'config.yaml'.length);
  const paths = [...all.keys()].filter((path) => folder !== undefined && path.startsWith(folder));
  const files = new Map(paths.map((path) => [path.slice(folder!.length), all.get(path)!]));
  for (const path of files.keys()) if (!WANTED.test(path)) files.delete(path);
  if (files.has('config.yaml') && files.has('metrics.jsonl')) return files;
  throw new InputError(
    'Not a run folder: config.yaml or metrics.jsonl is missing. Choose a folder such as runs/NAME, or a .zip saved by this page.',
  );
}

/** Writes reports: an HTML page that works without a server, and the same data as JSON. */

import { basename, resolve } from 'node:path';
import { runReport } from '../../report/runReport.ts';
import { type Report, standalonePage } from '../../report/standalonePage.ts';
import { type FileSystem, readFileText } from '../../runs/fileSystem.ts';
import type { RunFolder } from '../../runs/runFolder.ts';
import { disk } from '../files.ts';

/** Writes `<path>.html`, and its data as `<path>.json`. Returns the path of the page. */
export async function writeReport(path: string, report: Report, files: FileSystem = disk): Promise<string> {
  await files.write(`${path}.json`, JSON.stringify(report));
  await files.write(`${path}.html`, standalonePage(report));
  return `${path}.html`;
}

/** Writes report.html from the current files of a run, and returns its path. */
export async function writeRunReport(folder: RunFolder): Promise<string> {
  const run = {
    name: basename(resolve(folder.path)),
    metrics: await folder.metrics(),
    rollouts: await folder.rollouts(),
    valRollouts: await folder.valRollouts(),
    config: await readFileText(folder.files, folder.file('config.yaml')),
  };
  return writeReport(folder.file('report'), runReport(run), folder.files);
}

/** `webgrpo report`: rewrites report.html of a run. The run can still be in progress. */

import { existsSync } from 'node:fs';
import { InputError } from '../../errors.ts';
import { oneFile } from '../args.ts';
import { readText } from '../files.ts';
import type { Command } from '../command.ts';
import { disk } from '../files.ts';
import { runFolderOf } from '../run/namedRun.ts';
import { writeRunReport } from '../run/reports.ts';
import { RunFolder } from '../../runs/runFolder.ts';

export const report: Command = {
  summary: 'write report.html of a run folder',
  usage: ['report runs/gsm8k-tool'],
  reads: ['words'],
  flags: { json: { help: 'print the path as JSON' } },
  async run({ positionals }, io) {
    const path = runFolderOf(oneFile(positionals, 'run folder'));
    const folder = RunFolder.open(disk, path);
    if (!existsSync(folder.file('metrics.jsonl')))
      throw new InputError(`${path} is not a run folder: metrics.jsonl is missing. Give a run folder.`);
    if ((await folder.metrics()).length === 0 && (await readText(folder.file('metrics.jsonl'))).trim() !== '')
      throw new InputError(`No line of ${path}/metrics.jsonl can be read. Give a run folder with intact metrics.`);
    const file = await writeRunReport(folder);
    io.text(file);
    io.result({ report: file });
  },
};

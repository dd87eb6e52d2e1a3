/** `webgrpo report`: writes report.html of a run anew, also of one that is still going. */

import { existsSync } from 'node:fs';
import { InputError } from '../../errors.ts';
import { oneFile } from '../args.ts';
import type { Command } from '../command.ts';
import { writeRunReport } from '../run/reports.ts';
import { RunFolder } from '../run/runFolder.ts';

export const report: Command = {
  summary: 'write report.html of a run folder',
  usage: ['report runs/gsm8k-tool'],
  flags: { json: { help: 'print the path as JSON' } },
  async run({ positionals }, io) {
    const path = oneFile(positionals, 'run folder');
    const folder = RunFolder.open(path);
    if (!existsSync(folder.file('metrics.jsonl')))
      throw new InputError(`${path} is no run folder: it has no metrics.jsonl.`);
    const file = await writeRunReport(folder);
    io.text(file);
    io.result({ report: file });
  },
};

/** `webgrpo doctor`: reports why a run does not learn, with the evidence and the setting to change. */

import { existsSync } from 'node:fs';
import { InputError } from '../../errors.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import { CAUSES, diagnose, diagnosisText } from '../../report/doctor.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { oneFile } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { disk, readText } from '../files.ts';
import { runFolderOf } from '../run/namedRun.ts';

export const doctor: Command = {
  summary: 'say why a run does not learn, and what to change',
  usage: ['doctor runs/gsm8k-tool'],
  reads: ['words'],
  flags: { ...JSON_FLAG, ...IMPORT_FLAG },
  details: () =>
    [
      'Reads config.yaml, metrics.jsonl and rollouts/, also while the run is training. Exit code 0, whether a',
      'cause was found or not. The limits are rules of thumb. "First" and "last steps" are a quarter of the',
      'steps, 3 to 10. Noise is twice the standard error, from the changes between steps.',
      '',
      ...CAUSES.map(({ name, when }) => `${name}: ${when.replaceAll('`', '')}`),
    ].join('\n'),
  async run({ positionals }, io) {
    const path = runFolderOf(oneFile(positionals, 'run folder'));
    const folder = RunFolder.open(disk, path);
    for (const name of ['config.yaml', 'metrics.jsonl'])
      if (!existsSync(folder.file(name)))
        throw new InputError(`${path} is not a run folder: ${name} is missing. Give a run folder.`);
    const source = folder.file('config.yaml');
    const config = parseTrainConfig(await readText(source), { source, note: () => {}, trains: false });
    const history = await folder.metrics();
    if (history.length === 0)
      throw new InputError(`No line of ${folder.file('metrics.jsonl')} can be read. Give a run folder with metrics.`);
    const result = diagnose({ history, config, samples: await folder.rollouts() });
    io.text(diagnosisText(result));
    io.result(result);
  },
};

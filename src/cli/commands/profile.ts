/** `webgrpo profile`: writes profile.html and trace.json for a run folder. The run can still be in progress. */

import { show, valueAt } from '../../grpo/config/tree.ts';
import { readYaml } from '../../extensions/yaml/index.ts';
import { InputError } from '../../errors.ts';
import { oneFile } from '../args.ts';
import type { Command } from '../command.ts';
import { disk, readText, writeWhole } from '../files.ts';
import { profileReport } from '../../report/profile/profileReport.ts';
import { type ProfiledSettings, tailReport, timeShares } from '../../report/profile/profileStats.ts';
import { chromeTrace } from '../../report/profile/profileTrace.ts';
import { runFolderOf } from '../run/namedRun.ts';
import { writeReport } from '../run/reports.ts';
import { RunFolder } from '../../runs/runFolder.ts';

export const profile: Command = {
  summary: 'where the time of a run went: profile.html and a trace for Perfetto',
  usage: ['profile runs/gsm8k-tool'],
  reads: ['words'],
  flags: { json: { help: 'print shares, tails and advice as JSON' } },
  async run({ positionals }, io) {
    const path = runFolderOf(oneFile(positionals, 'run folder'));
    const folder = RunFolder.open(disk, path);
    const steps = await folder.profiles();
    if (steps.length === 0)
      throw new InputError(
        `${path} has no profile/step-N.jsonl that can be read. Train with trainer.profile on (the default) to get one.`,
      );
    const file = folder.file('config.yaml');
    const settings = settingsOf(readYaml(await readText(file), file), file);
    const report = profileReport(path, steps, settings);
    const page = await writeReport(folder.file('profile'), report);
    const trace = folder.file('trace.json');
    await writeWhole(trace, JSON.stringify(chromeTrace(steps)));
    io.text([page, `${trace} (open it in ui.perfetto.dev)`, ...report.advice].join('\n'));
    const tails = steps.map((step) => ({ step: step.step, ...tailReport(step) }));
    io.result({ page, trace, timeShares: timeShares(steps), tails, advice: report.advice });
  },
};

/** Returns the settings that the profile needs, from a run's config.yaml. Throws InputError if one is missing. */
function settingsOf(config: unknown, file: string): ProfiledSettings {
  const read = (path: string): number => {
    const value = valueAt(config, path);
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    throw new InputError(
      `${file}: "${path}" is ${show(value)}; allowed: a number. Restore the config that the run wrote.`,
    );
  };
  return {
    maxResponseLength: read('data.maxResponseLength'),
    maxNumSeqs: read('rollout.maxNumSeqs'),
    toolTimeoutS: read('rollout.multiTurn.toolTimeoutS'),
  };
}

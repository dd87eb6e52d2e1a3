/** `webgrpo verify`: does this machine compute what it should? The first thing to run on a new GPU. */

import { parseCases, verifyLosses } from '../../verify/losses.ts';
import { InputError } from '../../errors.ts';
import { oneFile } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { installDawn } from '../dawn.ts';
import { readText } from '../files.ts';
import { verifyAdapter } from '../../verify/model.ts';

export const verify: Command = {
  summary: 'check kernels on this adapter, or losses against a file of cases',
  usage: ['verify', 'verify losses policy_losses.json --json'],
  flags: JSON_FLAG,
  async run({ positionals: [what, ...files] }, io) {
    if (what === 'losses') {
      const file = oneFile(files, 'file of loss cases');
      const report = lossReport(await readText(file), file);
      const worst = report.worst
        ? `, worst in case ${report.worst.case} (${report.worst.mode}, ${report.worst.what})`
        : '';
      io.text(`  ${report.checked} of ${report.cases} cases checked, largest error ${report.maxError}${worst}`);
      io.result(report);
      return;
    }
    if (what !== undefined) throw new InputError(`"verify ${what}" is unknown; use "verify" or "verify losses FILE".`);
    await installDawn();
    const { adapter, checks } = await verifyAdapter();
    io.text(`  adapter: ${adapter}`);
    for (const { name, error, limit } of checks)
      io.text(
        `  ${error <= limit ? 'holds' : 'FAILS'}  ${name}: ${error.toExponential(1)}, at most ${limit.toExponential(0)}`,
      );
    io.result({ adapter, checks });
    return checks.every(({ error, limit }) => error <= limit);
  },
};

/** Throws InputError where the file is not what `verifyLosses` reads. */
function lossReport(text: string, file: string) {
  try {
    return verifyLosses(parseCases(text));
  } catch (error) {
    if (error instanceof SyntaxError) throw new InputError(`${file} is not JSON: ${error.message}.`);
    if (error instanceof TypeError) throw new InputError(`${file}: ${error.message}`);
    throw error;
  }
}

/** `webgrpo verify`: checks that this machine computes correctly. Run it first on a new GPU. */

import { join } from 'node:path';
import { Gpu } from '../../gpu/device.ts';
import { matmulTable } from '../../gpu/ops/matmul.ts';
import { kernelTexts, parseCases, verifyAdapter, verifyCases } from '../../extensions/verify/index.ts';
import { InputError } from '../../errors.ts';
import { POLICY_LOSSES } from '../../grpo/losses/index.ts';
import { oneFile, refuseFlags } from '../args.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Command, JSON_FLAG, type Output } from '../command.ts';
import { installDawn } from '../dawn.ts';
import { readText, writeWhole } from '../files.ts';

export const verify: Command = {
  summary: 'check kernels on this adapter, or losses against a file of cases',
  usage: ['verify', 'verify losses policy_losses.json --json', 'verify --kernels kernels-here'],
  reads: ['words'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    kernels: { value: 'DIR', help: 'only write the WGSL that runs use on this adapter, one file per kernel' },
  },
  async run({ positionals: [what, ...files], flags }, io) {
    if (what === 'losses') {
      refuseFlags(flags, ['kernels'], 'on losses');
      const file = oneFile(files, 'file of loss cases');
      const report = lossReport(await readText(file), file);
      const worst = report.worst
        ? `, worst in case ${report.worst.case} (${report.worst.mode}, ${report.worst.what})`
        : '';
      io.text(`  ${report.checked} of ${report.cases} cases checked, largest error ${report.maxError}${worst}`);
      io.result(report);
      return;
    }
    if (what !== undefined) throw new InputError(`"verify ${what}" is unknown. Use "verify" or "verify losses FILE".`);
    await installDawn();
    if (typeof flags['kernels'] === 'string') return writeKernels(flags['kernels'], io);
    const { adapter, checks } = await verifyAdapter();
    io.text(`  adapter: ${adapter}`);
    for (const { name, error, limit } of checks)
      io.text(
        `  ${error <= limit ? 'holds' : 'FAILS'}  ${name}: ${error.toExponential(1)}, at most ${limit.toExponential(0)}`,
      );
    const unchecked = Object.keys(POLICY_LOSSES).filter((name) => POLICY_LOSSES[name].wgsl === undefined);
    for (const name of unchecked)
      io.text(`  unchecked  policy loss ${name}: it has no WGSL; checkPolicyLoss in a program compares its gradient`);
    io.result({ adapter, checks, ...(unchecked.length > 0 && { unchecked }) });
    return checks.every(({ error, limit }) => error <= limit) ? 0 : 1;
  },
};

async function writeKernels(folder: string, io: Output): Promise<void> {
  const gpu = await Gpu.create();
  try {
    const texts = kernelTexts(gpu);
    for (const [file, text] of texts) await writeWhole(join(folder, file), text);
    const tiles = matmulTable(gpu).flatMap(([, ...names]) => names);
    io.text(
      `  ${texts.size} kernels in ${folder}; products take the tiles ${tiles.join(', ')} unless others were timed`,
    );
    io.result({ folder, kernels: [...texts.keys()], tiles });
  } finally {
    gpu.destroy();
  }
}

/** Compares our losses with the cases in a file (verlCases.ts) and returns the report. Throws InputError if it is not a file of cases. */
function lossReport(text: string, file: string) {
  try {
    return verifyCases(parseCases(text));
  } catch (error) {
    if (error instanceof SyntaxError) throw new InputError(`${file} is not JSON: ${error.message}.`);
    if (error instanceof TypeError) throw new InputError(`${file}: ${error.message}`);
    throw error;
  }
}

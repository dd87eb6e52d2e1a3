/** `webgrpo sft`: supervised training on the demonstrations of a task, from newly initialised weights or from a checkpoint. */

import { parseSftConfig } from '../../extensions/sft/index.ts';
import { greedyAcc, passAt1 } from '../../report/metricOf.ts';
import { oneFile } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { holdFolder } from '../process/heldFolder.ts';
import { STOPS } from '../process/interrupt.ts';
import { openConfig } from '../run/namedRun.ts';
import { evaluateSupervised, runSupervised, supervisedFolder } from '../run/supervised.ts';
import { plural } from '../../ui/format.ts';

export const sft: Command = {
  summary: 'supervised training on demonstrations: the warm start of GRPO',
  usage: ['sft configs/gsm8k-sft.yaml', 'sft configs/gsm8k-sft.yaml trainer.totalTrainingSteps=100'],
  reads: ['words', 'settings'],
  flags: { ...JSON_FLAG, ...IMPORT_FLAG },
  details: () => STOPS,
  async run({ positionals, overrides }, io) {
    const { source, text } = await openConfig(oneFile(positionals, 'config'));
    const config = parseSftConfig(text, { source, overrides });
    using held = holdFolder(supervisedFolder(config));
    const { folder, losses, model, logEvaluation } = await runSupervised(held.files, config);
    const after = await evaluateSupervised(config, model);
    await logEvaluation(after);
    io.text(
      `  ${plural(losses.length, 'step')}: loss ${losses[0]?.toFixed(3)} -> ${losses.at(-1)?.toFixed(3)}, ` +
        `pass@1 ${passAt1(after)?.toFixed(3)}, greedy ${greedyAcc(after)?.toFixed(3)}\n  model: ${folder.path}`,
    );
    io.result({
      run: folder.path,
      steps: losses.length,
      loss: losses.at(-1) ?? null,
      passAt1: passAt1(after),
      greedy: greedyAcc(after),
    });
  },
};

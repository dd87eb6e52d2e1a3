/** `webgrpo eval`: held-out accuracy of a checkpoint under a training config. */

import { parseTrainConfig } from '../../grpo/config.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import { oneFile } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { readText } from '../files.ts';
import { greedyAcc, passAt1, sayPassing } from '../progress.ts';
import { openSession } from '../session.ts';

export const evaluate: Command = {
  summary: 'held-out accuracy of a checkpoint, sampled and greedy',
  usage: ['eval configs/gsm8k-tool.yaml', 'eval configs/gsm8k-tool.yaml --model runs/gsm8k-tool data.valSize=64'],
  flags: {
    ...JSON_FLAG,
    model: { value: 'FOLDER', help: "checkpoint or run folder; absent = the config's model.path" },
  },
  async run({ positionals, overrides, flags }, io) {
    const source = oneFile(positionals, 'config');
    const config = parseTrainConfig(await readText(source), { source, overrides });
    if (typeof flags['model'] === 'string') config.model.path = flags['model'];
    const { engine, task } = await openSession(config);
    try {
      let done = 0;
      const trainer = new GrpoTrainer({ config, task, engine, onSample: () => sayPassing(`${++done} samples`) });
      const metrics = await trainer.validate({ greedy: true });
      const pass = passAt1(metrics);
      io.text(
        `  ${config.data.valSize} problems: pass@1 ${pass?.toFixed(3)}, greedy ${greedyAcc(metrics)?.toFixed(3)}`,
      );
      io.result({
        model: config.model.path,
        problems: config.data.valSize,
        passAt1: pass,
        greedy: greedyAcc(metrics),
        metrics,
      });
    } finally {
      engine.destroy();
    }
  },
};

/** `webgrpo eval`: measures held-out accuracy of a checkpoint under a training config. */

import { parseTrainConfig } from '../../grpo/config/text.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { greedyAcc, passAt1 } from '../../report/metricOf.ts';
import { oneFile } from '../args.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { readText } from '../files.ts';
import { Progress, sayProgress } from '../run/progress.ts';
import { openSession } from '../run/session.ts';
import { withWarmStart } from '../run/warmStart.ts';

export const evaluate: Command = {
  summary: 'held-out accuracy of a checkpoint, sampled and greedy',
  usage: ['eval configs/gsm8k-tool.yaml', 'eval configs/gsm8k-tool.yaml --model runs/gsm8k-tool data.valMaxSamples=64'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    model: { value: 'PATH', help: "checkpoint or run folder, or .gguf file (default: the config's model.path)" },
    adapter: { value: 'FOLDER', help: 'LoRA adapter (PEFT folder or run folder) over the model' },
  },
  async run({ positionals, overrides, flags }, io) {
    const source = oneFile(positionals, 'config');
    const config = parseTrainConfig(await readText(source), { source, overrides });
    if (typeof flags['model'] === 'string') config.model.path = flags['model'];
    if (typeof flags['adapter'] === 'string') config.model.loraAdapterPath = flags['adapter'];
    config.model.loraRank = 0; // the evaluated checkpoint brings its own adapter, if any
    const { engine, task } = await openSession(await withWarmStart(config), 'generate');
    try {
      const seen: Sample[] = [];
      const onSample = (sample: Sample) => void seen.push(sample);
      const progress = new Progress();
      const onEvaluating = (done: number, total: number, _step: number, tokens: number) =>
        sayProgress(`evaluating: ${progress.text(done, total, 'problems', tokens)}`);
      const trainer = new GrpoTrainer({ config, task, engine, onEvaluating });
      const metrics = await trainer.validate({ greedy: true, onSample });
      const pass = passAt1(metrics);
      const byTemplate = accByTemplate(seen);
      for (const line of accLines(metrics, config.data.valMaxSamples)) io.text(line);
      for (const [template, acc] of byTemplate) io.text(`    ${template.padEnd(16)} ${acc.toFixed(3)}`);
      io.result({
        model: config.model.path,
        problems: config.data.valMaxSamples,
        passAt1: pass,
        greedy: greedyAcc(metrics),
        byTemplate: Object.fromEntries(byTemplate),
        metrics,
      });
    } finally {
      task.close?.();
      engine.destroy();
    }
  },
};

/** Returns lines with pass@1 and greedy accuracy. With several held-out sets, one line per set with its name. */
function accLines(metrics: Metrics, problems: number): string[] {
  const sources = Object.keys(metrics).flatMap((name) => /^val-core\/(.*)\/acc\/mean@\d+$/.exec(name)?.[1] ?? []);
  return sources.map((source) => {
    const own = Object.fromEntries(
      Object.entries(metrics).filter(([name]) => name.startsWith(`val-core/${source}/acc/`)),
    );
    const name = sources.length > 1 ? `${source}, ` : '';
    return `  ${name}${problems} problems: pass@1 ${passAt1(own)?.toFixed(3)}, greedy ${greedyAcc(own)?.toFixed(3)}`;
  });
}

/** Returns the mean sampled outcome of each problem template, lowest first. Empty if the task's problems have no templates. */
function accByTemplate(samples: Sample[]): [string, number][] {
  const outcomes = new Map<string, number[]>();
  for (const { problem, reward } of samples) {
    if (problem.template === undefined) continue;
    const list = outcomes.get(problem.template) ?? [];
    outcomes.set(problem.template, [...list, reward.acc]);
  }
  const means = [...outcomes].map(([id, accs]): [string, number] => [id, accs.reduce((a, b) => a + b) / accs.length]);
  return means.sort((a, b) => a[1] - b[1]);
}

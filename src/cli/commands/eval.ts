/** `webgrpo eval`: measures held-out accuracy of a checkpoint under a training config. */

import { parseTrainConfig, readTrees } from '../../extensions/yaml/index.ts';
import { valueAt } from '../../grpo/config/tree.ts';
import { InputError } from '../../errors.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import type { Fault } from '../../grpo/health.ts';
import { sourceOf } from '../../grpo/generate/validate.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { greedyAcc, passAt1 } from '../../report/metricOf.ts';
import { passInterval } from '../../report/passInterval.ts';
import type { Task } from '../../tasks/task.ts';
import { plural } from '../../ui/format.ts';
import { oneFile, type ParsedArgs } from '../args.ts';
import { writeWhole } from '../files.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { modelOf, openConfig } from '../run/namedRun.ts';
import { whileEvaluating, say } from '../run/progress.ts';
import { openSession } from '../run/session.ts';
import { withWarmStart } from '../run/warmStart.ts';

export const evaluate: Command = {
  summary: 'held-out accuracy of a checkpoint, sampled and greedy',
  usage: ['eval runs/gsm8k-tool', 'eval configs/gsm8k-tool.yaml --model runs/gsm8k-tool data.valMaxSamples=64'],
  reads: ['words', 'settings'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    model: {
      value: 'PATH',
      help: "checkpoint or run folder, or .gguf file (default: the run's newest checkpoint, or the config's model.path)",
    },
    adapter: { value: 'FOLDER', help: 'LoRA adapter (PEFT folder or run folder) over the model' },
    outcomes: { value: 'FILE', help: 'write the outcome of every sampled try: { problems, tries: [problem][try] }' },
  },
  async run({ positionals, overrides, flags }, io) {
    const config = await evaluatedConfig(oneFile(positionals, 'config or run folder'), overrides, flags);
    const { engine, task } = await openSession(await withWarmStart(config), 'generate');
    try {
      let seen: Sample[] = [];
      const onValidation = (samples: Sample[]) => void (seen = samples);
      const onFault = ({ reason }: Fault) => say(reason);
      const metrics = await whileEvaluating((onEvaluating) =>
        new GrpoTrainer({ config, task, engine, onEvaluating, onValidation, onFault }).validate({ greedy: true }),
      );
      const sets = setsOf(seen, task, metrics);
      for (const [name, set] of Object.entries(sets)) {
        const [low, high] = set.passAt1Interval.map((end) => end.toFixed(3));
        const which = Object.keys(sets).length > 1 ? `${name}, ` : '';
        io.text(
          `  ${config.model.path}, ${which}${plural(set.problems, 'problem')}: pass@1 ${rate(set.passAt1)}, greedy ${rate(set.greedy)}`,
        );
        if (set.problems > 0) io.text(`  95% interval of pass@1, over problems: ${low} to ${high}`);
        if (set.leftOut > 0)
          io.text(`  left out, because an outcome is unknown: ${plural(set.leftOut, 'more problem')}`);
      }
      if (typeof flags.outcomes === 'string') await writeWhole(flags.outcomes, `${JSON.stringify(outcomesOf(seen))}\n`);
      const byTemplate = accByTemplate(seen);
      for (const [template, acc] of byTemplate) io.text(`    ${template.padEnd(16)} ${acc.toFixed(3)}`);
      io.result({
        model: config.model.path,
        ...Object.values(sets)[0],
        sets,
        byTemplate: Object.fromEntries(byTemplate),
        metrics,
      });
    } finally {
      task.close?.();
      engine.destroy();
    }
  },
};

/**
 * Returns the config with model.path set to the evaluated model: --model, or the override model.path, or else the run's newest checkpoint.
 */
async function evaluatedConfig(path: string, overrides: string[], flags: ParsedArgs['flags']): Promise<TrainConfig> {
  const { source, text, run } = await openConfig(path);
  const config = parseTrainConfig(text, { source, overrides, trains: false });
  const { model, adapter } = flags;
  const { tree } = readTrees('', { source: 'the overrides', overrides });
  const isSet = (key: string) => valueAt(tree, key) !== undefined;
  for (const [flag, key] of Object.entries({ model: 'model.path', adapter: 'model.loraAdapterPath' }))
    if (flags[flag] !== undefined && isSet(key))
      throw new InputError(`Both --${flag} and ${key} are given. Leave one out.`);
  const asked = typeof model === 'string' ? modelOf(model) : isSet('model.path') ? undefined : run?.model;
  if (asked !== undefined) {
    config.model = { ...config.model, path: asked };
    if (!isSet('model.loraAdapterPath')) config.model.loraAdapterPath = undefined;
  }
  if (typeof adapter === 'string') config.model.loraAdapterPath = adapter;
  config.model.loraRank = 0; // the evaluated checkpoint brings its own adapter, if any
  return config;
}

const rate = (value: number | undefined): string => value?.toFixed(3) ?? 'unknown';

/** Result of one held-out set. The interval is that of `passInterval`. */
interface EvaluatedSet {
  /** Number of problems of which all outcomes are known. pass@1 and its interval are over these. */
  problems: number;
  /** Number of other problems. */
  leftOut: number;
  passAt1: number | undefined;
  passAt1Interval: readonly [number, number];
  greedy: number | undefined;
}

/** Returns the result of each held-out set, by the set's name, in the order of the task. */
function setsOf(samples: readonly Sample[], task: Task, metrics: Metrics): Record<string, EvaluatedSet> {
  const sources = new Set(samples.map(({ problem }) => sourceOf(problem, task)));
  const entries = [...sources].map((source): [string, EvaluatedSet] => {
    const { tries } = outcomesOf(samples.filter(({ problem }) => sourceOf(problem, task) === source));
    const own = Object.entries(metrics).filter(([name]) => name.startsWith(`val-core/${source}/acc/`));
    const line = Object.fromEntries(own);
    const known = tries.filter((outcomes) => !outcomes.some(Number.isNaN));
    const { low, high } = passInterval(known);
    const rates = { passAt1: passAt1(line), passAt1Interval: [low, high] as const, greedy: greedyAcc(line) };
    return [source, { problems: known.length, leftOut: tries.length - known.length, ...rates }];
  });
  return Object.fromEntries(entries);
}

/**
 * Returns the ids of the problems and, for each problem, the accuracies of its samples in the order of their random keys. In the JSON an
 * unknown accuracy becomes null.
 */
function outcomesOf(samples: readonly Sample[]): { problems: string[]; tries: number[][] } {
  const groups = new Map<number, Sample[]>();
  for (const sample of samples) groups.set(sample.group, [...(groups.get(sample.group) ?? []), sample]);
  const ordered = [...groups.values()];
  return {
    problems: ordered.map(([{ problem }]) => problem.id),
    tries: ordered.map((tried) => tried.map(({ reward }) => reward.acc)),
  };
}

/** Returns the mean accuracy of the samples of each problem template, lowest first. Empty if the task's problems have no templates. */
function accByTemplate(samples: Sample[]): [string, number][] {
  const outcomes = new Map<string, number[]>();
  for (const { problem, reward } of samples) {
    if (problem.template === undefined || Number.isNaN(reward.acc)) continue;
    const list = outcomes.get(problem.template) ?? [];
    outcomes.set(problem.template, [...list, reward.acc]);
  }
  const means = [...outcomes].map(([id, accs]): [string, number] => [id, accs.reduce((a, b) => a + b) / accs.length]);
  return means.sort((a, b) => a[1] - b[1]);
}

/** `webgrpo replay`: applies other losses, or another reward, to the samples that a run has stored. */

import { basename, join, resolve } from 'node:path';
import { InputError } from '../../errors.ts';
import { RECIPES } from '../../grpo/config/recipes.ts';
import { POLICY_LOSSES } from '../../grpo/losses/index.ts';
import { compareLosses, type NamedConfig, rescore, type RescoredStep } from '../../extensions/replay/index.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import {
  REPLAYED_METRICS,
  type ReplayReport,
  rewardCharts,
  stepCharts,
  type StepReport,
  stepReport,
} from '../../report/replay/replayReport.ts';
import type { CommandEngine } from '../process/io.ts';
import { numberFlag, oneFile, type ParsedArgs, refuseFlags } from '../args.ts';
import { type Command, JSON_FLAG, type Output } from '../command.ts';
import { IMPORT_FLAG, importReward } from '../importModule.ts';
import { openReplayEngine, useWeights, weightsFor } from '../replay/engine.ts';
import { chosenSteps, type KeptRun, openKeptRun, openStep, parsed } from '../replay/keptRun.ts';
import { runFolderOf } from '../run/namedRun.ts';
import { writeReport } from '../run/reports.ts';
import { aligned } from '../table.ts';
import { say, sayPassing } from '../run/progress.ts';
import { plural } from '../../ui/format.ts';

export const replay: Command = {
  summary: 'compare other losses, or another reward, on the saved samples of a run',
  usage: [
    'replay runs/NAME --algorithm cispo,gspo',
    'replay runs/NAME --algorithm dr_grpo --step all',
    'replay runs/NAME --reward new.js',
  ],
  reads: ['words'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    algorithm: {
      value: 'NAMES',
      help: 'recipes (algorithm.name) or losses (actor.policyLoss.lossMode), comma-separated',
    },
    reward: {
      value: 'FILE',
      help: 'a module whose default export scores a sample: (sample) => number or { score, acc }; needs no GPU',
    },
    step: { value: 'N', help: 'a step, last or all (default: last, with --reward all)' },
    checkpoint: {
      value: 'N',
      help: 'weights of another step of the run (0 = its start), or a checkpoint folder (default: those before the step)',
    },
    samples: { value: 'N', help: 'samples that the page shows token by token (default 6)' },
    out: { value: 'FILE', help: 'file of the page (default: replay.html in the run folder)' },
  },
  async run(args, io) {
    const { flags, positionals } = args;
    if (flags['algorithm'] !== undefined && flags['reward'] !== undefined)
      throw new InputError(
        'Give --algorithm or --reward, not both: losses are compared on the rewards that the run had.',
      );
    if (flags['reward'] !== undefined)
      refuseFlags(flags, ['checkpoint', 'samples'], 'with --reward, which needs no weights and shows no tokens');
    const path = runFolderOf(oneFile(positionals, 'run folder'));
    const run = await openKeptRun(path);
    const title = basename(resolve(path));
    const report =
      typeof flags['reward'] === 'string'
        ? await replayReward(run, title, flags['reward'], flags)
        : await replayLosses(run, title, flags);
    const out = typeof flags['out'] === 'string' ? flags['out'] : join(path, 'replay.html');
    const page = await writeReport(out.replace(/\.html$/, ''), report);
    tell(report, page, io);
  },
};

type Flags = ParsedArgs['flags'];

async function replayLosses(run: KeptRun, title: string, flags: Flags): Promise<ReplayReport> {
  const names = typeof flags['algorithm'] === 'string' ? flags['algorithm'].split(',').map((name) => name.trim()) : [];
  const count = numberFlag(flags, 'samples', 6, [0, 2 ** 31]);
  const logged = await run.folder.metrics();
  const chosen = chosenSteps(run, flags['step'], 'last');
  const steps: StepReport[] = [];
  const notes: string[] = [];
  let engine: CommandEngine | undefined;
  let at: string | undefined;
  try {
    for (const step of chosen) {
      const { kept, configText } = await openStep(run, step);
      const losses = configsOf(configText, run.folder.file('config.yaml'), names);
      const place = await weightsFor(run.folder, step, flags['checkpoint']);
      engine ??= await openReplayEngine(losses[0].config, place);
      if (at !== place.words) await useWeights(engine, place);
      at = place.words;
      sayPassing(`step ${step}: ${losses.length} ${losses.length === 1 ? 'loss' : 'losses'}`);
      const compared = await compareLosses(kept, losses, engine);
      const { tokenizer } = engine;
      const line = logged.find((metrics) => metrics['training/global_step'] === step) ?? {};
      // Samples are large, so the page shows only those of the last replayed step.
      const shown = step === chosen.at(-1) ? count : 0;
      steps.push(
        stepReport(kept, compared, {
          weights: place.words,
          logged: line,
          count: shown,
          textOf: (id) => tokenizer.decode([id]),
        }),
      );
      const { data, actor } = losses[0].config;
      const updates = Math.ceil(data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
      if (step === chosen[0] && updates > 1)
        notes.push(
          `The run made ${updates} updates per step. The replay computes each loss on all samples of a step at once, at fixed weights.`,
        );
    }
  } finally {
    engine?.destroy();
  }
  notes.forEach(say);
  return { kind: 'replay', title, notes, charts: stepCharts(steps), steps, rewards: [] };
}

/**
 * Returns the run's own config, then one config per name. The name of a recipe replaces all settings that the recipe has; the name of a
 * loss replaces only the policy loss.
 */
function configsOf(text: string, source: string, names: readonly string[]): NamedConfig[] {
  const own = parsed(text, source);
  const { enable } = own.algorithm.filterGroups;
  const named = names.map((name): NamedConfig => {
    if (Object.hasOwn(RECIPES, name))
      return {
        name,
        config: parsed(text, source, [`algorithm.name=${name}`, `algorithm.filterGroups.enable=${enable}`]),
      };
    if (Object.hasOwn(POLICY_LOSSES, name))
      return { name, config: parsed(text, source, [`actor.policyLoss={lossMode: ${name}}`]) };
    const known = [...new Set([...Object.keys(RECIPES), ...Object.keys(POLICY_LOSSES)])];
    throw new InputError(
      `--algorithm names "${name}"; known: ${known.join(', ')}, and those registered with --import.`,
    );
  });
  return [{ name: `run (${own.algorithm.name})`, config: own }, ...named];
}

async function replayReward(run: KeptRun, title: string, file: string, flags: Flags): Promise<ReplayReport> {
  const reward = await importReward('--reward', file);
  const rewards: RescoredStep[] = [];
  for (const step of chosenSteps(run, flags['step'], 'all')) {
    const { kept, configText } = await openStep(run, step);
    rewards.push(await rescore(kept, parsed(configText, run.folder.file('config.yaml')), reward));
  }
  return {
    kind: 'replay',
    title,
    notes: [`Scored again by ${basename(file)}.`],
    charts: rewardCharts(rewards),
    steps: [],
    rewards,
  };
}

function tell({ steps, rewards, notes }: ReplayReport, page: string, io: Output): void {
  for (const step of steps) io.text(lossTable(step));
  if (rewards.length > 0) io.text(rewardTable(rewards));
  io.text(page);
  const told = steps.map(({ shown: _, logged: __, ...step }) => step);
  io.result({ page, notes, ...(steps.length > 0 ? { steps: told } : { rewards }) });
}

function lossTable({ step, weights, samples, losses, logged, cosines }: StepReport): string {
  const row = (name: string, values: (number | null | undefined)[]) => [name, ...values.map(shown)];
  const metric = (name: string) =>
    row(name, [logged[name], ...losses.map(({ metrics }: { metrics: Metrics }) => metrics[name])]);
  const rows = [
    ['', 'logged', ...losses.map(({ name }) => name)],
    ...REPLAYED_METRICS.filter((name) => losses.some(({ metrics }) => metrics[name] !== undefined)).map(metric),
    ...losses.map(({ name }, i) => row(`cosine with ${name}`, [undefined, ...cosines[i]])),
  ];
  return `step ${step}: ${plural(samples, 'sample')}, at the weights of ${weights}\n${aligned(rows)}\n`;
}

function rewardTable(rewards: readonly RescoredStep[]): string {
  const head = ['step', 'samples', 'as trained', 'new', 'correlation', 'another best', 'sign flips'];
  const rows = rewards.map((line) => [
    ...[String(line.step), String(line.samples)],
    ...[line.oldScore, line.newScore, line.correlation, line.bestChanged, line.signFlips].map(shown),
  ]);
  return aligned([head, ...rows]);
}

const shown = (value: number | null | undefined): string =>
  value === null || value === undefined || Number.isNaN(value)
    ? '-'
    : value !== 0 && Math.abs(value) < 1e-3
      ? value.toExponential(2)
      : value.toFixed(4);

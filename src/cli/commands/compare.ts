/** `webgrpo compare`: trains one config with several algorithms and several seeds, and writes one page and one table. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { changedKeys, parseTrainConfig, readTrees } from '../../extensions/yaml/index.ts';
import { RECIPES } from '../../grpo/config/recipes.ts';
import { show, valueAt } from '../../grpo/config/tree.ts';
import { batchTable } from '../../grpo/config/rules.ts';
import { completedKeys } from '../../grpo/generate/trainingSet.ts';
import { isEndOfRun, isEvaluated } from '../../grpo/stopWhen.ts';
import { InputError } from '../../errors.ts';
import { numberFlag, oneFile } from '../args.ts';
import { newestCheckpoint } from '../../runs/checkpointFolder.ts';
import { IMPORT_FLAG, importedHash } from '../importModule.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { type AlgorithmRuns, comparedMarkdown, comparedRows, comparisonReport } from '../../report/comparison.ts';
import { disk, readText, writeWhole } from '../files.ts';
import { holdFolder } from '../process/heldFolder.ts';
import { STOPPED_EXIT_CODE, STOPS } from '../process/interrupt.ts';
import { openConfig } from '../run/namedRun.ts';
import { openTask } from '../run/openTask.ts';
import { say } from '../run/progress.ts';
import { writeReport } from '../run/reports.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { withRewardFiles } from '../run/rewardFiles.ts';
import { runTraining } from './train.ts';
import { plural } from '../../ui/format.ts';
import { type FileHashes, notedHashes } from '../run/resume.ts';

const ALGORITHMS = 'grpo,dr_grpo,dapo,gspo,cispo,sapo';

export const compare: Command = {
  summary: 'train several algorithms with several seeds each, and write one page that compares them',
  usage: [
    `compare configs/gsm8k-tool.yaml --algorithms ${ALGORITHMS} --seeds 3`,
    'compare configs/gsm8k-tool.yaml --algorithms grpo,rloo --seeds 2 trainer.totalTrainingSteps=20',
  ],
  reads: ['words', 'settings'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    algorithms: { value: 'A,B', help: `names of algorithm.name (default: ${ALGORITHMS})` },
    seeds: { value: 'N', help: 'runs per algorithm, with seeds 1 to N (default: 3)' },
    out: {
      value: 'FOLDER',
      help: 'folder of the runs and the page (default: <trainer.defaultLocalDir>/compare-<name>)',
    },
    target: { value: 'P', help: 'pass@1 that counts as reached (default: 0.85)' },
  },
  details: () =>
    "Settings that an algorithm decides (loss, clip, aggregation, advantage, ...) come from the algorithm alone: the config file's\n" +
    'values of them do not count, values on the command line do. Runs that are complete are not run again.\n\n' +
    STOPS,
  async run({ positionals, overrides, flags }, io) {
    const { source, text: yaml } = await openConfig(oneFile(positionals, 'config or run folder'));
    refuseOwnKeys(overrides, flags['out'] !== undefined);
    const algorithms = algorithmsOf(flags['algorithms'] ?? ALGORITHMS);
    const seeds = numberFlag(flags, 'seeds', 3, [1, 100]);
    const target = numberFlag(flags, 'target', 0.85, [0, 1]);
    // In every run, the recipe of the run's algorithm replaces settings of the config. The note that lists the replaced settings is printed
    // only once, for the first algorithm.
    const first = [`algorithm.name=${algorithms[0]}`];
    const base = parseTrainConfig(yaml, { source, overrides: [...overrides, ...first], note: say });
    const out =
      typeof flags['out'] === 'string' ? flags['out'] : join(base.trainer.defaultLocalDir, `compare-${base.name}`);
    if (!Number.isFinite(base.trainer.totalTrainingSteps))
      throw new InputError('compare shows runs side by side by step. Set trainer.totalTrainingSteps, not totalEpochs.');
    const configOf = (algorithm: string, seed: number) =>
      parseTrainConfig(yaml, {
        source,
        overrides: [...overrides, ...overridesOf(algorithm, seed, out)],
        note: () => {},
      });
    const configs = algorithms.map((name) => Array.from({ length: seeds }, (_, i) => configOf(name, i + 1)));
    using _ = holdFolder(out);
    const { problems, hashes } = await readTask(base);
    const write = () => writeComparison({ out, base, configs, target, problems, hashes });
    const stopped = await trainAll(configs, hashes, write);
    const result = await write();
    if (stopped) say('Stopped and saved. Run the same command again to resume.');
    io.text(`${result.markdown}\n\n  page: ${result.page}`);
    io.result({ page: result.page, table: result.table, target, stopped, algorithms: result.rows });
    return stopped ? STOPPED_EXIT_CODE : 0;
  },
};

function algorithmsOf(text: string | boolean): string[] {
  const names = String(text)
    .split(',')
    .map((name) => name.trim());
  const unknown = names.find((name) => !Object.hasOwn(RECIPES, name));
  if (unknown === undefined) return [...new Set(names)];
  throw new InputError(`--algorithms names "${unknown}"; known: ${Object.keys(RECIPES).join(', ')}.`);
}

/** Throws InputError for an override of a key that `overridesOf` sets in every run. */
function refuseOwnKeys(overrides: readonly string[], hasOut: boolean): void {
  const { tree } = readTrees('', { source: 'the overrides', overrides });
  const instead = {
    'algorithm.name': 'Give --algorithms instead',
    seed: 'Give --seeds N instead, for the seeds 1 to N',
    'trainer.resumeMode': 'Leave it out: the same command resumes',
    'trainer.resumeFromPath': 'Leave it out: the same command resumes',
    ...(hasOut && { 'trainer.defaultLocalDir': 'Leave it or --out out' }),
  };
  for (const [key, remedy] of Object.entries(instead)) {
    const value = valueAt(tree, key);
    if (value !== undefined)
      throw new InputError(`compare sets ${key} in every run, but got ${show(value)}. ${remedy}.`);
  }
}

const overridesOf = (algorithm: string, seed: number, out: string): string[] => [
  `algorithm.name=${algorithm}`,
  `seed=${seed}`,
  `name=${algorithm}-seed-${seed}`,
  `trainer.defaultLocalDir=${JSON.stringify(out)}`,
  'trainer.resumeMode=disable',
];

const folderOf = (config: TrainConfig): string => join(config.trainer.defaultLocalDir, config.name);

/**
 * Trains all algorithms with one seed before the next seed, so that an interrupted comparison has runs of every algorithm. Returns true if
 * a signal stopped it.
 */
async function trainAll(
  configs: readonly TrainConfig[][],
  hashes: FileHashes,
  afterRun: () => Promise<unknown>,
): Promise<boolean> {
  const order = configs[0].flatMap((_, i) => configs.map((seeds) => seeds[i]));
  for (const [i, config] of order.entries()) {
    const state = await stateOf(config, hashes);
    const line = `run ${i + 1}/${order.length}: ${config.name}`;
    say(state === 'complete' ? `${line} is complete` : line);
    if (state === 'complete') continue;
    const { stopped } = await runTraining(config, async () => state);
    await afterRun();
    if (stopped) return true;
  }
  return false;
}

/**
 * Returns 'complete' for a finished run; otherwise the checkpoint to resume from. Undefined if the run's folder belongs to another config
 * or to other files of the task or of --import, or has no checkpoint.
 */
async function stateOf(config: TrainConfig, hashes: FileHashes): Promise<string | undefined> {
  const folder = RunFolder.open(disk, folderOf(config));
  if (!(await isOf(folder, config, hashes))) return undefined;
  const last = (await folder.metrics()).at(-1);
  if (last && isEndOfRun(config, last) && isEvaluated(last)) return 'complete';
  const newest = await newestCheckpoint(disk, folder.path);
  return newest && existsSync(join(newest, 'trainer_state.json')) ? newest : undefined;
}

/**
 * Returns the number of problems that pass@1 is measured on: those of the first held-out set, which can be fewer than data.valMaxSamples. 0
 * if data.filterOverlongPrompts leaves out prompts, whose lengths only the model's tokenizer knows. `hashes` are those of the files that the
 * runs read.
 */
async function readTask({ task: given, data, reward }: TrainConfig) {
  const task = await openTask(given, reward);
  const held = await task.heldOut(data.valMaxSamples);
  task.close?.();
  const problems = data.filterOverlongPrompts
    ? 0
    : held.filter(({ dataSource }) => dataSource === held[0].dataSource).length;
  return { problems, hashes: { sha256: task.sha256, imports: importedHash() } };
}

interface Written {
  out: string;
  base: TrainConfig;
  configs: readonly TrainConfig[][];
  target: number;
  /** See `readTask`. */
  problems: number;
  hashes: FileHashes;
}

/** Writes compare.html, compare.json and compare.md from the metrics that the runs have logged so far. */
async function writeComparison({ out, base, configs, target, problems, hashes }: Written) {
  const all = await Promise.all(configs.map(async (seeds) => ({ ...(await runsOf(seeds, hashes)), problems })));
  const rows = comparedRows(all, target);
  const { trainBatchSize } = base.data;
  const { lr } = base.actor.optim;
  const about =
    `${plural(base.trainer.totalTrainingSteps, 'step')} of ${plural(trainBatchSize, 'prompt')} x ${plural(base.rollout.n, 'sample')} from ` +
    `${base.model.path}, learning rate ${lr === 'auto' ? 'by the size of the model' : lr}` +
    `${problems > 0 ? `; pass@1 of ${plural(problems, 'held-out problem')}` : ''}. ` +
    `Loss, clip, aggregation and advantage are those of each algorithm; all other settings are the same. Target: ${target}. ` +
    'In brackets: the lowest and the highest value over the seeds. p is the p-value of a permutation test over the seeds.';
  const config = stringify(base);
  const report = comparisonReport({ title: `${base.name}: algorithms compared`, about, all, target, config });
  const page = await writeReport(join(out, 'compare'), report);
  const table = join(out, 'compare.md');
  const markdown = comparedMarkdown(rows);
  await writeWhole(table, `${about}\n\n${markdown}\n`);
  return { page, table, rows, markdown };
}

async function runsOf(seeds: readonly TrainConfig[], hashes: FileHashes): Promise<AlgorithmRuns> {
  const [config] = seeds;
  const { actor, algorithm } = config;
  const histories = await Promise.all(seeds.map((one) => historyOf(one, hashes)));
  return {
    algorithm: algorithm.name,
    config,
    updates: batchTable(config).updates,
    settings: `${actor.policyLoss.lossMode}, ${algorithm.advEstimator}, ${actor.lossAggMode}`,
    runs: seeds.map(({ seed }, i) => ({ seed, history: histories[i] })),
  };
}

/** Returns the metrics of the run with this config; none if its folder has a run of another config. */
async function historyOf(config: TrainConfig, hashes: FileHashes) {
  const folder = RunFolder.open(disk, folderOf(config));
  return (await isOf(folder, config, hashes)) ? folder.metrics() : [];
}

/**
 * True if the folder has a run of this config and of these files, also if an earlier version of webgrpo wrote it. Values that the run itself
 * has set, such as a learning rate of auto, do not count.
 */
async function isOf(folder: RunFolder, asked: TrainConfig, hashes: FileHashes): Promise<boolean> {
  const path = folder.file('config.yaml');
  if (!existsSync(path)) return false;
  const { sha256, imports } = await notedHashes(folder.file('task.json'));
  if (sha256 !== hashes.sha256 || imports !== hashes.imports) return false;
  const config = await withRewardFiles(asked);
  const set = completedKeys(config);
  return changedKeys(await readText(path), config).every(({ key }) => set.includes(key));
}

/**
 * `webgrpo export`: writes a run as a folder that verl or TRL can train from, for users who outgrow one device. `export gguf` writes the
 * model as a file for llama.cpp.
 */

import { existsSync } from 'node:fs';
import { stringify } from 'yaml';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import { withLr } from '../../grpo/update/learningRate.ts';
import { collectWeights, saveCheckpoint } from '../../model/checkpoint/checkpoint.ts';
import { InputError } from '../../errors.ts';
import { prompted } from '../../extensions/tasks/index.ts';
import type { Problem } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { callsTools, openAiSchema } from '../../rollout/agent/prompt.ts';
import { EXPORTED_TOOLS, exportedTokenizerConfig, toolsNotCarried, turnNotCarried } from '../export/chatTemplate.ts';
import { findAdapter, type LoadedModel, SAVE_DTYPE_FLAG, loadModelFiles, readDtype } from '../run/checkpoints.ts';
import type { SafetensorsDtype } from '../../model/checkpoint/safetensors.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { refuseFlags } from '../args.ts';
import { type Command, JSON_FLAG, refuseUnread } from '../command.ts';
import { type ExportedSplit, trlParquet, verlParquet } from '../export/dataset.ts';
import { exportGguf } from '../export/gguf.ts';
import calculatorPython from '../export/python/calculator.py?raw';
import verlToolPython from '../export/python/verl_tools.py?raw';
import { ownReward, rewardOf } from '../export/reward.ts';
import { trlRun, trlScript } from '../export/trl.ts';
import { verlRun, verlScript } from '../export/verl.ts';
import { disk } from '../files.ts';
import { openConfig, runOf } from '../run/namedRun.ts';
import { openTask, readGsm8k } from '../run/openTask.ts';
import { withChatTemplate } from '../run/session.ts';
import { say } from '../run/progress.ts';

type Files = Map<string, Uint8Array | string>;

const TARGETS = { verl: verlFiles, trl: trlFiles };

export const exportRun: Command = {
  summary: 'export a run for verl or TRL (model, data, reward, settings), or its model as a GGUF file',
  usage: [
    'export verl runs/gsm8k-tool --out verl-run',
    'export trl checkpoints/gsm8k-tool --config configs/gsm8k-tool.yaml --out trl-run',
    'export gguf runs/gsm8k-tool --out gsm8k-tool.gguf --dtype q8_0',
  ],
  reads: ['words', 'settings'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    out: { value: 'PATH', help: 'folder or .gguf file to write; must not exist' },
    dtype: { ...SAVE_DTYPE_FLAG, help: `${SAVE_DTYPE_FLAG.help}; of gguf: float16 (default), q8_0 or float32` },
    config: { value: 'FILE', help: 'training config (default: that of the run folder)' },
  },
  async run(args, io) {
    const { overrides, flags } = args;
    const [target, source, ...rest] = args.positionals;
    if (target !== 'gguf' && !(target !== undefined && Object.hasOwn(TARGETS, target)))
      throw new InputError(
        `The export target is "${target ?? ''}"; allowed: ${Object.keys(TARGETS).join(', ')}, gguf. Write one of them after "export".`,
      );
    if (source === undefined || rest.length > 0)
      throw new InputError('No run was given. Give one run or checkpoint folder. --help shows an example.');
    const { out } = flags;
    if (typeof out !== 'string') throw new InputError('--out is missing. Give --out PATH.');
    if (existsSync(out)) throw new InputError(`${out} exists already. Give --out another name, or delete it.`);
    if (target === 'gguf') {
      refuseUnread('export gguf', { reads: ['words'] }, args);
      refuseFlags(flags, ['config'], 'on a GGUF file, which holds the model alone');
      const notes = await exportGguf(source, out, flags['dtype']);
      for (const sentence of notes) say(sentence);
      io.text(`  ${out}. Try it: llama-cli -m ${out}`);
      io.result({ out, notes });
      return;
    }
    const asked = await configOf(source, flags['config'], overrides);
    const peer = target as keyof typeof TARGETS;
    const reward = rewardOf(asked);
    await checkAdapter(peer, source, asked.model);
    say(`reading ${source}`);
    const model = await withChatTemplate(await loadModelFiles(source), asked.model.customChatTemplate);
    const written = withLr(asked, model.config);
    const { splits, tools, hasEnvironments } = await dataOf(written);
    const config = tools.some((tool) => EXPORTED_TOOLS.includes(tool)) ? written : withoutCalls(written);
    const tokenizerConfigJson = exportedTokenizerConfig(model, config, { tools, peer });
    const { files, ...run } = await TARGETS[peer](config, splits);
    files.set('reward.py', reward);
    const own = ownReward(config);
    if (own !== undefined)
      for (const { split, problems } of splits)
        files.set(`data/${split}.jsonl`, problems.map((problem) => `${JSON.stringify(problem)}\n`).join(''));
    const turns = peer === 'verl' && callsTools(config.rollout) ? turnNotCarried(model) : [];
    const problems = splits.flatMap((split) => split.problems);
    const notCarried = [
      ...(own === undefined
        ? []
        : [`The reward of ${own} is JavaScript: reward.py raises NotImplementedError until you write it.`]),
      ...(hasEnvironments ? ['task.environments: their first observations, tools and turns are JavaScript.'] : []),
      ...[...toolsNotCarried(config, tools, problems), ...turns, ...run.notCarried],
    ];
    files.set('README.md', readme(peer, config, { dtype: String(flags['dtype'] ?? 'float32'), notCarried }));
    for (const [name, bytes] of await modelFiles({ ...model, tokenizerConfigJson }, readDtype(flags['dtype'])))
      files.set(`model/${name}`, bytes);
    say(`writing ${out}`);
    await disk.writeFolder(out, files);
    for (const sentence of notCarried) say(`not carried over: ${sentence}`);
    io.text(`  ${out}: ${files.size} files. Its README.md says how to start it`);
    io.result({ out, files: [...files.keys()], notCarried });
  },
};

async function configOf(source: string, flag: string | boolean | undefined, overrides: string[]): Promise<TrainConfig> {
  if (typeof flag !== 'string' && !runOf(source))
    throw new InputError(
      `${source} has no config.yaml, so it is not a run folder. Give the training config with --config FILE.`,
    );
  const { source: path, text } = await openConfig(typeof flag === 'string' ? flag : source);
  return parseTrainConfig(text, { source: path, overrides });
}

async function modelFiles(model: LoadedModel, dtype: SafetensorsDtype): Promise<Map<string, Uint8Array>> {
  const weights = model.weights instanceof Map ? model.weights : await collectWeights(model.weights);
  return saveCheckpoint({ ...model, weights }, dtype);
}

async function verlFiles(config: TrainConfig, splits: ExportedSplit[]) {
  // run.sh sets the variable HERE to its own folder.
  const run = verlRun(config, '$HERE');
  const files: Files = new Map();
  for (const split of splits)
    files.set(`data/${split.split}.parquet`, await verlParquet(split, `webgrpo/${config.task.name}`));
  files.set('run.sh', verlScript(run));
  if (callsTools(config.rollout)) {
    files.set('calculator.py', calculatorPython);
    files.set('verl_tools.py', verlToolPython);
    files.set('tools.yaml', stringify({ tools: EXPORTED_TOOLS.map(verlTool) }));
  }
  return { files, notCarried: run.notCarried };
}

async function trlFiles(config: TrainConfig, splits: ExportedSplit[]) {
  const run = trlRun(config);
  const files: Files = new Map();
  for (const split of splits) files.set(`data/${split.split}.parquet`, await trlParquet(split));
  const withTools = callsTools(config.rollout);
  files.set('train.py', trlScript(run, withTools));
  if (withTools) files.set('calculator.py', calculatorPython);
  return { files, notCarried: run.notCarried };
}

/**
 * Throws InputError if the run has a trained adapter, which cannot be exported, or if a run with LoRA adapters that are not trained yet is
 * to be exported to verl.
 */
async function checkAdapter(peer: keyof typeof TARGETS, source: string, model: TrainConfig['model']): Promise<void> {
  const merged = 'Run "webgrpo merge" first, then export the merged folder with --config and model.loraRank=0.';
  const trained = (await findAdapter(source, model.loraAdapterPath)).folder;
  if (trained !== undefined) throw new InputError(`${trained} is a trained adapter, which is not exported. ${merged}`);
  if (peer === 'verl' && model.loraRank > 0)
    throw new InputError(`model.loraRank is ${model.loraRank}; adapters are exported to TRL alone. ${merged}`);
}

const verlTool = (tool: Tool) => ({
  class_name: 'verl_tools.CalculatorTool',
  config: { type: 'native' },
  tool_schema: openAiSchema(tool),
});

/**
 * Returns the problems to export (all problems of a data file, or as many as the run would take from a generator), and the tools of the
 * task.
 */
async function dataOf({
  task: taskConfig,
  data,
  trainer,
  seed,
}: TrainConfig): Promise<{ splits: ExportedSplit[]; tools: Tool[]; hasEnvironments: boolean }> {
  if (!Number.isFinite(trainer.totalTrainingSteps))
    throw new InputError(
      'trainer.totalTrainingSteps is missing, and the steps of totalEpochs are known only when a run starts. Set trainer.totalTrainingSteps.',
    );
  const task = await openTask(taskConfig);
  try {
    const drawn = data.trainBatchSize * Math.max(1, trainer.totalTrainingSteps);
    const isGsm8kFile = taskConfig.name === 'gsm8k' && taskConfig.path !== undefined;
    const count = taskConfig.path === undefined ? drawn : (task.trainSize ?? drawn);
    const train: Problem[] = isGsm8kFile
      ? (await readGsm8k(taskConfig)).train.map((problem) => prompted(problem, taskConfig.options))
      : await Promise.all(Array.from({ length: count }, async (_, index) => task.train(index, seed)));
    const splits: ExportedSplit[] = [
      { split: 'train', problems: train },
      { split: 'test', problems: await task.heldOut(data.valMaxSamples) },
    ];
    return { splits, tools: task.tools ?? [], hasEnvironments: Boolean(task.environments?.length) };
  } finally {
    task.close?.();
  }
}

/** Returns the config without tools, for a run whose tools the peer (verl or TRL) cannot call. Each sample is then one turn. */
function withoutCalls({ rollout, ...config }: TrainConfig): TrainConfig {
  return { ...config, rollout: { ...rollout, multiTurn: { ...rollout.multiTurn, enable: false } } };
}

const STARTS = { verl: ['verl', 'bash run.sh'], trl: ['TRL', 'python train.py'] };

function readme(
  peer: keyof typeof TARGETS,
  config: TrainConfig,
  { dtype, notCarried }: { dtype: string; notCarried: string[] },
): string {
  const [trainer, start] = STARTS[peer];
  return `# ${config.name} for ${trainer}

Written by \`webgrpo export\`. Start: \`${start}\`.

- \`model/\`: the checkpoint in Hugging Face format, ${dtype}
- \`data/\`: the problems as Parquet
- \`reward.py\`: the reward, in Python

It was written from settings and not run: webgrpo has neither Python nor CUDA.

## What does not carry over

${notCarried.map((sentence) => `- ${sentence}`).join('\n')}
`;
}

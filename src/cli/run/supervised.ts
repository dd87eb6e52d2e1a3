/** A supervised run into its folder: what `webgrpo sft` does, and `webgrpo train` where its model is a config of one. */

import { join } from 'node:path';
import { resolveTrainConfig } from '../../grpo/config/resolve.ts';
import { freshModelConfig, trainSupervised } from '../../grpo/sft.ts';
import type { SftConfig } from '../../grpo/config/sftSchema.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import { optimizerOf } from '../../model/optimizer/spec.ts';
import { initWeights, parameterCount } from '../../model/params.ts';
import { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { demonstration, demonstrationTokens, swapOnlyIn } from '../../tasks/supervised/demonstrations.ts';
import type { Gsm8kProblem } from '../../tasks/gsm8k/task.ts';
import { buildGsm8kTokenizer, buildTokenizer } from '../../tasks/gsm8k/tokenizer.ts';
import { keyedRng } from '../../tasks/random.ts';
import { exampleOf, taskTokenizer } from '../../tasks/supervised/warmStart.ts';
import { engineSizes } from '../../workers/localEngine.ts';
import { type LoadedModel, loadModelFiles, saveModel } from './checkpoints.ts';
import { installDawn } from '../dawn.ts';
import { readJsonFile } from '../files.ts';
import { onInterrupt } from './interrupt.ts';
import { openTask, readGsm8k } from './openTask.ts';
import { say } from './progress.ts';
import { RunFolder } from './runFolder.ts';
import { openEngine, withChatTemplate } from './session.ts';
import { openTrackers } from './trackers.ts';

/** The trained model (its newest checkpoint is in the folder) and the loss of each step. */
interface SupervisedRun {
  folder: RunFolder;
  model: LoadedModel;
  losses: number[];
}

/** Trains into <defaultLocalDir>/<name>; an earlier run of that name is kept under another. */
export async function runSupervised(config: SftConfig): Promise<SupervisedRun> {
  await installDawn(); // without an adapter no folder is made and none moved
  const model = await startModel(config);
  const { folder, moved } = await RunFolder.create(join(config.trainer.defaultLocalDir, config.name), config);
  if (moved) say(`an earlier run of that name is kept as ${moved}`);
  const losses = await runSft(config, model, folder);
  return { folder, model, losses };
}

/** Fresh weights and a tokenizer trained on the task's text, unless the config names some. */
async function startModel(config: SftConfig): Promise<LoadedModel> {
  const { customChatTemplate } = config.model;
  return withChatTemplate(await baseModel(config), customChatTemplate);
}

async function baseModel(config: SftConfig): Promise<LoadedModel> {
  if (config.model.path !== undefined) return loadModelFiles(config.model.path);
  const { tokenizerJson, tokenizerConfigJson } = await startTokenizer(config);
  const { vocabSize } = new ChatTokenizer(tokenizerJson, tokenizerConfigJson);
  const model = freshModelConfig(config, vocabSize);
  say(`model: fresh, ${(parameterCount(model) / 1e6).toFixed(2)} M parameters, vocabulary ${vocabSize}`);
  return { config: model, weights: initWeights(model, config.seed), tokenizerJson, tokenizerConfigJson };
}

async function startTokenizer({ model, task }: SftConfig) {
  if (model.tokenizerPath !== undefined) {
    const read = async (name: string) =>
      (await readJsonFile(join(model.tokenizerPath!, name))) as Record<string, unknown>;
    return { tokenizerJson: await read('tokenizer.json'), tokenizerConfigJson: await read('tokenizer_config.json') };
  }
  const files = await trainTokenizer(task, model.vocabSize);
  return { tokenizerJson: files.tokenizer, tokenizerConfigJson: files.config };
}

async function trainTokenizer(task: SftConfig['task'], vocabSize: number) {
  if (task.name !== 'gsm8k') return taskTokenizer(await openTask(task), vocabSize);
  if (task.path === undefined) return buildGsm8kTokenizer(vocabSize);
  return buildTokenizer((await readGsm8k(task)).train, vocabSize);
}

/** Trains, writes metrics and the final checkpoint, and puts the weights into `model`. Returns the loss of each step. */
async function runSft(config: SftConfig, model: LoadedModel, folder: RunFolder): Promise<number[]> {
  const { engine: name, data, trainer } = config;
  const engine = await openEngine(model, {
    engine: name,
    maxTokenLen: data.maxTokenLenPerGpu,
    maxPositions: data.maxLength,
    ...(config.optim.optimizer !== 'AdamW' && { optimizer: optimizerOf(config.optim) }),
    chatTemplateKwargs: data.chatTemplateKwargs,
  });
  const [losses, history]: [number[], Metrics[]] = [[], []];
  const trackers = await openTrackers(trainer.logger, folder, history);
  let stopped = false;
  const removeHandler = onInterrupt(() => {
    stopped = true;
    say('Stopping after this step; press Ctrl-C again to quit without saving.');
  });
  try {
    await trainSupervised({
      config,
      engine: engine.model,
      example: await exampleStream(config, engine.tokenizer),
      shouldStop: () => stopped,
      onStep: async (metrics) => {
        losses.push(metrics['train/loss']);
        history.push(metrics);
        await folder.appendMetrics(metrics);
        for (const tracker of trackers) await tracker.log(metrics, history);
        const speed = metrics['perf/trained_tokens'] / metrics['timing_s/step'];
        const step = metrics['training/global_step'];
        if (trainer.logger.includes('console') && (step % 10 === 0 || step === 1))
          say(
            `step ${step}/${trainer.totalTrainingSteps}  loss ${losses.at(-1)!.toFixed(4)}  tokens/s ${speed.toFixed(0)}`,
          );
      },
    });
    const weights = await engine.model.exportWeights();
    model.weights = weights;
    await saveModel(folder.checkpoint(losses.length), { ...model, weights });
    return losses;
  } finally {
    removeHandler();
    engine.destroy();
  }
}

/** Demonstration `index` of an endless stream: the task's problem of that number, with its own mistakes. */
async function exampleStream({ task, seed, data }: SftConfig, tokenizer: ChatTokenizer) {
  const source = await openTask(task);
  if (task.name !== 'gsm8k')
    return (index: number) => exampleOf(source, tokenizer, seed, index, data.demonstrations.laterErrorRate);
  const { guessRate, firstOperationErrorRate, laterErrorRate, swappedTemplates } = data.demonstrations;
  const rates = { guessed: guessRate, firstSwapped: firstOperationErrorRate, laterWrong: laterErrorRate };
  const errors = swapOnlyIn(rates, swappedTemplates ?? '');
  return (index: number) => {
    const problem = source.train(index, seed) as Gsm8kProblem;
    const rng = keyedRng('sft-mistakes', seed, index);
    return demonstrationTokens(tokenizer, problem, demonstration(problem, rng, errors));
  };
}

/** Room for every task's demonstrations. */
const MANY_TURNS = { maxAssistantTurns: 12, maxToolCalls: 12, maxToolResponseLength: 256 };

/** Held-out accuracy of the trained model, sampled as the GRPO recipe samples. */
export async function evaluateSupervised(config: SftConfig, model: LoadedModel) {
  const half = Math.floor(config.data.maxLength / 2);
  const evalConfig = resolveTrainConfig({
    name: config.name,
    seed: config.seed,
    model: { path: 'in memory' },
    data: {
      valMaxSamples: config.data.valMaxSamples,
      maxPromptLength: half,
      maxResponseLength: config.data.maxLength - half,
      chatTemplateKwargs: config.data.chatTemplateKwargs,
    },
    ...(config.task.name !== 'gsm8k' && { rollout: { multiTurn: MANY_TURNS } }),
  });
  const engine = await openEngine(model, engineSizes(evalConfig));
  try {
    const trainer = new GrpoTrainer({ config: evalConfig, task: await openTask(config.task), engine });
    return await trainer.validate({ greedy: true });
  } finally {
    engine.destroy();
  }
}

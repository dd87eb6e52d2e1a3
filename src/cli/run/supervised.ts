/** Runs supervised training: for `webgrpo sft`, and for `webgrpo train` if its `model.path` is the config of a supervised run. */

import { totalmem } from 'node:os';
import { join } from 'node:path';
import { resolveTrainConfig } from '../../grpo/config/resolve.ts';
import {
  buildTokenizer,
  exampleStream,
  freshModel,
  freshModelConfig,
  generatedTokenizer,
  isGsm8k,
  type SftConfig,
  type TokenizerOnly,
  trainSupervised,
} from '../../extensions/sft/index.ts';
import { promptLosses } from '../../extensions/checks/index.ts';
import { InputError, StoppedError } from '../../errors.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import { withTokenizer } from '../../model/checkpoint/checkpoint.ts';
import { readSourceFiles, tokenizerIn } from '../../model/checkpoint/sourceFiles.ts';
import { optimizerOf } from '../../model/optimizer/spec.ts';
import { parameterCount } from '../../model/params.ts';
import { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { modelTokenizer } from '../../model/tokenizer/modelTokenizer.ts';
import type { Task } from '../../tasks/task.ts';
import { policySizes } from '../../workers/localEngine.ts';
import { mib } from '../../workers/memoryPlan.ts';
import { type LoadedModel, loadModelFiles } from './checkpoints.ts';
import { installDawn } from '../dawn.ts';
import { folderFiles, shippedPath } from '../files.ts';
import { onInterrupt } from '../process/interrupt.ts';
import { currentIo } from '../process/io.ts';
import { openTask, readGsm8k } from './openTask.ts';
import { noteTask } from './resume.ts';
import { say, whileEvaluating, whileWorking } from './progress.ts';
import { expectRoom, modelFiles, writeCheckpoint } from '../../runs/checkpointFolder.ts';
import type { FileSystem } from '../../runs/fileSystem.ts';
import { amended } from '../../runs/amended.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { checkContextLength, checkTokenizer, openEngine, withChatTemplate } from './session.ts';
import { openTrackers } from './trackers.ts';

/** Result of a supervised run: its folder with the final checkpoint, the trained model, and the loss of each step. */
interface SupervisedRun {
  folder: RunFolder;
  model: LoadedModel;
  losses: number[];
  /** Adds the metrics of an evaluation to the last step, in the run folder and in the trackers. */
  logEvaluation(metrics: Metrics): Promise<void>;
}

/** Returns the run folder of a supervised config. */
export const supervisedFolder = ({ name, trainer }: SftConfig): string => join(trainer.defaultLocalDir, name);

/**
 * Trains in the run folder, which the caller has locked (heldFolder.ts). An earlier run folder of the same name is renamed. Throws
 * StoppedError if a signal ended the run early.
 */
export async function runSupervised(files: FileSystem, config: SftConfig): Promise<SupervisedRun> {
  if (!currentIo().createEngine) await installDawn(); // before folders are created or renamed, so that a missing adapter changes nothing
  const model = await startModel(config);
  const { endNote } = modelTokenizer(model);
  if (endNote) say(endNote);
  return closing(await openTask(config.task), async (task) => {
    await checkExamples(config, model, task);
    const path = supervisedFolder(config);
    await files.tidy(path); // the unfinished files of a killed run take space too
    await expectRoom(files, path, 4 * parameterCount(model.config));
    const { folder, moved } = await RunFolder.create(files, path, config);
    if (moved) say(`an earlier run of that name was renamed to ${moved}`);
    await noteTask(folder, task);
    return { folder, model, ...(await runSft(config, model, folder, task)) };
  });
}

/** Number of demonstrations that are encoded before the training. A few suffice, because all usually have the same roles and tool calls. */
const CHECKED_EXAMPLES = 8;

/** Throws InputError if the chat template drops text of a demonstration, before a run folder is created. */
async function checkExamples(config: SftConfig, files: LoadedModel, task: Task): Promise<void> {
  const tokenizer = modelTokenizer(files, config.data.chatTemplateKwargs);
  const example = exampleStream(config, tokenizer, task);
  for (let i = 0; i < CHECKED_EXAMPLES; i++) await example(i);
  const training = await Promise.all(
    Array.from({ length: CHECKED_EXAMPLES }, async (_, i) => task.train(i, config.seed)),
  );
  const heldOut = await task.heldOut(config.data.valMaxSamples);
  for (const note of promptLosses({ task, tokenizer }, { training, heldOut })) say(note);
}

/** Returns the model that the config names; without one, new random weights and a tokenizer trained on the task's text. */
async function startModel(config: SftConfig): Promise<LoadedModel> {
  const { customChatTemplate } = config.model;
  return withChatTemplate(await baseModel(config), customChatTemplate);
}

async function baseModel(config: SftConfig): Promise<LoadedModel> {
  const { path } = config.model;
  if (path !== undefined) {
    const model = checkTokenizer(await loadModelFiles(path), path);
    checkContextLength(model.config, path, { keys: 'data.maxLength', tokens: config.data.maxLength });
    return model;
  }
  const tokenizer = await startTokenizer(config);
  const { vocabSize } = new ChatTokenizer(tokenizer.tokenizerJson, tokenizer.tokenizerConfigJson);
  const sizes = freshModelConfig(config, vocabSize);
  const bytes = 4 * parameterCount(sizes);
  if (bytes > totalmem())
    throw new InputError(
      `The model of model.* takes ${mib(bytes)} as float32, but this machine has ${mib(totalmem())}. Lower its sizes.`,
    );
  say(`model: fresh, ${(parameterCount(sizes) / 1e6).toFixed(2)} M parameters, vocabulary ${vocabSize}`);
  return freshModel(config, tokenizer);
}

async function startTokenizer(config: SftConfig): Promise<TokenizerOnly> {
  const { tokenizerPath: path } = config.model;
  if (path !== undefined) {
    const sourceFiles = new Map(await readSourceFiles(folderFiles(shippedPath(path))));
    for (const ofModel of ['config.json', 'generation_config.json']) sourceFiles.delete(ofModel);
    return withTokenizer(path, { ...tokenizerIn(sourceFiles), sourceFiles });
  }
  const files = await trainTokenizer(config);
  return { tokenizerJson: files.tokenizer, tokenizerConfigJson: files.config };
}

async function trainTokenizer(config: SftConfig) {
  const { task, model } = config;
  if (isGsm8k(task) && task.path !== undefined) return buildTokenizer((await readGsm8k(task)).train, model.vocabSize);
  return closing(await openTask(task), (opened) => generatedTokenizer(config, opened));
}

/** Trains, writes metrics and the final checkpoint, and puts the trained weights into `model`. */
async function runSft(
  config: SftConfig,
  model: LoadedModel,
  folder: RunFolder,
  task: Task,
): Promise<Pick<SupervisedRun, 'losses' | 'logEvaluation'>> {
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
    say('Stopping after this step. Press Ctrl-C again to quit without saving.');
  });
  try {
    await whileWorking('supervised training', (show) =>
      trainSupervised({
        config,
        engine: engine.model,
        example: exampleStream(config, engine.tokenizer, task),
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
          show(`supervised training: step ${step}/${trainer.totalTrainingSteps}`);
        },
      }),
    );
    if (losses.length === 0 && stopped) throw new StoppedError('Stopped before the first step. Nothing was saved.');
    const weights = await engine.model.exportWeights();
    model.weights = weights;
    await writeCheckpoint(folder.files, folder.checkpoint(losses.length), modelFiles({ ...model, weights }));
    const isDone = losses.length === trainer.totalTrainingSteps;
    if (stopped)
      throw new StoppedError(
        `Stopped after step ${losses.length} of ${trainer.totalTrainingSteps} of the supervised run. Its model is in ` +
          `${folder.checkpoint(losses.length)}. ` +
          (isDone
            ? 'It is complete, but was not evaluated.'
            : 'A supervised run cannot resume: the same command restarts it.'),
      );
    const logEvaluation = async (evaluated: Metrics) => {
      const metrics = { 'training/global_step': losses.length, ...evaluated };
      const lines = amended(history, metrics);
      await folder.writeMetrics(lines);
      for (const tracker of trackers) await tracker.log(metrics, lines);
    };
    return { losses, logEvaluation };
  } finally {
    removeHandler();
    engine.destroy();
  }
}

/** Limits of turns and tool calls, high enough for the demonstrations of every shipped task. */
const MANY_TURNS = { maxAssistantTurns: 12, maxToolCalls: 12, maxToolResponseLength: 256 };

/** Returns the held-out accuracy of the trained model, with the sampling settings of the GRPO recipe. */
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
    ...(!isGsm8k(config.task) && { rollout: { multiTurn: MANY_TURNS } }),
  });
  const engine = await openEngine(model, policySizes(evalConfig, 'generate'));
  try {
    return await closing(await openTask(config.task), (task) =>
      whileEvaluating((onEvaluating) =>
        new GrpoTrainer({ config: evalConfig, task, engine, onEvaluating }).validate({ greedy: true }),
      ),
    );
  } finally {
    engine.destroy();
  }
}

async function closing<T>(task: Task, use: (task: Task) => Promise<T>): Promise<T> {
  try {
    return await use(task);
  } finally {
    task.close?.();
  }
}

/** Opens the model, the task and the engine of a command, and prints a line about each. */

import type { TrainConfig } from '../../grpo/config/types.ts';
import { agentLimits } from '../../grpo/generate/options.ts';
import { checkedCount, checkTemplate, heldOutNotes } from '../../extensions/checks/index.ts';
import { checkedProblems, promptFits } from '../../grpo/generate/trainingSet.ts';
import { isTree } from '../../grpo/config/tree.ts';
import { isGgufModel } from '../../model/checkpoint/address.ts';
import type { Adapter } from '../../model/lora/adapter.ts';
import type { ModelConfig } from '../../model/config.ts';
import { DeviceLostError, InputError } from '../../errors.ts';
import type { TuningFile } from '../../model/kernels/tuning.ts';
import { type LoraConfig, planLora } from '../../model/lora/weights.ts';
import { parameterCount } from '../../model/params.ts';
import { modelTokenizer } from '../../model/tokenizer/modelTokenizer.ts';
import { callsTools, encodePrompt, promptOf, writesSchemas } from '../../rollout/agent/prompt.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import { type OtherEngine, judgeCheckpoint } from '../../workers/engineSpec.ts';
import {
  createLocalEngine,
  engineSizes,
  type EngineSpec,
  type LocalEngine,
  loraOf,
  policySizes,
} from '../../workers/localEngine.ts';
import '../../tfjs.ts';

import { splitEngine, splitSpecs, streamOptions } from '../../workers/splitEngine.ts';
import { type AdaptedModel, findAdapter, type LoadedModel, loadModelFiles, loadWithAdapter } from './checkpoints.ts';
import { adapterMemory, installDawn } from '../dawn.ts';
import { tuningStore } from '../diskStore.ts';
import { readJsonFile, readText } from '../files.ts';
import { type CommandEngine, currentIo } from '../process/io.ts';
import type { PlanItem, Sizes as PlannedSizes } from '../../workers/memoryPlan.ts';
import { openTask } from './openTask.ts';
import { isLarge, sayAdapter, sayMemory } from './plan.ts';
import { LOADING, say, sayPassing, whileWorking } from './progress.ts';

export interface CommandSession {
  model: AdaptedModel;
  /** LoRA settings; undefined if all weights are trained. */
  lora?: LoraConfig;
  task: Task;
  engine: CommandEngine;
  /** Closes the task and frees the device. */
  close(): void;
}

/**
 * Opens a session. Throws InputError for a bad checkpoint or task, NoAdapterError and OutOfMemoryError.
 * @param given task to use instead of the config's; it is not checked whether the chat template renders its prompts completely
 * @param otherEngine sizes of an engine that the command opens in addition to the session's, on the same adapter
 */
export async function openSession(
  config: TrainConfig,
  use: 'train' | 'generate' = 'train',
  given?: Task,
  otherEngine?: OtherEngine,
): Promise<CommandSession> {
  const { path, loraAdapterPath } = config.model;
  const loaded = await loadWithAdapter(path, loraAdapterPath);
  const model = await withChatTemplate(loaded, config.model.customChatTemplate);
  const task = given ?? (await openTask(config.task, config.reward));
  try {
    checkFits(model, config);
    if (!given) await checkPrompts(model, task, config);
    if (!currentIo().createEngine) await installDawn(); // before anything is printed, so that a missing adapter is reported first
    say(`model: ${config.model.path}, ${(parameterCount(model.config) / 1e6).toFixed(2)} M parameters`);
    const lora = loraSettings(config, model.adapter);
    if (lora) say(adapterLine(model.config, lora));
    if (lora && use === 'train' && isGgufModel(model.base)) say(MERGE_FOR_PEFT);
    const judge = use === 'train' ? judgeCheckpoint(config) : undefined;
    const judgeModel = judge === undefined ? undefined : await openJudge(judge);
    const asked = use === 'train' ? engineSizes(config) : policySizes(config, use);
    const other = otherEngine && { otherEngines: [{ ...otherEngine, ...(lora && { lora }) }] };
    const sizes = { ...asked, ...(lora && { lora }), ...(judgeModel && { judgeModel }), ...other };
    const isSplit = use === 'train' && config.trainer.placement === 'split';
    const engine = await (isSplit ? openSplit(model, sizes, config) : openEngine(model, sizes));
    const close = () => {
      task.close?.();
      engine.destroy();
    };
    return { model, task, engine, close, ...(lora && { lora }) };
  } catch (error) {
    task.close?.();
    throw error;
  }
}

/** Opens the model of a judge (reward.judge). Throws InputError for an adapter, because a judge needs complete weights. */
async function openJudge(path: string): Promise<LoadedModel> {
  const { folder } = await findAdapter(path);
  if (folder !== undefined)
    throw new InputError(
      `reward.judge.checkpoint ${path} is an adapter, but a judge needs full weights. Run "webgrpo merge" first.`,
    );
  const model = await loadModelFiles(path);
  say(`judge: ${path}, ${(parameterCount(model.config) / 1e6).toFixed(2)} M parameters, frozen`);
  return checkTokenizer(model, path);
}

/** Returns the model with the chat template in `file` instead of its own. Checkpoints of the run then contain this template. */
export async function withChatTemplate<T extends LoadedModel>(model: T, file: string | undefined): Promise<T> {
  if (file === undefined) return model;
  return { ...model, tokenizerConfigJson: { ...model.tokenizerConfigJson, chat_template: await readText(file) } };
}

/** Returns LoRA settings. A loaded adapter determines rank and target modules; the config determines dropout and seed. */
export function loraSettings(config: TrainConfig, adapter: Adapter | undefined): LoraConfig | undefined {
  const asked = loraOf(config);
  if (!adapter) return asked;
  const { lora } = adapter;
  if (asked && asked.rank !== lora.rank) {
    throw new InputError(
      `model.loraRank is ${asked.rank}, but the loaded adapter has rank ${lora.rank}. Leave model.loraRank out.`,
    );
  }
  return { ...lora, dropout: config.model.loraDropout, seed: config.seed };
}

/** Note for adapters on a GGUF base: the saved adapter names its base, and PEFT can load only folders and models of the Hub. */
const MERGE_FOR_PEFT =
  'adapters: PEFT cannot load them over a .gguf file. To use the result elsewhere, run "webgrpo merge --model RUN --out FOLDER".';

function adapterLine(config: ModelConfig, lora: LoraConfig): string {
  const { targetModules, rank, alpha, useRslora } = lora;
  const millions = (planLora(config, lora).bytes / 4e6).toFixed(2);
  const scale = useRslora ? ', rank-stabilised' : '';
  return `adapters: rank ${rank}, alpha ${alpha}${scale}, ${millions} M parameters on ${targetModules.join(', ')}; the weights are frozen`;
}

/**
 * Throws InputError if the tokenizer has more ids than the model's vocabulary, or if a sequence can be longer than the model's positions.
 * Training would otherwise run and learn nonsense.
 */
function checkFits(loaded: LoadedModel, { model, data }: TrainConfig): void {
  const { config } = checkTokenizer(loaded, model.path);
  const isLowered = model.lowerToFit?.includes('data.maxResponseLength');
  if (isLowered && data.maxPromptLength < config.maxPositionEmbeddings) return;
  const keys = 'data.maxPromptLength + data.maxResponseLength';
  checkContextLength(config, model.path, { keys, tokens: data.maxPromptLength + data.maxResponseLength });
}

/** Throws InputError if sequences can have more tokens than the model has positions. `keys`: those that set the number of tokens. */
export function checkContextLength(
  { maxPositionEmbeddings }: ModelConfig,
  path: string,
  { keys, tokens }: { keys: string; tokens: number },
): void {
  if (tokens <= maxPositionEmbeddings) return;
  throw new InputError(
    `${path}: the model has ${maxPositionEmbeddings} positions, but ${keys} is ${tokens}. Lower ${keys.includes('+') ? 'them' : 'it'}.`,
  );
}

/** Returns the model. Throws InputError if its embedding has fewer rows than the tokenizer has ids. */
export function checkTokenizer(model: LoadedModel, path: string): LoadedModel {
  const { config } = model;
  const { vocabSize, endNote } = modelTokenizer(model);
  if (endNote) say(`${path}: ${endNote}`);
  if (vocabSize <= config.vocabSize) return model;
  throw new InputError(
    `${path}: the tokenizer has ${vocabSize} tokens, but the embedding of the model has ${config.vocabSize} rows. Use the files of one model.`,
  );
}

/**
 * Throws InputError for a prompt that is too long, before a run folder is created instead of in some later step. With
 * data.filterOverlongPrompts, prints how many prompts are skipped.
 */
async function checkPrompts(model: LoadedModel, task: Task, config: TrainConfig): Promise<void> {
  const { data, rollout } = config;
  const { heldOut, training } = await checkedProblems(task, config, checkedCount(task, config));
  const tokenizer = modelTokenizer(model, data.chatTemplateKwargs);
  const limits = agentLimits(config);
  const problemsOf = { training, heldOut };
  for (const note of [...checkTemplate({ config, task, tokenizer }, problemsOf), ...heldOutNotes(task, problemsOf)])
    say(note);
  if (data.filterOverlongPrompts) {
    const fits = promptFits({ config, tokenizer, task });
    const leftOut = (problems: Problem[]) =>
      `${problems.filter((problem) => !fits(problem)).length} of ${problems.length}`;
    say(
      `prompts over ${data.maxPromptLength} tokens skipped: ${leftOut(training)} training, ${leftOut(heldOut)} held-out`,
    );
    return;
  }
  const isWritten = (problem: Problem) => writesSchemas(rollout, tokenizer, problem);
  const problems = [...heldOut, ...training];
  const partsFor = (problem: Problem) => ({
    ...{ tokenizer, problem, ...partsOf(task, problem), toolSchemasInPrompt: isWritten(problem) },
  });
  const lengths = problems.map((problem) => encodePrompt(partsFor(problem)).length);
  const longest = problems[lengths.indexOf(lengths.reduce((most, length) => Math.max(most, length), 0))];
  // Only the longest prompt is checked: an error then names a maxPromptLength that is enough for all of them.
  if (longest) promptOf({ ...partsFor(longest), limits });
  const untold = isLarge(model.config)
    ? untoldTools(
        task,
        problems.filter((problem) => !isWritten(problem)),
        rollout,
      )
    : [];
  if (untold.length > 0)
    say(
      `prompts do not name the tool ${untold.join(', ')}, and hold no tool schemas: describe the tool and how to call it in a ` +
        'system message, or set model.customChatTemplate to a template that writes tools',
    );
}

/**
 * Returns the names of tools that a sample can call although its prompt does not name them. A pretrained model cannot know these tools.
 */
export function untoldTools(
  task: Task,
  problems: readonly Problem[],
  { multiTurn, agent }: Pick<TrainConfig['rollout'], 'multiTurn' | 'agent'>,
): string[] {
  const untold = problems.flatMap((problem) => {
    const loop = { defaultAgentLoop: problem.agentName ?? agent.defaultAgentLoop };
    if (!callsTools({ multiTurn, agent: loop })) return [];
    const text = problem.messages.map(({ content }) => content).join('\n');
    return partsOf(task, problem).tools.filter(({ name }) => !text.includes(name));
  });
  return [...new Set(untold.map(({ name }) => name))];
}

/** If `kernelTuning` is the name of a file, replaces it by the content of that file. */
async function withTable(spec: EngineSpec): Promise<EngineSpec> {
  const { kernelTuning = 'auto' } = spec;
  if (typeof kernelTuning !== 'string' || ['auto', 'off'].includes(kernelTuning)) return spec;
  const table = await readJsonFile(kernelTuning);
  return { ...spec, kernelTuning: (isTree(table) ? table : {}) as unknown as TuningFile };
}

type Sizes = Omit<EngineSpec, 'config' | 'weights' | 'tokenizerJson' | 'tokenizerConfigJson'>;

/**
 * Opens two engines as one: training on one GPU device, rollout on another. If the machine has only one adapter, both devices are on it.
 */
async function openSplit(model: AdaptedModel, sizes: Sizes, config: TrainConfig): Promise<CommandEngine> {
  if (currentIo().createEngine)
    throw new InputError(
      'trainer.placement is "split", but a page of Chromium has one device. Set trainer.placement=colocated.',
    );
  const specs = splitSpecs(sizes);
  say('trainer.placement is split: the device that trains, then the one that generates');
  const train = await openLocal(model, specs.train);
  try {
    return withLost(splitEngine(train, await openLocal(model, specs.rollout), streamOptions(config)));
  } catch (error) {
    train.destroy();
    throw error;
  }
}

type Engineless = LoadedModel & { adapter?: Adapter };

/** Opens an engine for a loaded model: on Dawn, or with `createEngine` of the current io. */
export async function openEngine(model: Engineless, sizes: Sizes): Promise<CommandEngine> {
  const { createEngine } = currentIo();
  return createEngine ? createEngine(await withTable(specOf(model, sizes))) : withLost(await openLocal(model, sizes));
}

function specOf(
  { config, weights, tokenizerJson, tokenizerConfigJson, adapter }: Engineless,
  sizes: Sizes,
): EngineSpec {
  const given = adapter && { lora: adapter.lora, adapter: adapter.tensors };
  return { ...given, ...sizes, config, weights, tokenizerJson, tokenizerConfigJson };
}

function withLost(engine: LocalEngine): CommandEngine {
  const lost = engine.gpu.device.lost.then(({ reason, message }) => new DeviceLostError(reason, message));
  return Object.assign(engine, { lost });
}

/** Opens an engine on Dawn. The memory plan is printed before the weights are read. */
async function openLocal(model: Engineless, sizes: Sizes): Promise<LocalEngine> {
  await installDawn();
  const spec = await withTable(specOf(model, sizes));
  const onPlan = (offered: PlannedSizes, items: PlanItem[]) => {
    sayMemory(spec, offered, items);
    sayPassing(LOADING);
  };
  const around = { machineBytes: await adapterMemory(), onPlan };
  const engine = await whileWorking(LOADING, () => createLocalEngine(spec, tuningStore(), around));
  sayAdapter(engine.adapter);
  if (engine.tiles !== 'built in') say(`kernels: ${engine.tiles}, see webgrpo tune`);
  return engine;
}

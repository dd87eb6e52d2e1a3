/**
 * Answers questions with the task of a run or config: its prompt format, its limits of turns and tokens, and its tools, which are executed.
 */

import { InputError } from '../../errors.ts';
import { answer, questionOf } from '../../extensions/ask/index.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { randomKey } from '../../grpo/generate/samples.ts';
import type { Message, Task } from '../../tasks/task.ts';
import { answerSizes } from '../../workers/engineSpec.ts';
import type { ParsedArgs } from '../args.ts';
import { loadWithAdapter } from '../run/checkpoints.ts';
import { modelOf, openConfig, runOf } from '../run/namedRun.ts';
import { openTask } from '../run/openTask.ts';
import { say } from '../run/progress.ts';
import { openEngine, withChatTemplate } from '../run/session.ts';
import { withWarmStart } from '../run/warmStart.ts';
import { type Answer, Screen } from './conversation.ts';
import { integerFlag } from './samplingFlags.ts';

/** The config, and its opened task, with which questions are answered. */
export interface AnsweringTask {
  config: TrainConfig;
  task: Task;
}

/** Config key that each command-line flag sets. */
const KEYS: Readonly<Record<string, string>> = {
  temperature: 'rollout.temperature',
  'top-k': 'rollout.topK',
  'top-p': 'rollout.topP',
  'min-p': 'rollout.minP',
  'repetition-penalty': 'rollout.repetitionPenalty',
  'presence-penalty': 'rollout.presencePenalty',
  'frequency-penalty': 'rollout.frequencyPenalty',
  'min-new-tokens': 'rollout.minNewTokens',
  'max-new-tokens': 'data.maxResponseLength',
  'include-stop': 'rollout.includeStopStrInOutput',
  quantization: 'model.quantization',
  dtype: 'model.dtype',
};

/**
 * Opens the task of `--config`, or of the run that `--model` names; undefined if --model is not a run. If the task of a run cannot be
 * opened or takes no questions, prints the reason and returns undefined: the model then answers without tools. If the task of `--config`
 * cannot, throws InputError.
 */
export async function openAnswering(flags: ParsedArgs['flags'], lists: ParsedArgs['lists']) {
  const { config, model } = flags;
  if (typeof config === 'string') {
    if (flags['raw'])
      throw new InputError('--raw gives the model the prompt alone, without a task. Leave out --raw or --config.');
    return open(config, flags, lists);
  }
  if (typeof model !== 'string' || flags['raw'] || !runOf(model)) return undefined;
  return open(model, flags, lists).catch((error: unknown) => {
    if (!(error instanceof InputError)) throw error;
    say(`${model} answers without the tools of its task: ${error.message}`);
    return undefined;
  });
}

async function open(path: string, flags: ParsedArgs['flags'], lists: ParsedArgs['lists'] = {}): Promise<AnsweringTask> {
  const { source, text, run } = await openConfig(path);
  if (lists['logit-bias']?.length)
    throw new InputError('--logit-bias cannot be used for answers with the prompt and tools of a task. Leave it out.');
  const set = Object.entries(KEYS).flatMap(([flag, key]) => {
    const value = flags[flag];
    return value === undefined || (flag === 'temperature' && Number(value) === 0) ? [] : [`${key}=${String(value)}`];
  });
  const stops = lists['stop']?.length ? [`rollout.stop=${JSON.stringify(lists['stop'])}`] : [];
  const overrides = [...set, ...stops];
  const config = parseTrainConfig(text, { source, overrides, note: () => {}, trains: false });
  const asked = typeof flags['model'] === 'string' ? modelOf(flags['model']) : run?.model;
  if (asked !== undefined) config.model = { ...config.model, path: asked, loraAdapterPath: undefined };
  if (typeof flags['adapter'] === 'string') config.model.loraAdapterPath = flags['adapter'];
  config.model.loraRank = 0; // the checkpoint brings its own adapter, if any
  const task = await openTask(config.task);
  try {
    await questionOf(task, '');
    return { config, task };
  } catch (error) {
    task.close?.();
    throw error;
  }
}

/** An answer, and all messages of its conversation: turns and tool outputs. */
export interface TaskAnswer extends Answer {
  messages: Message[];
}

type Opened = Awaited<ReturnType<typeof openTaskEngine>> & { seed: number; system: string | undefined };

/** Answers one question after another. Each question continues the conversation of the earlier ones. */
export class TaskAnswers {
  readonly #options: Opened;
  readonly #onText: (text: string) => void;
  readonly #earlier: Message[] = [];
  readonly #isGreedy: boolean;
  #asked = 0;

  private constructor(options: Opened, isGreedy: boolean, onText: (text: string) => void) {
    [this.#options, this.#isGreedy, this.#onText] = [options, isGreedy, onText];
  }

  /** Opens the model that the config names. */
  static async open(
    answering: AnsweringTask,
    flags: ParsedArgs['flags'],
    seed: number,
    onText: (text: string) => void,
  ): Promise<TaskAnswers> {
    const opened = await openTaskEngine(answering, flags);
    const system = typeof flags['system'] === 'string' ? flags['system'] : undefined;
    return new TaskAnswers({ ...opened, seed, system }, Number(flags['temperature']) === 0, onText);
  }

  /** Answers a question. Throws InputError if the conversation has become too long. */
  async ask(question: string): Promise<TaskAnswer> {
    const { config, task, engine, contextLength, seed, system } = this.#options;
    const problem = await questionOf(task, question, this.#earlier);
    if (system !== undefined)
      problem.messages = [
        { role: 'system', content: system },
        ...problem.messages.filter(({ role }) => role !== 'system'),
      ];
    const newScreen = () => new Screen(engine.tokenizer, { stop: config.rollout.stop ?? [] }, this.#onText);
    let screen = newScreen();
    const started = performance.now();
    const { trajectory, messages } = await answer({
      ...{ config, task, problem, contextLength, greedy: this.#isGreedy },
      tokenizer: engine.tokenizer,
      rollout: engine.rollout,
      key: randomKey(seed, 0, 0, this.#asked++),
      onTokens: (ids) => screen.push(ids),
      onMessage: ({ role, content }) => {
        if (role === 'assistant') screen.show(content);
        this.#onText(role === 'assistant' ? '\n' : `${role}: ${content}\n`);
        screen = newScreen();
      },
    });
    const seconds = (performance.now() - started) / 1000;
    this.#earlier.splice(0, Infinity, ...problem.messages, ...messages);
    const tokenIds = [...trajectory.responseIds].filter((_, t) => trajectory.mask[t] === 1);
    const text = messages.findLast(({ role }) => role === 'assistant')?.content ?? '';
    const { stopReason } = trajectory;
    return { text, messages, tokenIds, stopReason, seconds, tokensPerSecond: tokenIds.length / seconds };
  }

  close(): void {
    this.#options.task.close?.();
    this.#options.engine.destroy();
  }
}

async function openTaskEngine({ config: asked, task }: AnsweringTask, flags: ParsedArgs['flags']) {
  try {
    const config = await withWarmStart(asked);
    const { path, loraAdapterPath, customChatTemplate } = config.model;
    const model = await withChatTemplate(await loadWithAdapter(path, loraAdapterPath), customChatTemplate);
    const range: [number, number] = [config.data.maxResponseLength + 1, model.config.maxPositionEmbeddings];
    const context = flags['context'] === undefined ? undefined : integerFlag(flags, 'context', 0, range);
    const sizes = answerSizes(config, model.config, { start: false, context });
    const engine = await openEngine(model, sizes);
    const names = (task.tools ?? []).map(({ name }) => name).join(', ');
    say(`model: ${path}; task: ${task.name}, ${names ? `tools: ${names}` : 'no tools'}`);
    return { config, task, engine, contextLength: sizes.maxPositions };
  } catch (error) {
    task.close?.();
    throw error;
  }
}

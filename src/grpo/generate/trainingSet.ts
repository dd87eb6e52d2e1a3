/** Counts the training problems, selects those that are used, and computes a run's length in steps. */

import { InputError } from '../../errors.ts';
import type { ModelConfig } from '../../model/config.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { checkAgentName } from '../../rollout/agent/loop.ts';
import { encodePrompt, writesSchemas } from '../../rollout/agent/prompt.ts';
import { checkEnvironments } from '../../tasks/environments/environment.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import { givenProblem } from '../../tasks/problem.ts';
import { keyedRng, permutation } from '../../tasks/random.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import { checkTools } from '../../tasks/tool.ts';
import { over } from '../config/resolve.ts';
import { isTree, setAt, type Tree } from '../config/tree.ts';
import type { TrainConfig } from '../config/types.ts';
import type { Lowered, LoweredSettings } from '../types.ts';
import { withLr } from '../update/learningRate.ts';

/**
 * Returns the task limited to `data.trainMaxSamples` training problems: the first ones of the task's stream, which for
 * a file is shuffled by seed. Each later epoch has a different order. If the task adapts, its state has the problems
 * that it has given so far, since it could give others for the same numbers later.
 */
export function limitedTask(task: Task, { data }: TrainConfig): Task {
  const { trainMaxSamples: size = -1 } = data;
  /** Restores the task's own state, of a run with or without the limit. */
  const restore = (state: unknown): void => {
    const own = isLimitedState(state) ? state['ofTask'] : state;
    if (own !== undefined) task.restore?.(own);
  };
  if (size < 0 || size >= (task.trainSize ?? Infinity)) return task.restore ? { ...task, restore } : task;
  let order = { key: '', indices: [] as number[] };
  const chosen = new Map<string, Problem | Promise<Problem>>();
  return {
    ...task,
    trainSize: size,
    train(index, seed) {
      const epoch = Math.floor(index / size);
      const key = `${seed}/${epoch}`;
      if (order.key !== key) order = { key, indices: orderOf(size, seed, epoch) };
      const first = order.indices[index % size];
      // Problems are cached, because a task that adapts its difficulty could later return another problem for the same number.
      const problem = chosen.get(`${seed}/${first}`) ?? task.train(first, seed);
      chosen.set(`${seed}/${first}`, problem);
      if (problem instanceof Promise)
        problem.then(
          (given) => chosen.set(`${seed}/${first}`, given),
          () => chosen.delete(`${seed}/${first}`),
        );
      return problem;
    },
    ...(task.state && {
      state: () => ({
        ofTask: task.state?.(),
        chosen: [...chosen].filter(([, problem]) => !(problem instanceof Promise)),
      }),
      restore(state: unknown) {
        restore(state);
        chosen.clear();
        if (isLimitedState(state)) for (const [number, problem] of state.chosen) chosen.set(number, problem);
      },
    }),
  };
}

/** True for a state of `limitedTask`, with the chosen problems by seed and number. */
const isLimitedState = (state: unknown): state is Tree & { chosen: [string, Problem][] } =>
  isTree(state) && Array.isArray(state['chosen']) && 'ofTask' in state;

function orderOf(size: number, seed: number, epoch: number): number[] {
  if (epoch === 0) return Array.from({ length: size }, (_, i) => i);
  return permutation(size, keyedRng('train-epoch', seed, epoch));
}

/**
 * Throws InputError if a tool cannot be called, or if a problem names an unknown agent loop, environment or tool. Checks the held-out
 * problems and the first `drawn` training problems; of a finite task that does not return promises, all training problems. Returns the
 * held-out problems and these first problems.
 */
export async function checkedProblems(
  task: Task,
  config: TrainConfig,
  drawn: number,
): Promise<{ heldOut: Problem[]; training: Problem[] }> {
  const limited = limitedTask(task, config);
  const { name, trainSize = 0 } = limited;
  const given = (index: number) =>
    givenProblem(`Training problem ${index} of task "${name}"`, () => limited.train(index, config.seed));
  checkTools(`Task "${name}"`, task.tools ?? []);
  checkEnvironments(`Task "${name}"`, task.environments ?? []);
  const heldOut = await givenHeldOut(task, config);
  const training = await Promise.all(Array.from({ length: drawn }, async (_, i) => given(i)));
  for (const problem of [...heldOut, ...training]) checkNames(task, problem);
  for (let index = drawn; index < trainSize; index++) {
    const problem = given(index);
    if (problem instanceof Promise) return problem.then(() => ({ heldOut, training }));
    checkNames(task, problem);
  }
  return { heldOut, training };
}

/** Returns the held-out problems of an evaluation. Throws UserCodeError if one cannot be read. */
export async function givenHeldOut(task: Task, { data }: TrainConfig): Promise<Problem[]> {
  const given = await task.heldOut(data.valMaxSamples);
  return Array.from(given, (problem, i) => givenProblem(`Held-out problem ${i} of task "${task.name}"`, () => problem));
}

function checkNames(task: Task, problem: Problem): void {
  partsOf(task, problem);
  checkAgentName(problem);
}

interface PromptContext {
  config: TrainConfig;
  tokenizer: ChatTokenizer;
  task: Pick<Task, 'name' | 'tools' | 'environments'>;
}

/**
 * Returns a function that says if a problem's prompt, written as rollout writes it, has at most maxPromptLength tokens.
 */
export function promptFits({ config, tokenizer, task }: PromptContext): (problem: Problem) => boolean {
  return (problem) => {
    const toolSchemasInPrompt = writesSchemas(config.rollout, tokenizer, problem);
    const prompt = encodePrompt({ tokenizer, ...partsOf(task, problem), toolSchemasInPrompt, problem });
    return prompt.length <= config.data.maxPromptLength;
  };
}

/**
 * Returns the config of a run on a task and a model, with numbers for values that are "auto" or that depend on the number of problems.
 * Returns the same config if it has no such values. Throws InputError if trainer.totalEpochs counts an endless task.
 * @param isLora same as in `withLr`
 */
export function completedConfig(
  config: TrainConfig,
  task: Task,
  { tokenizer, model, lowered }: { tokenizer: ChatTokenizer; model: { config: ModelConfig }; lowered?: Lowered },
  isLora?: boolean,
): TrainConfig {
  return withLr(withTotalSteps(withLowered(config, lowered?.values), task, tokenizer), model.config, isLora);
}

/** Returns the keys whose values `completedConfig` can set, so that a run's config differs in them from the config that was asked for. */
export function completedKeys({ model, actor, trainer }: TrainConfig): string[] {
  return [
    ...(model.lowerToFit ?? []),
    ...(actor.optim.lr === 'auto' ? ['actor.optim.lr'] : []),
    ...(Number.isFinite(trainer.totalTrainingSteps) ? [] : ['trainer.totalTrainingSteps']),
  ];
}

/** Returns the config with the settings that the engine has lowered. */
export function withLowered(config: TrainConfig, lowered: LoweredSettings = {}): TrainConfig {
  const set: Tree = {};
  for (const [key, value] of Object.entries(lowered)) setAt(set, key, value);
  return Object.keys(set).length === 0 ? config : (over({ ...config }, set) as unknown as TrainConfig);
}

/**
 * Returns the config with the number of steps computed from `trainer.totalEpochs`, as verl counts them: full batches
 * per epoch (of problems that are not too long) times epochs. Returns the config unchanged if totalTrainingSteps is
 * set. Throws InputError for an endless task.
 */
function withTotalSteps(config: TrainConfig, task: Task, tokenizer: ChatTokenizer): TrainConfig {
  const { totalTrainingSteps, totalEpochs } = config.trainer;
  if (totalEpochs === undefined || Number.isFinite(totalTrainingSteps)) return config;
  const { trainSize, train } = limitedTask(task, config);
  if (trainSize === undefined) {
    throw new InputError(
      `trainer.totalEpochs is ${totalEpochs}, but task "${task.name}" generates endless problems. ` +
        'Set data.trainMaxSamples to bound them, or trainer.totalTrainingSteps.',
    );
  }
  const { trainBatchSize, filterOverlongPrompts } = config.data;
  const fits = filterOverlongPrompts && promptFits({ config, tokenizer, task });
  const size = fits
    ? problemsAtOnce(task.name, trainSize, (i) => train(i, config.seed)).filter(fits).length
    : trainSize;
  const batches = Math.floor(size / trainBatchSize);
  if (batches > 0) return { ...config, trainer: { ...config.trainer, totalTrainingSteps: batches * totalEpochs } };
  throw new InputError(
    `trainer.totalEpochs counts whole batches, but ${size} training problems do not fill one of ` +
      `data.trainBatchSize ${trainBatchSize}. Lower it, or set trainer.totalTrainingSteps.`,
  );
}

/** Throws InputError if the task returns its problems as promises. */
function problemsAtOnce(name: string, count: number, give: (index: number) => Problem | Promise<Problem>): Problem[] {
  return Array.from({ length: count }, (_, i) => {
    const problem = give(i);
    if (!(problem instanceof Promise)) return problem;
    problem.catch(() => {});
    throw new InputError(
      `trainer.totalEpochs with data.filterOverlongPrompts counts problems before the run, but task "${name}" returns promises of them. ` +
        'Set trainer.totalTrainingSteps, or leave data.filterOverlongPrompts out.',
    );
  });
}

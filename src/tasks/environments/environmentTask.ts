/** Finds the environment and the tools of a problem. Creates tasks whose reward is that of their environments. */

import { InputError } from '../../errors.ts';
import { type Problem, problemName } from '../problem.ts';
import type { Task } from '../task.ts';
import type { Tool } from '../tool.ts';
import type { Environment } from './environment.ts';

/**
 * A problem's environment, if its task has environments, and its tools: all those of task and environment, or the ones that the problem
 * names.
 */
export interface ProblemParts {
  tools: Tool[];
  environment?: Environment;
}

/**
 * Returns the environment and tools of a problem. Throws InputError if the problem names an unknown environment or tool, if it names no
 * environment although the task has several, or if two of its tools have the same name.
 */
export function partsOf(task: Pick<Task, 'name' | 'tools' | 'environments'>, problem: Problem): ProblemParts {
  const environment = environmentOf(task, problem);
  const own = task.tools ?? [];
  const taken = environment ? [environment.name, ...environment.tools.map(({ name }) => name)] : [];
  const twice = own.find(({ name }) => taken.includes(name));
  if (environment && twice)
    throw new InputError(
      `Task "${task.name}" has a tool "${twice.name}", a name that its environment "${environment.name}" uses too. Rename one of them.`,
    );
  const all = [...own, ...(environment?.tools ?? [])];
  const tools = problem.tools === undefined ? all : chosenTools(task, problem, all);
  return environment ? { tools, environment } : { tools };
}

function environmentOf({ name, environments = [] }: Pick<Task, 'name' | 'environments'>, problem: Problem) {
  const { environment: wanted } = problem;
  if (wanted === undefined && environments.length < 2) return environments[0];
  const found = environments.find((environment) => environment.name === wanted);
  if (found) return found;
  const there = environments.length > 0 ? environments.map((environment) => environment.name).join(', ') : 'none';
  const said = wanted === undefined ? 'names no environment' : `names the environment ${JSON.stringify(wanted)}`;
  throw new InputError(
    `${problemName(problem)} ${said}; the environments of task "${name}" are: ${there}. Name one of them.`,
  );
}

function chosenTools({ name }: Pick<Task, 'name'>, problem: Problem, all: readonly Tool[]): Tool[] {
  const { tools: wanted } = problem;
  const there = all.length > 0 ? all.map((tool) => tool.name).join(', ') : 'none';
  if (!Array.isArray(wanted))
    throw new InputError(
      `${problemName(problem)} has the tools ${JSON.stringify(wanted)}; the tools of task "${name}" are: ${there}. Give a list of names.`,
    );
  return wanted.map((tool: unknown) => {
    const found = all.find((one) => one.name === tool);
    if (found) return found;
    throw new InputError(
      `${problemName(problem)} names the tool ${JSON.stringify(tool)}; the tools of task "${name}" are: ${there}. Name one of them.`,
    );
  });
}

type GivenTask = Omit<Task, 'reward' | 'environments'> & { environments: readonly [Environment, ...Environment[]] };

/**
 * Adds a reward to a task: the outcome (`Environment.reward`) plus the rewards of tools and steps. `turns` of the reward (for advEstimator
 * turn_loo) has the reward of each turn; the last one includes the outcome. Without an outcome, acc is the score. A sample that ended
 * before its `reset` has no reward.
 */
export function environmentTask<T extends GivenTask>(task: T): T & Pick<Task, 'reward'> {
  return {
    ...task,
    reward: async (sample) => {
      const environment = environmentOf(task, sample.problem);
      const { toolStates = {}, turnRewards = [] } = sample;
      if (!environment || !Object.hasOwn(toolStates, environment.name)) return { score: NaN, acc: NaN };
      const given = turnRewards.reduce((sum, reward) => sum + reward, 0);
      if (!environment.reward) return { score: given, acc: given, turns: [...turnRewards] };
      const outcome = await environment.reward(toolStates[environment.name], sample);
      const reward = typeof outcome === 'number' ? { score: outcome, acc: outcome } : outcome;
      // An invalid reward is returned unchanged to the check of all rewards, whose error names the reward.
      if (typeof reward !== 'object' || reward === null || reward.turns !== undefined) return reward;
      const last = turnRewards.length - 1;
      const turns = turnRewards.map((step, turn) => (turn === last ? step + reward.score : step));
      return { ...reward, score: reward.score + given, turns };
    },
  };
}

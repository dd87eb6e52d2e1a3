/** Environments: state that tools share, a first observation, and replies to turns without a tool call. */

import { InputError, shownValue } from '../../errors.ts';
import type { Message, Problem } from '../problem.ts';
import type { Reward, ScoredSample } from '../rewards/reward.ts';
import {
  checkTools,
  defineTool,
  type SampleContext,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type TruncateSide,
} from '../tool.ts';
import { type ArgsOf, isObject, type ToolSchema } from '../toolSchema.ts';

/** Result of `reset`: the sample's state, and an observation to append to its prompt. An empty or undefined observation adds nothing. */
export interface Start<State> {
  /** State of this sample. */
  state: State;
  /** Observation: text that the model reads first. Default: no text. */
  observation?: string;
}

/** Input of `reset` in addition to the problem. */
export interface ResetContext extends SampleContext {
  /** Signal that aborts when the time limit has passed or the sample has ended. */
  signal: AbortSignal;
}

/** An environment as agent loops use it. `defineEnvironment` creates one with typed state and arguments. */
export interface Environment {
  /** Name of the environment in `Problem.environment` and `toolStates`. */
  name: string;
  /** Tools that share the environment's state as `context.state`. */
  tools: readonly Tool[];
  /**
   * Starts one sample. The observation is appended to the prompt's last user message. If the prompt ends with another role, it becomes a
   * user message. Its tokens are not trained on. Samples with the same observation share one prefilled prompt. The result must be
   * determined by the problem and the context, because a resumed run can call `reset` again. An exception, a time-out or a value that is
   * not a Start is a UserCodeError: it ends the run, or only the sample if trainer.onError is skip.
   */
  reset(problem: Problem, context: ResetContext): Start<unknown> | Promise<Start<unknown>>;
  /**
   * Replies to a turn without a tool call with a user message. Without this function, such a turn ends the sample. `reward` and `done` have
   * the same effect as in a tool. If the function throws or times out, the model reads the error.
   */
  step?(text: string, context: ToolContext): ToolOutput | Promise<ToolOutput>;
  /**
   * Returns the outcome. Called after the sample has ended and its state was freed; see environmentTask. A number is both score and acc,
   * and the rewards of tools and steps are added to the score. A Reward with `turns` is used unchanged.
   */
  reward?(state: unknown, sample: ScoredSample): number | Reward | Promise<number | Reward>;
  /** Like Tool.save and Tool.restore. Without both, a resumed run calls `reset` and repeats the sample's steps and calls. */
  save?(state: unknown): unknown;
  /** Recreates a state from the result of `save`. */
  restore?(saved: unknown, context: SampleContext): unknown;
  /** Frees the state. Called once for every `reset` or `restore` that succeeded, whatever the reason for the sample's end. */
  close?(state: unknown): void | Promise<void>;
  /** Time limit of `reset`, a step or a tool call in milliseconds. Default: rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Maximum number of characters of an observation that the model reads. Default: rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Part that is removed from an observation that is too long. Default: the run's setting. */
  truncateSide?: TruncateSide;
}

type Limits = Pick<Environment, 'timeoutMs' | 'maxResponseLength' | 'truncateSide'>;

interface EnvironmentTool<S extends ToolSchema, State> extends Pick<Tool, 'description' | 'retries'>, Limits {
  parameters: S;
  execute(args: ArgsOf<S>, context: ToolContext & { state: State }): ToolOutput | Promise<ToolOutput>;
}

interface EnvironmentDefinition<State, Schemas extends Record<string, ToolSchema>> extends Limits {
  name: string;
  reset(problem: Problem, context: ResetContext): Start<State> | Promise<Start<State>>;
  step?(text: string, context: ToolContext & { state: State }): ToolOutput | Promise<ToolOutput>;
  /** Tools by name. */
  tools?: { [K in keyof Schemas]: EnvironmentTool<Schemas[K], State> };
  reward?(state: State, sample: ScoredSample): number | Reward | Promise<number | Reward>;
  save?(state: State): unknown;
  restore?(saved: unknown, context: SampleContext): State | Promise<State>;
  close?(state: State): void | Promise<void>;
}

/**
 * Defines an environment. Its state is typed by `reset`, and the arguments of its tools are typed by their schemas; see Environment. Throws
 * InputError for an invalid name, a tool that `defineTool` rejects, neither `step` nor `tools`, or only one of `save` and `restore`.
 *
 *   defineEnvironment({
 *     name: 'counter',
 *     reset: () => ({ state: { n: 0 }, observation: 'Count to three.' }),
 *     step: (text, { state }) => ({ text: `${++state.n}`, done: state.n === 3 }),
 *     reward: ({ n }) => n / 3,
 *   })
 */
export function defineEnvironment<State, const Schemas extends Record<string, ToolSchema> = Record<never, never>>(
  definition: EnvironmentDefinition<State, Schemas>,
): Environment {
  const { tools } = definition;
  checkEnvironment(definition, Object.keys(tools ?? {}).length);
  // The cast is safe: the agent loop passes an environment only the state that its own `reset` has returned.
  const environment = definition as Omit<Environment, 'tools'>;
  const made = Object.entries((tools ?? {}) as Record<string, EnvironmentTool<ToolSchema, unknown>>);
  return {
    ...environment,
    tools: made.map(([tool, rest]) => defineTool({ ...ownLimits(definition), ...rest, name: tool })),
  };
}

const FUNCTIONS = ['step', 'reward', 'save', 'restore', 'close'] as const;

/** Throws InputError if an environment cannot be run, or if it has only one of `save` and `restore`. */
function checkEnvironment(environment: unknown, toolCount: number): void {
  if (!isObject(environment))
    throw new InputError(`An environment is ${shownValue(environment)}. Give { name, reset, tools, step }.`);
  const { name, reset, step, save, restore } = environment;
  if (typeof name !== 'string' || !/^[\w.-]{1,64}$/.test(name))
    throw new InputError(
      `An environment is named ${shownValue(name)}; allowed: 1 to 64 letters, digits, ., _ and -. Rename it.`,
    );
  if (typeof reset !== 'function')
    throw new InputError(
      `Environment "${name}" has no function "reset". Give reset(problem), which returns { state }.`,
    );
  const wrong = FUNCTIONS.find((key) => environment[key] !== undefined && typeof environment[key] !== 'function');
  if (wrong !== undefined)
    throw new InputError(
      `Environment "${name}" has ${shownValue(environment[wrong])} as "${wrong}". Give a function, or leave the field out.`,
    );
  if (!step && toolCount === 0)
    throw new InputError(`Environment "${name}" has neither step nor tools. Give it one of them.`);
  if (!save !== !restore)
    throw new InputError(
      `Environment "${name}" has ${save ? 'save without restore' : 'restore without save'}. Give both or none.`,
    );
}

/** Throws InputError if the environments of a task cannot be run, because a module can define them as plain objects. */
export function checkEnvironments(owner: string, environments: unknown): void {
  if (!Array.isArray(environments))
    throw new InputError(`${owner} has the environments ${shownValue(environments)}. Give a list of environments.`);
  for (const environment of environments as unknown[]) {
    const { name, tools } = Object(environment) as Partial<Environment>;
    checkEnvironment(environment, tools?.length ?? 1);
    checkTools(`Environment "${name}"`, tools);
  }
  const names = environments.map(({ name }: Environment) => name);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new InputError(`${owner} has two environments named "${twice}". Rename one of them.`);
}

/** Returns the limits that an environment sets itself. They also apply to its tools and steps. */
export function ownLimits({ timeoutMs, maxResponseLength, truncateSide }: Limits): Limits {
  return {
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(maxResponseLength !== undefined && { maxResponseLength }),
    ...(truncateSide !== undefined && { truncateSide }),
  };
}

/** Returns the messages of a prompt with the first observation. */
export function withObservation(messages: readonly Message[], observation = ''): Message[] {
  const last = messages.at(-1);
  if (observation === '') return [...messages];
  if (last?.role !== 'user') return [...messages, { role: 'user', content: observation }];
  const content = last.content === '' ? observation : `${last.content}\n${observation}`;
  return [...messages.slice(0, -1), { ...last, content }];
}

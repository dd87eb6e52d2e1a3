/** Environments: a state that several tools share, a first observation, and an answer to turns that call no tool. */

import { InputError } from '../../errors.ts';
import type { Message, Problem } from '../problem.ts';
import type { Reward, ScoredSample } from '../rewards/reward.ts';
import {
  defineTool,
  type SampleContext,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type TruncateSide,
} from '../tool.ts';
import type { ArgsOf, ToolSchema } from '../toolSchema.ts';

/** What `reset` gives: the sample's state, and the text that ends its prompt; absent or empty = none. */
export interface Start<State> {
  /** Of this sample alone. */
  state: State;
  /** What the model reads first; absent = nothing. */
  observation?: string;
}

export interface ResetContext extends SampleContext {
  /** Aborted when the time limit has passed or the sample was ended. */
  signal: AbortSignal;
}

/** An environment as agent loops see it; `defineEnvironment` makes one with typed state and arguments. */
export interface Environment {
  /** What `Problem.environment` and `toolStates` call it. */
  name: string;
  /** Tools that share the state as `context.state`. */
  tools: readonly Tool[];
  /**
   * Starts one sample. The observation is appended to the prompt's last user message, or is a user message of its own where
   * the prompt ends with another; no token of it is trained. Samples with the same observation share one prefilled prompt.
   * Must follow from problem and context: a resumed run may call it again. A throw, a time-out or anything but a Start is a
   * UserCodeError: it ends the run, or under trainer.onError: skip the sample.
   */
  reset(problem: Problem, context: ResetContext): Start<unknown> | Promise<Start<unknown>>;
  /**
   * Answers a turn that calls no tool, by a user message. Absent = such a turn ends the sample. `reward` and `done` are as a
   * tool's, and so is a throw or a time-out: the model reads what went wrong.
   */
  step?(text: string, context: ToolContext): ToolOutput | Promise<ToolOutput>;
  /**
   * The outcome, once the sample has ended and `close` was called; see environmentTask. A number is score and acc, to which
   * what tools and steps gave is added; a Reward with `turns` is taken as it is.
   */
  reward?(state: unknown, sample: ScoredSample): number | Reward | Promise<number | Reward>;
  /** As Tool.save and Tool.restore. Without them a resumed run resets and makes the sample's steps and calls again. */
  save?(state: unknown): unknown;
  /** Makes a state again from what `save` gave. */
  restore?(saved: unknown, context: SampleContext): unknown;
  /** Frees the state. Called once for every `reset` or `restore` that succeeded, however the sample ended. */
  close?(state: unknown): void | Promise<void>;
  /** Milliseconds for `reset`, a step or a call; absent = rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Characters of an observation that the model gets to see; absent = rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Which part of too long an observation goes; absent = the run's choice. */
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
  /** By name. */
  tools?: { [K in keyof Schemas]: EnvironmentTool<Schemas[K], State> };
  reward?(state: State, sample: ScoredSample): number | Reward | Promise<number | Reward>;
  save?(state: State): unknown;
  restore?(saved: unknown, context: SampleContext): State | Promise<State>;
  close?(state: State): void | Promise<void>;
}

/**
 * An environment whose state is typed by `reset` and whose tools' arguments by their schemas; see Environment. Throws
 * InputError for a name that is none, a tool that `defineTool` refuses, neither `step` nor `tools`, or one of `save` and `restore`.
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
  const { name, tools } = definition;
  if (!/^[\w.-]{1,64}$/.test(name))
    throw new InputError(`An environment is named "${name}"; allowed: 1 to 64 letters, digits, ., _ and -.`);
  if (!definition.step && Object.keys(tools ?? {}).length === 0)
    throw new InputError(`Environment "${name}" has neither step nor tools; give it one of them.`);
  if (!definition.save !== !definition.restore)
    throw new InputError(
      `Environment "${name}" has ${definition.save ? 'save without restore' : 'restore without save'}; give both or none.`,
    );
  // The loop hands an environment only the state that its own reset made.
  const environment = definition as Omit<Environment, 'tools'>;
  const made = Object.entries((tools ?? {}) as Record<string, EnvironmentTool<ToolSchema, unknown>>);
  return {
    ...environment,
    tools: made.map(([tool, rest]) => defineTool({ ...ownLimits(definition), ...rest, name: tool })),
  };
}

/** The limits that an environment has of its own; its tools and steps have them too. */
export function ownLimits({ timeoutMs, maxResponseLength, truncateSide }: Limits): Limits {
  return {
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(maxResponseLength !== undefined && { maxResponseLength }),
    ...(truncateSide !== undefined && { truncateSide }),
  };
}

/** Messages of a prompt with the first observation. */
export function withObservation(messages: readonly Message[], observation = ''): Message[] {
  const last = messages.at(-1);
  if (observation === '') return [...messages];
  if (last?.role !== 'user') return [...messages, { role: 'user', content: observation }];
  const content = last.content === '' ? observation : `${last.content}\n${observation}`;
  return [...messages.slice(0, -1), { ...last, content }];
}

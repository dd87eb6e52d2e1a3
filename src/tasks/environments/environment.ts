/** Environments: state shared by tools, a first observation, and a response to turns without a tool call. */

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

/** Result of `reset`: the sample's state, and the text at the end of its prompt (undefined or empty: no text). */
export interface Start<State> {
  /** State of this sample only. */
  state: State;
  /** Text that the model reads first. Default: no text. */
  observation?: string;
}

/** Input of `reset` in addition to the problem. */
export interface ResetContext extends SampleContext {
  /** Aborted when the time limit has passed or the sample has ended. */
  signal: AbortSignal;
}

/** An environment as agent loops see it; `defineEnvironment` creates one with typed state and arguments. */
export interface Environment {
  /** Name in `Problem.environment` and `toolStates`. */
  name: string;
  /** Tools that share the state as `context.state`. */
  tools: readonly Tool[];
  /**
   * Starts one sample. The observation is appended to the prompt's last user message, or becomes a user message if the prompt
   * ends with another role. None of its tokens is trained. Samples with the same observation share one prefilled prompt. The
   * result must be determined by problem and context, because a resumed run can call this again. A throw, a time-out or a value
   * that is not a Start is a UserCodeError: it ends the run, or only the sample if trainer.onError is skip.
   */
  reset(problem: Problem, context: ResetContext): Start<unknown> | Promise<Start<unknown>>;
  /**
   * Answers a turn without a tool call by a user message. If undefined, such a turn ends the sample. `reward` and `done` work as in
   * a tool. After a throw or a time-out the model reads the error.
   */
  step?(text: string, context: ToolContext): ToolOutput | Promise<ToolOutput>;
  /**
   * Returns the outcome, after the sample has ended and `close` was called; see environmentTask. A number is both score and acc,
   * and the rewards of tools and steps are added. A Reward with `turns` is used unchanged.
   */
  reward?(state: unknown, sample: ScoredSample): number | Reward | Promise<number | Reward>;
  /** Like Tool.save and Tool.restore. Without them a resumed run calls `reset` and repeats the sample's steps and calls. */
  save?(state: unknown): unknown;
  /** Recreates a state from the result of `save`. */
  restore?(saved: unknown, context: SampleContext): unknown;
  /** Frees the state. Called once for every `reset` or `restore` that succeeded, however the sample ended. */
  close?(state: unknown): void | Promise<void>;
  /** Milliseconds for `reset`, a step or a call. Default: rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Characters of an observation that the model sees. Default: rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Part that is removed from an observation that is too long; default: the run's setting. */
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
 * Defines an environment with state typed by `reset` and tool arguments typed by their schemas; see Environment. Throws
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
  const { name, tools } = definition;
  if (!/^[\w.-]{1,64}$/.test(name))
    throw new InputError(`An environment is named "${name}"; allowed: 1 to 64 letters, digits, ., _ and -.`);
  if (!definition.step && Object.keys(tools ?? {}).length === 0)
    throw new InputError(`Environment "${name}" has neither step nor tools. Give it one of them.`);
  if (!definition.save !== !definition.restore)
    throw new InputError(
      `Environment "${name}" has ${definition.save ? 'save without restore' : 'restore without save'}. Give both or none.`,
    );
  // The loop passes an environment only the state that its own reset returned.
  const environment = definition as Omit<Environment, 'tools'>;
  const made = Object.entries((tools ?? {}) as Record<string, EnvironmentTool<ToolSchema, unknown>>);
  return {
    ...environment,
    tools: made.map(([tool, rest]) => defineTool({ ...ownLimits(definition), ...rest, name: tool })),
  };
}

/** Returns the limits that an environment sets itself; they hold for its tools and steps too. */
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

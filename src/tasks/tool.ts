/** A tool the model can call. Lives with the tasks, because a task brings its tools. */

import { InputError } from '../errors.ts';
import type { Problem } from './problem.ts';
import type { ToolOutput } from './toolOutput.ts';
import { type ArgsOf, checkToolSchema, type ToolSchema } from './toolSchema.ts';

export type { ToolOutput } from './toolOutput.ts';
export type { ArgumentSchema, ToolSchema } from './toolSchema.ts';

/** A tool as agent loops see it; `defineTool` makes one with typed arguments and state. */
export interface Tool {
  /** 1 to 64 letters, digits, ., _ and -. */
  name: string;
  /** What the model is told of it, where schemas are in the prompt. */
  description: string;
  /** JSON Schema of the arguments; calls that do not fit never reach `execute`. */
  parameters: ToolSchema;
  /** A throw becomes an error text for the model. A value that is not a ToolOutput ends the run; see trainer.onError. */
  execute(args: Record<string, unknown>, context: ToolContext): ToolOutput | Promise<ToolOutput>;
  /** Makes the state of one sample, before its first call; later calls get it as `context.state`. */
  create?(context: SampleContext): unknown;
  /**
   * The state as plain JSON, and `restore` makes it again from that: a checkpoint holds it for samples under way
   * (rollout.partialRollout). Without them a resumed run makes a new state and calls the tool again with the sample's calls.
   */
  save?(state: unknown): unknown;
  /** Makes a state again from what `save` gave. */
  restore?(saved: unknown, context: SampleContext): unknown;
  /**
   * Reward of the whole sample, after its last turn; the task's reward function finds it in `toolRewards`. A value that is not
   * a finite number ends the run; see trainer.onError.
   */
  calcReward?(state: unknown): number | Promise<number>;
  /** Frees the state. Called once for every `create` that succeeded, however the sample ended. */
  release?(state: unknown): void | Promise<void>;
  /** Milliseconds for one try; absent = rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Further tries after a throw or a time-out; absent = none. Only for tools that may run twice. */
  retries?: number;
  /** Characters the model gets to see; absent = rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Which part of too long an output goes; absent = the run's choice. */
  truncateSide?: TruncateSide;
}

/** Which part of a text goes. */
export type TruncateSide = 'left' | 'right' | 'middle';

/** Of which sample a call is. */
export interface SampleContext {
  /** Unique per sample. */
  sampleId: string;
  /** What the sample is a try at. */
  problem: Problem;
}

/** What a tool is given beside its arguments. */
export interface ToolContext extends SampleContext {
  /** The state that `create` returned. */
  state: unknown;
  /** Aborted when the time limit has passed or the sample was ended. */
  signal: AbortSignal;
}

interface ToolDefinition<S extends ToolSchema, State> extends Omit<
  Tool,
  'parameters' | 'execute' | 'create' | 'save' | 'restore' | 'calcReward' | 'release'
> {
  parameters: S;
  execute(args: ArgsOf<S>, context: ToolContext & { state: State }): ToolOutput | Promise<ToolOutput>;
  create?(context: SampleContext): State | Promise<State>;
  save?(state: State): unknown;
  restore?(saved: unknown, context: SampleContext): State | Promise<State>;
  calcReward?(state: State): number | Promise<number>;
  release?(state: State): void | Promise<void>;
}

/**
 * A tool whose arguments are typed by their schema and whose state by `create`. Arguments are checked against the
 * schema before `execute` sees them. Throws InputError for a name that no call could carry or a schema at odds with itself.
 *
 *   defineTool({
 *     name: 'add', description: 'Adds.',
 *     parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
 *     execute: ({ a, b }) => `${a + b}`,
 *   })
 */
export function defineTool<const S extends ToolSchema, State = undefined>(definition: ToolDefinition<S, State>): Tool {
  const { name, retries = 0 } = definition;
  if (!/^[\w.-]{1,64}$/.test(name))
    throw new InputError(`A tool is named "${name}"; allowed: 1 to 64 letters, digits, ., _ and -.`);
  if (!Number.isInteger(retries) || retries < 0)
    throw new InputError(`Tool "${name}" has retries ${retries}; allowed: 0, 1, 2, ...`);
  checkToolSchema(name, definition.parameters);
  // The loop hands a tool only arguments that fit its schema, and only the state its own create made.
  return definition;
}

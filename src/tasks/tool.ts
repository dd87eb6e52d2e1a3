/** Tools that the model can call. They are in this folder because tools are a part of a task. */

import { InputError, shownValue } from '../errors.ts';
import type { Problem } from './problem.ts';
import type { ToolOutput } from './toolOutput.ts';
import { type ArgsOf, checkToolSchema, isObject, type ToolSchema } from './toolSchema.ts';

export type { ToolOutput } from './toolOutput.ts';
export type { ArgumentSchema, ToolSchema } from './toolSchema.ts';

/** Names of the tools that `task.tools` can add to any task. */
export const SHIPPED_TOOLS = ['calculator', 'javascript'] as const;

/** A tool as agent loops use it. `defineTool` creates one with typed arguments and state. */
export interface Tool {
  /** Name of the tool: 1 to 64 letters, digits, ".", "_" and "-". */
  name: string;
  /** Description of the tool. The model reads it if schemas are in the prompt. */
  description: string;
  /** JSON schema of the arguments. `execute` is never called with arguments that do not match the schema. */
  parameters: ToolSchema;
  /** Runs a call. If it throws, the model reads the error as text. A value that is not a ToolOutput ends the run; see trainer.onError. */
  execute(args: Record<string, unknown>, context: ToolContext): ToolOutput | Promise<ToolOutput>;
  /** Creates the tool's state for one sample, before its first call. All calls get the state as `context.state`. */
  create?(context: SampleContext): unknown;
  /**
   * Returns the state as plain JSON, from which `restore` recreates it. Checkpoints store it for samples in flight
   * (rollout.partialRollout). Without both functions, a resumed run creates a new state and repeats the sample's calls.
   */
  save?(state: unknown): unknown;
  /** Recreates a state from the result of `save`. */
  restore?(saved: unknown, context: SampleContext): unknown;
  /**
   * Returns the tool's reward for the complete sample, after its last turn. The task's reward function finds it in `toolRewards`. A value
   * that is not a finite number ends the run; see trainer.onError.
   */
  calcReward?(state: unknown): number | Promise<number>;
  /** Frees the state. Called once for every `create` that succeeded, whatever the reason for the sample's end. */
  release?(state: unknown): void | Promise<void>;
  /** Time limit of one attempt in milliseconds. Default: rollout.multiTurn.toolTimeoutS. */
  timeoutMs?: number;
  /** Number of further attempts after a throw or a time-out. Only for tools that can safely run twice. Default: 0. */
  retries?: number;
  /** Maximum number of characters of an output that the model reads. Default: rollout.multiTurn.maxToolResponseLength. */
  maxResponseLength?: number;
  /** Part that is removed from an output that is too long. Default: the run's setting. */
  truncateSide?: TruncateSide;
}

/** Part that is removed from a text that is too long. */
export type TruncateSide = 'left' | 'right' | 'middle';

/** The sample that a call belongs to. */
export interface SampleContext {
  /** Id that is unique per sample. */
  sampleId: string;
  /** Problem that the sample answers. */
  problem: Problem;
}

/** Input of a tool in addition to its arguments. */
export interface ToolContext extends SampleContext {
  /** State that `create` returned. */
  state: unknown;
  /** Signal that aborts when the time limit has passed or the sample has ended. */
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
 * Defines a tool. Its arguments are typed by their schema, and its state by `create`. Arguments are checked against the schema before
 * `execute` is called. Throws InputError if the name cannot occur in calls, or if the schema contradicts itself.
 *
 *   defineTool({
 *     name: 'add', description: 'Adds.',
 *     parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
 *     execute: ({ a, b }) => `${a + b}`,
 *   })
 */
export function defineTool<const S extends ToolSchema, State = undefined>(definition: ToolDefinition<S, State>): Tool {
  // The types are safe: the agent loop passes a tool only arguments that match its schema, and only the state that its own `create` has
  // returned.
  checkTool(definition);
  return definition;
}

const isWhole = (given: unknown, least: number): boolean => Number.isInteger(given) && Number(given) >= least;
const isFunction = (given: unknown): boolean => typeof given === 'function';
const SIDES: readonly unknown[] = ['left', 'right', 'middle'] satisfies TruncateSide[];
/** Check of each optional field of a tool, and what is allowed. A wrong value would make every call fail, or cut its output wrongly. */
const OPTIONS: readonly [keyof Tool, (given: unknown) => boolean, string][] = [
  ['retries', (given) => isWhole(given, 0), '0, 1, 2, ...'],
  ['timeoutMs', (given) => typeof given === 'number' && given > 0, 'a number of milliseconds above 0.'],
  ['maxResponseLength', (given) => isWhole(given, 1), '1, 2, 3, ...'],
  ['truncateSide', (given) => SIDES.includes(given), 'left, right and middle.'],
  ...(['create', 'save', 'restore', 'calcReward', 'release'] as const).map(
    (key): [keyof Tool, (given: unknown) => boolean, string] => [key, isFunction, 'a function.'],
  ),
];

/** Throws InputError if a tool cannot be called, because a task's module can define tools as plain objects. */
export function checkTool(tool: unknown): void {
  if (!isObject(tool))
    throw new InputError(`A tool is ${shownValue(tool)}. Give { name, description, parameters, execute }.`);
  const { name, execute, parameters } = tool;
  if (typeof name !== 'string' || !/^[\w.-]{1,64}$/.test(name))
    throw new InputError(
      `A tool is named ${shownValue(name)}; allowed: 1 to 64 letters, digits, ., _ and -. Rename it.`,
    );
  const wrong = OPTIONS.find(([key, isValid]) => tool[key] !== undefined && !isValid(tool[key]));
  if (wrong)
    throw new InputError(
      `Tool "${name}" has ${wrong[0]} ${shownValue(tool[wrong[0]])}; allowed: ${wrong[2]} Change it, or leave it out.`,
    );
  if (typeof execute !== 'function')
    throw new InputError(`Tool "${name}" has no function "execute". Give execute(args), which returns the output.`);
  checkToolSchema(name, parameters as ToolSchema);
}

/**
 * Throws InputError if a tool cannot be called, or if two tools have the same name.
 * @param owner the task or environment of the tools, in errors
 */
export function checkTools(owner: string, tools: unknown): void {
  if (!Array.isArray(tools)) throw new InputError(`${owner} has the tools ${shownValue(tools)}. Give a list of tools.`);
  tools.forEach(checkTool);
  const names = tools.map(({ name }: Tool) => name);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new InputError(`${owner} has two tools named "${twice}". Rename one of them.`);
}

/** The environment of one sample. It is started once, its tools and steps share one state, and the state is freed once. */

import { blame, isA, shownValue, UserCodeError } from '../../errors.ts';
import { type Environment, ownLimits, type Start } from '../../tasks/environments/environment.ts';
import type { SampleContext, Tool } from '../../tasks/tool.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import { limitsOf, TimeLimitError, type ToolLimits, type ToolResult, truncate, withTimeLimit } from './run.ts';
import type { StateOwner, ToolStates } from './states.ts';

const EXPECTED = 'Return { state, observation }, the observation a text, or absent';

/** The episode of one sample in its environment. */
export class Episode implements StateOwner {
  readonly name: string;
  readonly timeoutMs?: number;
  readonly save?: NonNullable<StateOwner['save']>;
  readonly restore?: NonNullable<StateOwner['restore']>;
  /** Tool that passes a turn without a tool call to the environment's `step`; undefined if the environment has no `step`. */
  readonly stepTool?: Tool;
  readonly #environment: Environment;
  #observation = '';

  constructor(environment: Environment) {
    const { name, timeoutMs, save, restore, step } = environment;
    this.#environment = environment;
    this.name = name;
    if (timeoutMs !== undefined) this.timeoutMs = timeoutMs;
    if (save) this.save = (state) => environment.save?.(state);
    if (restore) this.restore = (saved, context) => environment.restore?.(saved, context);
    if (step)
      this.stepTool = {
        ...ownLimits(environment),
        name,
        description: '',
        parameters: { type: 'object', properties: { text: { type: 'string' } } },
        execute: ({ text }, context) => environment.step!(String(text), context),
      };
  }

  /** True for a tool that uses the environment's state. */
  owns(tool: Tool): boolean {
    return tool === this.stepTool || this.#environment.tools.includes(tool);
  }

  async create(context: SampleContext, signal: AbortSignal): Promise<unknown> {
    const start: unknown = await this.#environment.reset(context.problem, { ...context, signal });
    if (!isStart(start)) {
      throw new UserCodeError(
        'environment reset returned',
        `${this.#what(context)} returned ${shownValue(start)}. ${EXPECTED}.`,
      );
    }
    this.#observation = start.observation ?? '';
    return start.state;
  }

  release(state: unknown): void | Promise<void> {
    return this.#environment.close?.(state);
  }

  /**
   * Creates the environment's state and returns the first observation, as the model reads it. Throws UserCodeError if `reset` throws, takes
   * too long or returns an invalid Start.
   */
  async start(
    states: ToolStates,
    limits: ToolLimits,
    outer: AbortSignal,
  ): Promise<Pick<ToolResult, 'text' | 'truncated'>> {
    const own = limitsOf(this.#environment, limits);
    try {
      await withTimeLimit(this.name, (signal) => states.of(this, signal), own.toolTimeoutMs, outer);
      return truncate(this.#observation, own);
    } catch (error) {
      states.giveUp(this);
      const what = this.#what(states.context);
      if (!isA(error, TimeLimitError)) throw blame('environment reset', what, error, EXPECTED);
      const tooLong = `${what} did not resolve in ${own.toolTimeoutMs / 1000} s (rollout.multiTurn.toolTimeoutS)`;
      throw new UserCodeError('environment reset took too long', `${tooLong}. ${EXPECTED}.`);
    }
  }

  #what({ problem }: SampleContext): string {
    return `The reset of environment "${this.name}" for problem "${problem.id}"`;
  }
}

function isStart(start: unknown): start is Start<unknown> {
  if (!isObject(start) || !('state' in start)) return false;
  return start['observation'] === undefined || typeof start['observation'] === 'string';
}

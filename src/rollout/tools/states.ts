/** Holds the states of one sample's tools between its calls. */

import type { SampleContext, Tool } from '../../tasks/tool.ts';
import { withTimeLimit } from './run.ts';

export class ToolStates {
  readonly context: SampleContext;
  readonly #states = new Map<Tool, Promise<unknown>>();

  constructor(context: SampleContext) {
    this.context = context;
  }

  /** Made once, also when two calls of one turn ask at the same time; after a failed `create` the next call tries again. */
  of(tool: Tool): Promise<unknown> {
    let state = this.#states.get(tool);
    if (!state) {
      // The call that asked hears of a failure; the `async` turns a synchronous throw into one.
      state = (async () => tool.create?.(this.context))();
      this.#states.set(tool, state);
      state.catch(() => this.#states.delete(tool));
    }
    return state;
  }

  /** Rewards and states by tool, every state freed. Failures and time-outs are counted, not thrown. */
  async end(
    timeoutMs: number,
  ): Promise<{ rewards: Record<string, number>; states: Record<string, unknown>; errors: number }> {
    const rewards: Record<string, number> = {};
    const states: Record<string, unknown> = {};
    let errors = 0;
    const attempt = async (tool: Tool, work: () => unknown) => {
      try {
        return await withTimeLimit(tool.name, work, tool.timeoutMs ?? timeoutMs, new AbortController().signal);
      } catch {
        errors++;
        return undefined;
      }
    };
    const endOne = async (tool: Tool, pending: Promise<unknown>) => {
      // A create that hangs was cut off by the call's limit; it gets no second wait as long.
      const made = await attempt(tool, async () => ({ state: await pending }));
      if (!made) return;
      const { state } = made as { state: unknown };
      states[tool.name] = state;
      const reward = tool.calcReward && (await attempt(tool, () => tool.calcReward!(state)));
      if (typeof reward === 'number' && Number.isFinite(reward)) rewards[tool.name] = reward;
      else if (tool.calcReward && reward !== undefined) errors++;
      if (tool.release) await attempt(tool, () => tool.release!(state));
    };
    await Promise.all([...this.#states].map(([tool, state]) => endOne(tool, state)));
    return { rewards, states, errors };
  }
}

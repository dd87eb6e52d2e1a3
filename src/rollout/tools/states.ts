/** Holds the states of one sample's tools and of its environment between calls. */

import type { SampleContext, Tool } from '../../tasks/tool.ts';
import { describe, InputError, shownValue, UserCodeError } from '../../errors.ts';
import { withTimeLimit } from './run.ts';

/** Milliseconds that a tool has to give its state. */
const SAVE_MS = 10_000;

/** Who has a state: a tool, or the environment of a sample. `signal` ends a `create`. */
export interface StateOwner extends Pick<Tool, 'name' | 'save' | 'restore' | 'calcReward' | 'release' | 'timeoutMs'> {
  create?(context: SampleContext, signal?: AbortSignal): unknown;
}

interface ToolsEnded {
  rewards: Record<string, number>;
  states: Record<string, unknown>;
  errors: number;
  /** A tool's calcReward returned what is not a reward. */
  fault: UserCodeError | undefined;
}

export class ToolStates {
  readonly context: SampleContext;
  readonly #states = new Map<StateOwner, Promise<unknown>>();
  readonly #restored = new Set<StateOwner>();

  constructor(context: SampleContext) {
    this.context = context;
  }

  /** Made once, also when two calls of one turn ask at the same time; after a failed `create` the next call tries again. */
  of(tool: StateOwner, signal?: AbortSignal): Promise<unknown> {
    let state = this.#states.get(tool);
    if (!state) {
      // The call that asked hears of a failure; the `async` turns a synchronous throw into one.
      state = (async () => tool.create?.(this.context, signal))();
      this.#states.set(tool, state);
      state.catch(() => this.#states.delete(tool));
    }
    return state;
  }

  /** True for a tool with a state that no checkpoint has brought back. */
  isUnsaved(tool: StateOwner): boolean {
    return tool.create !== undefined && !this.#restored.has(tool);
  }

  /** States of the tools that can give theirs, by tool, as plain JSON. */
  async save(): Promise<Record<string, unknown>> {
    const saved: Record<string, unknown> = {};
    const saveOne = async (tool: StateOwner, state: Promise<unknown>) => {
      const json = JSON.stringify(await tool.save!(await state)) as string | undefined;
      if (json !== undefined) saved[tool.name] = JSON.parse(json);
    };
    const { signal } = new AbortController();
    await Promise.all(
      [...this.#states].map(async ([tool, state]) => {
        if (!tool.save || !tool.restore) return;
        // Without its state, the tool is called again with the sample's calls.
        await withTimeLimit(tool.name, () => saveOne(tool, state), SAVE_MS, signal).catch(() => {});
      }),
    );
    return saved;
  }

  /** Restores the states that `save` returned. Throws InputError if a tool cannot. */
  async restore(
    tools: readonly StateOwner[],
    saved: Readonly<Record<string, unknown>>,
    timeoutMs: number,
  ): Promise<void> {
    const { signal } = new AbortController();
    for (const tool of tools) {
      if (!tool.restore || !Object.hasOwn(saved, tool.name)) continue;
      const restoring = () => tool.restore!(saved[tool.name], this.context);
      const state = await withTimeLimit(tool.name, restoring, tool.timeoutMs ?? timeoutMs, signal).catch((error) => {
        throw new InputError(
          `Tool "${tool.name}" could not restore the state that it had saved for sample ${this.context.sampleId}: ` +
            `${describe(error)}. Fix its \`restore\`, or resume from an earlier checkpoint.`,
        );
      });
      this.#states.set(tool, Promise.resolve(state));
      this.#restored.add(tool);
    }
  }

  /** The state is no longer needed: if it is created after all, it is freed. */
  giveUp(tool: StateOwner): void {
    const late = this.#states.get(tool);
    this.#states.delete(tool);
    late?.then((state) => tool.release?.(state)).catch(() => {}); // nobody is left to hear of it
  }

  /**
   * Rewards and states by tool, every state freed. Failures and time-outs are counted, not thrown; a reward that is not a
   * finite number is the `fault`.
   */
  async end(timeoutMs: number): Promise<ToolsEnded> {
    const rewards: Record<string, number> = {};
    const states: Record<string, unknown> = {};
    let errors = 0;
    let fault: UserCodeError | undefined;
    const attempt = async (tool: StateOwner, work: () => unknown) => {
      try {
        return await withTimeLimit(tool.name, work, tool.timeoutMs ?? timeoutMs, new AbortController().signal);
      } catch {
        errors++;
        return undefined;
      }
    };
    const endOne = async (tool: StateOwner, pending: Promise<unknown>) => {
      // A create that hangs was cut off by the call's limit; it gets no second wait as long.
      const made = await attempt(tool, async () => ({ state: await pending }));
      if (!made) return this.giveUp(tool);
      const { state } = made as { state: unknown };
      states[tool.name] = state;
      const given = tool.calcReward && (await attempt(tool, async () => ({ reward: await tool.calcReward!(state) })));
      if (given) {
        const { reward } = given as { reward: number };
        if (Number.isFinite(reward)) rewards[tool.name] = reward;
        else fault ??= wrongReward(tool.name, reward);
      }
      if (tool.release) await attempt(tool, () => tool.release!(state));
    };
    await Promise.all([...this.#states].map(([tool, state]) => endOne(tool, state)));
    return { rewards, states, errors, fault };
  }
}

const wrongReward = (name: string, reward: unknown): UserCodeError =>
  new UserCodeError(
    'calcReward returned',
    `calcReward of tool "${name}" returned ${shownValue(reward)}. Return a finite number, 0 for no reward.`,
  );

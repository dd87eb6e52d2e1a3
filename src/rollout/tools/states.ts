/** Stores the states of one sample's tools and of its environment between calls. */

import type { SampleContext, Tool } from '../../tasks/tool.ts';
import { describe, InputError, shownValue, UserCodeError } from '../../errors.ts';
import { withTimeLimit } from './run.ts';

/** Milliseconds that a tool has to return its state for a checkpoint. */
const SAVE_MS = 10_000;

/** Owner of a state: a tool, or the environment of a sample. `signal` aborts its `create`. */
export interface StateOwner extends Pick<Tool, 'name' | 'save' | 'restore' | 'calcReward' | 'release' | 'timeoutMs'> {
  create?(context: SampleContext, signal?: AbortSignal): unknown;
}

interface ToolsEnded {
  rewards: Record<string, number>;
  states: Record<string, unknown>;
  errors: number;
  /** Set if a tool's calcReward returned an invalid reward. */
  fault: UserCodeError | undefined;
}

/** The states of one sample's tools, created at their first use. */
export class ToolStates {
  readonly context: SampleContext;
  readonly #states = new Map<StateOwner, Promise<unknown>>();
  readonly #restored = new Set<StateOwner>();

  constructor(context: SampleContext) {
    this.context = context;
  }

  /**
   * Returns the state of a tool. It is created once, even if two calls of one turn request it at the same time. After a failed `create`,
   * the next call tries again.
   */
  of(tool: StateOwner, signal?: AbortSignal): Promise<unknown> {
    let state = this.#states.get(tool);
    if (!state) {
      // A failure to create the state is thrown to the call that requested it. The `async` turns a synchronous throw into a rejection.
      state = (async () => tool.create?.(this.context, signal))();
      this.#states.set(tool, state);
      state.catch(() => this.#states.delete(tool));
    }
    return state;
  }

  /** True for a tool whose state was created in this run instead of restored from a checkpoint. */
  isUnsaved(tool: StateOwner): boolean {
    return tool.create !== undefined && !this.#restored.has(tool);
  }

  /** Returns the states of all tools that can save their states, by tool, as plain JSON. */
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
        // If the state of a tool cannot be saved, a resumed run repeats the sample's calls of this tool.
        await withTimeLimit(tool.name, () => saveOne(tool, state), SAVE_MS, signal).catch(() => {});
      }),
    );
    return saved;
  }

  /** Restores saved states. Throws InputError if a tool cannot restore its state. */
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

  /** Called if no call needs the tool's state any longer. If the state is created later, it is freed then. */
  giveUp(tool: StateOwner): void {
    const late = this.#states.get(tool);
    this.#states.delete(tool);
    late?.then((state) => tool.release?.(state)).catch(() => {}); // its result is not used
  }

  /**
   * Returns the rewards and states of all tools, by tool, and frees every state. Failures and timeouts are counted, not thrown. A reward
   * that is not a finite number is returned as `fault`.
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
      // If the tool's `create` hangs, it has already used up the time limit of a call, so it is not awaited again.
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

/**
 * A task whose module runs in a sandbox, in a page as in Node. The module has no access to DOM, storage, network, files, process or
 * environment, exchanges only plain data, and has limits on time and memory.
 */

import { blame, InputError, UserCodeError } from '../../errors.ts';
import { expectSavedState } from '../../tasks/checkedTask.ts';
import type { Message, Problem } from '../../tasks/problem.ts';
import type { Reward, Task } from '../../tasks/task.ts';
import { defineTool, type SampleContext, type Tool, type ToolOutput } from '../../tasks/tool.ts';
import { TOOL_RETURNED } from '../../tasks/toolOutput.ts';
import { describedTask, type DescribedTask } from './described.ts';
import { GuestError, SandboxedModule, type ModuleSource } from './sandboxedModule.ts';
import { sha256Of } from './source.ts';

const CALL_MS = 10_000;

/** Time limits of an isolated task. */
export interface IsolatedLimits {
  /** Time limit of one call of a function, in milliseconds. Default: 10,000. */
  timeoutMs?: number | undefined;
  /** Time limit of one call of `reward`, in milliseconds. Applies if it is less than timeoutMs. */
  rewardTimeoutMs?: number | undefined;
  /** Time limit for loading the module, in milliseconds. Default: 10,000. */
  loadMs?: number;
}

/**
 * Loads a task module into a sandbox and returns its task. `close` of the task ends the sandbox's worker. Throws InputError if the module
 * does not load or does not return a task.
 */
export async function isolatedTask(
  source: ModuleSource,
  options: Readonly<Record<string, unknown>>,
  limits: IsolatedLimits,
): Promise<Task> {
  const module = new SandboxedModule(source, options, limits.loadMs);
  try {
    const described = describedTask(source.entry, await module.open());
    expectObservedState(described);
    return {
      ...taskOf(new Calls(module, source.entry, limits), described, limits),
      sha256: await sha256Of(module.texts),
    };
  } catch (error) {
    module.close();
    throw error;
  }
}

/** Throws InputError if checkpoints would not hold the task's state. Outside the sandbox, only the result of `observe` is known. */
function expectObservedState({ name, methods }: DescribedTask): void {
  expectSavedState(name, (method) => methods.includes(method));
  if (!methods.includes('state') || methods.includes('observe')) return;
  throw new InputError(
    `Task "${name}" has state() without observe(), so a resumed run would lose its state: a sandboxed task can change it only in ` +
      'observe(problem, rewards). Write observe(), or leave out state() and restore().',
  );
}

/** Calls functions of the module in its sandbox. Errors name the function. */
class Calls {
  readonly #module: SandboxedModule;
  readonly #address: string;
  readonly #limits: Readonly<IsolatedLimits>;
  /** The state that the task's `observe` last returned. It is passed to `restore` if the worker was restarted. */
  state: unknown;
  #failure: { error: unknown } | undefined;

  constructor(module: SandboxedModule, address: string, limits: IsolatedLimits) {
    this.#module = module;
    this.#address = address;
    this.#limits = limits;
  }

  close(): void {
    this.#module.close();
  }

  /** Makes every later call of a function of the module reject with this error. */
  fail(error: unknown): void {
    this.#failure = { error };
  }

  /**
   * Calls a function of the module.
   * @param what describes the call in errors, e.g. 'Training problem 3'
   */
  async of<T>(what: string, call: string, args: readonly unknown[], limitMs?: number): Promise<T> {
    const ms = Math.min(this.#limits.timeoutMs ?? CALL_MS, limitMs ?? Infinity);
    const again: [string, unknown[]] | undefined = this.state === undefined ? undefined : ['restore', [this.state]];
    try {
      const value = (await this.#module.call(call, args, ms, again)) as T;
      if (this.#failure) throw this.#failure.error;
      return value;
    } catch (error) {
      throw this.#named(what, call, ms, error);
    }
  }

  #named(what: string, call: string, ms: number, error: unknown): Error {
    const whole = `${what} of task module ${this.#address}`;
    if (!(error instanceof GuestError)) return blame(call, whole, error, 'See docs/guides/tasks.md');
    const said: Record<GuestError['kind'], [string, string]> = {
      time: ['took too long', `ran longer than ${ms / 1000} s (task.timeoutS) or broke its sandbox, and was ended`],
      result: ['returned', `returned what cannot leave the sandbox: ${error.message}`],
      threw: ['threw', `threw "${error.message}"${error.place}`],
    };
    const [kind, how] = said[error.kind];
    const isToolOutput = call === 'tool.execute' && error.kind === 'result';
    return new UserCodeError(
      isToolOutput ? TOOL_RETURNED : `${call} ${kind}`,
      `${whole} ${how}. See docs/guides/tasks.md.`,
      {
        cause: error,
      },
    );
  }
}

function taskOf(calls: Calls, { name, methods, tools, ...fields }: DescribedTask, limits: IsolatedLimits): Task {
  const has = (method: string) => methods.includes(method);
  return {
    name,
    ...fields,
    train: (index, seed) => calls.of<Problem>(`Training problem ${index}`, 'train', [index, seed]),
    heldOut: async (count) => {
      const what = 'The list of held-out problems';
      const problems = await calls.of<Problem[]>(what, 'heldOut', [count]);
      if (Array.isArray(problems)) return problems;
      throw new UserCodeError(
        'heldOut returned',
        `${what} of task "${name}" is not a list. Return a list of problems from heldOut(count).`,
      );
    },
    reward: (sample) => {
      const { toolStates = {}, ...data } = sample;
      const states = Object.entries(toolStates).map(([tool, state]) => [tool, idOf(state)]);
      const what = `The reward of problem "${sample.problem.id}"`;
      return calls.of<Reward>(what, 'reward', [data, states.length > 0 ? states : null], limits.rewardTimeoutMs);
    },
    ...(tools.length > 0 && { tools: tools.map((tool, i) => toolOf(calls, tool, i)) }),
    ...(has('observe') && {
      observe: async (problem, rewards) => {
        const moved = await calls.of<unknown>(`\`observe\` of problem "${problem.id}"`, 'observe', [problem, rewards]);
        calls.state = moved ?? undefined;
      },
    }),
    ...(has('state') &&
      has('restore') && {
        state: () => calls.state,
        restore: (state) => {
          calls.state = state;
          void calls.of('`restore`', 'restore', [state]).catch((error: unknown) => calls.fail(error));
        },
      }),
    ...(has('demonstrate') && {
      demonstrate: (problem, rng, errorRate) => {
        const what = `The demonstration of problem "${problem.id}"`;
        return calls.of<Message[]>(what, 'demonstrate', [problem, rng.int(0, 0xffffffff), errorRate]);
      },
    }),
    close: () => calls.close(),
  };
}

/** Stands for the state of a tool, which stays in the sandbox. */
class StateHandle {
  readonly id: number;
  constructor(id: number) {
    this.id = id;
  }
}

const idOf = (state: unknown): number | null => (state instanceof StateHandle ? state.id : null);

function toolOf(calls: Calls, { methods, ...fields }: DescribedTask['tools'][number], index: number): Tool {
  const has = (method: string) => methods.includes(method);
  const call = <T>(method: string, args: unknown[]): Promise<T> =>
    calls.of<T>(`${method} of tool "${fields.name}"`, `tool.${method}`, [index, args], fields.timeoutMs);
  const contextOf = ({ sampleId, problem }: SampleContext) => ({ sampleId, problem });
  return defineTool<Tool['parameters'], unknown>({
    ...fields,
    execute: (args, context) => call<ToolOutput>('execute', [args, contextOf(context), idOf(context.state)]),
    ...(has('create') && {
      create: async (context) => new StateHandle(await call<number>('create', [contextOf(context)])),
      release: (state) => call<undefined>('release', [idOf(state)]).then(() => undefined),
    }),
    ...(has('calcReward') && { calcReward: (state) => call<number>('calcReward', [idOf(state)]) }),
    ...(has('save') &&
      has('restore') && {
        save: (state) => call('save', [idOf(state)]),
        restore: async (saved, context) => new StateHandle(await call<number>('restore', [saved, contextOf(context)])),
      }),
  });
}

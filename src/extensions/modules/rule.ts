/**
 * A rule: the source text of a user's reward, loss or tool. It runs in a sandbox, in a page as in Node, without network, storage, files or
 * DOM, and with limits on time and memory.
 */

import { UserCodeError } from '../../errors.ts';
import { defineTool, type Tool, type ToolOutput } from '../../tasks/tool.ts';
import { TOOL_RETURNED } from '../../tasks/toolOutput.ts';
import { type ProgramKind, RULE_PROGRAMS } from './rulePrograms.ts';
import { GuestError, SandboxedModule } from './sandboxedModule.ts';

const ROOT = 'rule:/';

/** Time limit of a rule in milliseconds: for the samples of a step (reward), a mini-batch (loss), or a call (tool). */
const TIME_MS: Readonly<Record<ProgramKind, number>> = { reward: 2000, loss: 10_000, tool: 2000, functions: 2000 };

/** An error in a rule, with its line in the rule's source. */
export class RuleError extends UserCodeError {
  override name = 'RuleError';
  /** Line of the error in the rule's source, from 1; undefined if unknown. */
  readonly line: number | undefined;
  /** Column of the error in the rule's source, from 1; undefined if unknown. */
  readonly column: number | undefined;

  /** @param fault kind of the error, as in UserCodeError */
  constructor(
    kind: ProgramKind,
    message: string,
    place: { line?: number; column?: number } = {},
    fault: string = `${kind} rule`,
  ) {
    super(fault, message);
    [this.line, this.column] = [place.line, place.column];
  }
}

/** Argument of a reward rule: a finished sample. */
export interface RuleTry {
  /** The right answer to the problem. */
  answer: string;
  /** All text that the model wrote. */
  text: string;
  /** Messages after the prompt, including tool outputs. */
  messages: { role: string; content: string }[];
  /** Number of tool calls that were executed. */
  toolCalls: number;
  /** Number of tokens after the prompt. */
  tokens: number;
  /** True if the task's own reward counts the sample as right. */
  correct: boolean;
}

/** Input of a loss rule: arrays with one entry per token of a mini-batch. The sandbox calls the rule's function for each token. */
export interface RuleTokens {
  advantages: number[];
  logProbs: number[];
  oldLogProbs: number[];
  entropies: number[];
  clipLow: number;
  clipHigh: number;
}

/** Result of a loss rule: for each token its loss, and the derivatives of the loss by the token's log-prob and entropy. */
export interface RuleLosses {
  losses: number[];
  grads: number[];
  entropyGrads: number[];
}

interface Inputs {
  reward: readonly RuleTry[];
  loss: RuleTokens;
  tool: { args: Record<string, unknown> | null };
  /** Name of an exported function, and the arguments of each call. */
  functions: { name: string; calls: unknown[][] };
}
interface Outputs {
  reward: number[];
  loss: RuleLosses;
  tool: unknown;
  /** Result of each call of the function. */
  functions: unknown[];
}

/** A loaded rule. `close` ends its worker. */
export class Rule<K extends ProgramKind> {
  readonly kind: K;
  readonly #module: SandboxedModule;
  readonly #timeMs: number;

  private constructor(kind: K, module: SandboxedModule, timeMs: number) {
    [this.kind, this.#module, this.#timeMs] = [kind, module, timeMs];
  }

  /** Loads a rule. Throws RuleError if its source does not load, or does not export what this kind of rule must export. */
  static async open<K extends ProgramKind>(kind: K, text: string, timeMs = TIME_MS[kind]): Promise<Rule<K>> {
    const texts: Record<string, string> = {
      [`${ROOT}program.js`]: RULE_PROGRAMS[kind],
      [`${ROOT}${kind}.js`]: text,
    };
    const read = (address: string) =>
      address in texts
        ? Promise.resolve(texts[address])
        : Promise.reject(new RuleError(kind, `import "${address.slice(ROOT.length)}": a rule cannot import.`));
    const module = new SandboxedModule({ entry: `${ROOT}program.js`, root: ROOT, read }, {});
    try {
      await module.open();
      return new Rule(kind, module, timeMs);
    } catch (error) {
      module.close();
      throw ruleError(kind, error, timeMs);
    }
  }

  /** Runs the rule: a reward on all samples, a loss on all tokens, a tool on one call. Throws RuleError. */
  async run(input: Inputs[K]): Promise<Outputs[K]> {
    try {
      return (await this.#module.call('run', [input], this.#timeMs)) as Outputs[K];
    } catch (error) {
      throw ruleError(this.kind, error, this.#timeMs);
    }
  }

  close(): void {
    this.#module.close();
  }
}

/**
 * Creates a tool from a tool rule, whose calls run in the sandbox. Throws RuleError, and InputError if the name or the schema of the tool
 * is invalid.
 */
export async function toolOf(rule: Rule<'tool'>): Promise<Tool> {
  const described = (await rule.run({ args: null })) as Pick<Tool, 'name' | 'description' | 'parameters'>;
  const execute = async (args: object) => (await rule.run({ args: { ...args } })) as ToolOutput;
  return defineTool<Tool['parameters'], unknown>({ ...described, execute });
}

function ruleError(kind: ProgramKind, thrown: unknown, timeMs: number): Error {
  const error = thrown instanceof Error && thrown.cause instanceof GuestError ? thrown.cause : thrown;
  if (!(error instanceof GuestError)) return error as Error;
  const isToolOutput = kind === 'tool' && error.kind === 'result';
  const said = {
    time: `it ran longer than ${timeMs / 1000} s and was ended. Look for a loop that does not end.`,
    result: isToolOutput
      ? `it returned ${error.message}. Return a text or any other JSON value, null for nothing.`
      : `it returned what is not plain data: ${error.message}.`,
    threw: `${error.message}.`,
  };
  const [, line, column] = new RegExp(`${ROOT}${kind}\\.js:(\\d+)(?::(\\d+))?`).exec(error.trace) ?? [];
  const place = {
    ...(line !== undefined && { line: Number(line) }),
    ...(column !== undefined && { column: Number(column) }),
  };
  return new RuleError(kind, said[error.kind], place, isToolOutput ? TOOL_RETURNED : undefined);
}

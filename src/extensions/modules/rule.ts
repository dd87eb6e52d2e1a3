/**
 * A rule as a text: a user's reward, loss or tool. The rule runs in a sandbox without network, storage, files or DOM, with limits
 * on time and memory. The same in a page and in Node.
 */

import { UserCodeError } from '../../errors.ts';
import { defineTool, type Tool, type ToolOutput } from '../../tasks/tool.ts';
import { TOOL_RETURNED } from '../../tasks/toolOutput.ts';
import { type ProgramKind, RULE_PROGRAMS } from './rulePrograms.ts';
import { GuestError, SandboxedModule } from './sandboxedModule.ts';

const ROOT = 'rule:/';

/** Milliseconds that a rule can take for all samples of a step, for a mini-batch, or for a call. */
const TIME_MS: Readonly<Record<ProgramKind, number>> = { reward: 2000, loss: 10_000, tool: 2000, functions: 2000 };

/** The error of a rule, with the line of its text. */
export class RuleError extends UserCodeError {
  override name = 'RuleError';
  /** Line of the error, from 1; undefined if the error has no line. */
  readonly line: number | undefined;
  /** Column of the error, from 1. */
  readonly column: number | undefined;

  /** @param fault the kind of the error; see UserCodeError */
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

/** A finished sample, as a reward in the editor sees it. */
export interface RuleTry {
  /** The right answer. */
  answer: string;
  /** All text that the model wrote. */
  text: string;
  /** Messages after the prompt, including tool outputs. */
  messages: { role: string; content: string }[];
  /** Calls that were run. */
  toolCalls: number;
  /** Tokens after the prompt. */
  tokens: number;
  /** True if the task itself counts the sample as right. */
  correct: boolean;
}

/** Tokens of a mini-batch, which a loss in the editor sees one by one; all [E]. */
export interface RuleTokens {
  advantages: number[];
  logProbs: number[];
  oldLogProbs: number[];
  entropies: number[];
  clipLow: number;
  clipHigh: number;
}

/** Loss of each token and its derivative by the token's log-prob; [E]. */
export interface RuleLosses {
  losses: number[];
  grads: number[];
}

interface Inputs {
  reward: readonly RuleTry[];
  loss: RuleTokens;
  tool: { args: Record<string, unknown> | null };
  /** Name of an exported function, and the arguments of its calls. */
  functions: { name: string; calls: unknown[][] };
}
interface Outputs {
  reward: number[];
  loss: RuleLosses;
  tool: unknown;
  /** Result of each call. */
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

  /** Loads a rule. Throws RuleError if the text does not load, or lacks the export that such a rule needs. */
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

  /** Runs the rule once for all samples, all tokens, or one call. Throws RuleError. */
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

/** Creates a tool from its text; its calls run in the sandbox. Throws RuleError, and InputError for an invalid name or schema. */
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

/**
 * A rule as a text: a reward, a loss or a tool that somebody wrote, run in a sandbox without network, storage, files or DOM, under limits of
 * time and memory. The same in a page and in Node.
 */

import { UserCodeError } from '../../errors.ts';
import { defineTool, type Tool, type ToolOutput } from '../tool.ts';
import { TOOL_RETURNED } from '../toolOutput.ts';
import { RULE_PROGRAMS, type RuleKind } from './rulePrograms.ts';
import { GuestError, SandboxedModule } from './sandboxedModule.ts';

const ROOT = 'rule:/';

/** Milliseconds that a rule may take for all tries of a step, for a mini-batch, or for a call. */
const TIME_MS: Readonly<Record<RuleKind, number>> = { reward: 2000, loss: 10_000, tool: 2000 };

/** What is wrong with a rule, and in which line of its text. */
export class RuleError extends UserCodeError {
  override name = 'RuleError';
  /** From 1; undefined where no line is to blame. */
  readonly line: number | undefined;
  /** From 1. */
  readonly column: number | undefined;

  /** @param fault the kind of the error; see UserCodeError */
  constructor(
    kind: RuleKind,
    message: string,
    place: { line?: number; column?: number } = {},
    fault: string = `${kind} rule`,
  ) {
    super(fault, message);
    [this.line, this.column] = [place.line, place.column];
  }
}

/** A finished try, as a reward in the editor sees it. */
export interface RuleTry {
  /** The right answer. */
  answer: string;
  /** Everything that the model wrote. */
  text: string;
  /** What was said after the prompt, tool outputs among it. */
  messages: { role: string; content: string }[];
  /** Calls that were run. */
  toolCalls: number;
  /** Tokens after the prompt. */
  tokens: number;
  /** Whether the task itself calls the try right. */
  correct: boolean;
}

/** A mini-batch's tokens, as a loss in the editor sees them one by one; all [E]. */
export interface RuleTokens {
  advantages: number[];
  logProbs: number[];
  oldLogProbs: number[];
  entropies: number[];
  clipLow: number;
  clipHigh: number;
}

/** A loss of each token and its slope by the token's log-prob; [E]. */
export interface RuleLosses {
  losses: number[];
  grads: number[];
}

interface Inputs {
  reward: readonly RuleTry[];
  loss: RuleTokens;
  tool: { args: Record<string, unknown> | null };
}
interface Outputs {
  reward: number[];
  loss: RuleLosses;
  tool: unknown;
}

/** A rule that has been loaded. `close` ends its worker. */
export class Rule<K extends RuleKind> {
  readonly kind: K;
  readonly #module: SandboxedModule;
  readonly #timeMs: number;

  private constructor(kind: K, module: SandboxedModule, timeMs: number) {
    [this.kind, this.#module, this.#timeMs] = [kind, module, timeMs];
  }

  /** Throws RuleError where the text does not load, or does not export what such a rule exports. */
  static async open<K extends RuleKind>(kind: K, text: string, timeMs = TIME_MS[kind]): Promise<Rule<K>> {
    const texts: Record<string, string> = {
      [`${ROOT}program.js`]: RULE_PROGRAMS[kind],
      [`${ROOT}${kind}.js`]: text,
    };
    const read = (address: string) =>
      address in texts
        ? Promise.resolve(texts[address])
        : Promise.reject(new RuleError(kind, `import "${address.slice(ROOT.length)}": a rule imports nothing.`));
    const module = new SandboxedModule({ entry: `${ROOT}program.js`, root: ROOT, read }, {});
    try {
      await module.open();
      return new Rule(kind, module, timeMs);
    } catch (error) {
      module.close();
      throw ruleError(kind, error, timeMs);
    }
  }

  /** What the rule makes of it: of all tries, of all tokens, or of one call, at once. Throws RuleError. */
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

/** A tool as its text describes it; its calls run in the sandbox. Throws RuleError, and InputError for a name or schema that no tool has. */
export async function toolOf(rule: Rule<'tool'>): Promise<Tool> {
  const described = (await rule.run({ args: null })) as Pick<Tool, 'name' | 'description' | 'parameters'>;
  const execute = async (args: object) => (await rule.run({ args: { ...args } })) as ToolOutput;
  return defineTool<Tool['parameters'], unknown>({ ...described, execute });
}

function ruleError(kind: RuleKind, thrown: unknown, timeMs: number): Error {
  const error = thrown instanceof Error && thrown.cause instanceof GuestError ? thrown.cause : thrown;
  if (!(error instanceof GuestError)) return error as Error;
  const isToolOutput = kind === 'tool' && error.kind === 'result';
  const said = {
    time: `it ran longer than ${timeMs / 1000} s and was ended; look for a loop that does not end.`,
    result: isToolOutput
      ? `it returned ${error.message}; return a text or any other JSON value, null for nothing.`
      : `it gave what is no plain data: ${error.message}.`,
    threw: `${error.message}.`,
  };
  const [, line, column] = new RegExp(`${ROOT}${kind}\\.js:(\\d+)(?::(\\d+))?`).exec(error.trace) ?? [];
  const place = {
    ...(line !== undefined && { line: Number(line) }),
    ...(column !== undefined && { column: Number(column) }),
  };
  return new RuleError(kind, said[error.kind], place, isToolOutput ? TOOL_RETURNED : undefined);
}

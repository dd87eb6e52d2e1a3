/**
 * A chat template (Jinja) with limits. A template is untrusted, so rendering stops after a maximum number of steps and
 * characters, and errors are InputErrors.
 */

import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { InputError } from '../../errors.ts';
import {
  capitalized,
  type JsonStyle,
  pythonEquals,
  pythonJson,
  pythonText,
  pythonTime,
  stripped,
  writtenNumber,
} from './pythonText.ts';

/** Maximum number of steps in a rendering; a conversation of a thousand messages takes about 50,000. */
const MAX_STEPS = 3e5;
/** Number of steps that one iteration of a loop counts as, because each iteration creates a scope. */
const TURN_STEPS = 3;
const MAX_CHARACTERS = 2e7;
const MAX_RANGE = 1e4;
/**
 * Maximum number of characters in a template, more than any model's has. The time to parse one grows with the square of
 * its length.
 */
const MAX_SOURCE = 1e5;
/**
 * Expressions that copy a value: every character of the result counts. Other expressions only look a value up; a
 * character of their result counts LOOK_UP.
 */
const MAKERS = [
  'FilterExpression',
  'CallExpression',
  'BinaryExpression',
  'ArrayLiteral',
  'TupleLiteral',
  'ObjectLiteral',
];
const LOOK_UP = 1 / 16;

/** Global names in every template: those of the library's own `Template.render`, with a limit on `range`. */
const GLOBALS = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  range: boundedRange,
  raise_exception: (message: unknown) => {
    throw new Error(typeof message === 'string' && message !== '' ? message : 'it raises an exception');
  },
  strftime_now: (format: unknown) => pythonTime(String(format), new Date()),
};

type Value = ReturnType<Interpreter['evaluate']>;

/** Error of a template that raises an error or does not end; `reason` is the template's own message. */
export class TemplateStopped extends InputError {
  /** Reason, with a full stop, as the end of an error message. */
  readonly reason: string;
  constructor(words: string) {
    const reason = /[!?]$/.test(words) ? words : `${words}.`;
    super(`The chat template stops at this conversation: ${reason}`);
    this.reason = reason;
  }
}

/** A compiled chat template that runs with limits. */
export class ChatTemplate {
  private readonly program: Template['parsed'];

  /**
   * Parses a template. Line ends are read as in Jinja2: \r\n and \r in the source count as \n. Throws InputError if the
   * text is not a valid template.
   */
  constructor(text: string) {
    if (text.length > MAX_SOURCE) {
      throw new InputError(`The chat template has ${text.length} characters. At most ${MAX_SOURCE} are read.`);
    }
    try {
      this.program = new Template(text.replace(/\r\n?/g, '\n')).parsed;
      markPrinted(this.program);
    } catch (error) {
      throw new InputError(`The chat template cannot be read (${reasonOf(error)}). It must be a Jinja template.`);
    }
  }

  /** Renders the template. Throws TemplateStopped if the template raises an error or does not end. */
  render(variables: Record<string, unknown>): string {
    try {
      const environment = new Environment();
      for (const [name, value] of Object.entries({ ...GLOBALS, ...variables })) environment.set(name, value);
      return (new BoundedInterpreter(environment).run(this.program) as { value: string }).value;
    } catch (error) {
      throw new TemplateStopped(reasonOf(error));
    }
  }
}

/**
 * Template of the tokenizers that this project trains: ChatML without newlines between turns, and tool output in separate tags without a
 * header, so that a tool turn with a two-digit result costs six tokens including the assistant header. Tool schemas are rendered only with
 * rollout.multiTurn.toolSchemasInPrompt: true, because these models learn their tools from demonstrations.
 */
export const PLAIN_TEMPLATE =
  "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}" +
  "{%- endfor %}{{- '<|im_end|>' }}{%- endif %}" +
  '{%- for message in messages %}' +
  "{%- if message.role == 'tool' %}{{- '<tool_response>' + message.content + '</tool_response>' }}" +
  "{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' }}{%- endif %}" +
  '{%- endfor %}' +
  "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/** The chat templates in a tokenizer_config.json: one text, or several by name. */
export class ChatTemplates {
  private readonly texts = new Map<string, string>();
  private readonly read = new Map<string, ChatTemplate>();

  constructor(source: unknown) {
    const named = Array.isArray(source) ? (source as ({ name: string; template: unknown } | null)[]) : undefined;
    for (const entry of named ?? [{ name: 'default', template: source }])
      if (typeof entry?.template === 'string') this.texts.set(entry.name, entry.template);
  }

  /** Throws InputError if the default template is invalid. */
  check(): void {
    if (this.texts.has('default')) this.named('default');
  }

  /**
   * Returns the template for a prompt. As in transformers, that is `tool_use` if there are tools and a template of that
   * name, otherwise `default`. Throws InputError.
   */
  of(tools: boolean): ChatTemplate {
    return this.named(this.nameOf(tools));
  }

  /** Returns the source text of the template for a prompt with or without tools; undefined if it is missing. */
  textOf(tools: boolean): string | undefined {
    return this.texts.get(this.nameOf(tools));
  }

  private nameOf(tools: boolean): string {
    return tools && this.texts.has('tool_use') ? 'tool_use' : 'default';
  }

  private named(name: string): ChatTemplate {
    const text = this.texts.get(name);
    if (text === undefined) {
      const names = [...this.texts.keys()].map((other) => `"${other}"`).join(', ');
      throw new InputError(
        names === ''
          ? 'tokenizer_config.json has no "chat_template". Add one or use the tokenizer of a chat model.'
          : `tokenizer_config.json: "chat_template" has templates for ${names}, but none named "${name}". Add one.`,
      );
    }
    const template = this.read.get(name) ?? new ChatTemplate(text);
    this.read.set(name, template);
    return template;
  }
}

/** A node of a parsed template, as far as it is read here. */
interface Node {
  type: string;
  value?: unknown;
  body?: Node[];
  callee?: Node & { object?: Node; property?: Node };
  args?: Node[];
  key?: Node;
  /** Expression whose result is written into the text. */
  printed?: Node;
}

const STRIPS = ['strip', 'lstrip', 'rstrip'] as const;
const BLOCKS = ['body', 'alternate', 'defaultBlock'];
/** Statements, which write their own text or none. */
const STATEMENTS = /^(Set|If|For|Macro|CallStatement|FilterStatement|Comment|Break|Continue|StringLiteral)$/;

/** Marks the expressions of a parsed template that are written into the text, because Python writes some values differently. */
function markPrinted(node: object): void {
  for (const [key, value] of Object.entries(node)) {
    if (typeof value !== 'object' || value === null) continue;
    markPrinted(value as object);
    if (!BLOCKS.includes(key) || !Array.isArray(value)) continue;
    for (const [i, one] of (value as Node[]).entries())
      if (!STATEMENTS.test(one.type)) value[i] = { type: 'Printed', printed: one };
  }
}

/** A node whose value is known. */
const held = (value: Value): Node => ({ type: 'Value', value });
const list = (value: Node[]): Node => ({ type: 'ArrayLiteral', value });

class BoundedInterpreter extends Interpreter {
  private steps = 0;
  private characters = 0;
  private readonly iterables = new WeakSet<object>();
  private readonly sizes = new WeakMap<object, number>();
  /** First statements of the bodies of loops. */
  private readonly starts = new WeakSet<object>();
  /** Set from {% break %} or {% continue %} to the end of the loop or of its iteration; nothing is evaluated then. */
  private left: 'Break' | 'Continue' | undefined;

  override evaluate(...given: Parameters<Interpreter['evaluate']>): Value {
    const [statement, environment] = given as [Node | undefined, Environment];
    if (statement?.type === 'Value') return statement.value as Value;
    if (statement && this.starts.has(statement) && this.left === 'Continue') this.left = undefined;
    if (this.left) return this.text('');
    if (statement?.type === 'Printed') return this.text(pythonText(this.evaluate(statement.printed, environment)));
    if (statement?.type === 'Break' || statement?.type === 'Continue') {
      this.left = statement.type;
      return this.text('');
    }
    if (isLoop(statement)) {
      this.iterables.add(iterableOf(statement));
      if (statement.body?.[0]) this.starts.add(statement.body[0]);
    }
    const found = this.asNumber((statement && this.asPython(statement, environment)) ?? super.evaluate(...given));
    const result = statement && this.iterables.has(statement) ? this.asItems(found) : found;
    if (isLoop(statement)) this.left = undefined;
    this.steps++;
    if (statement) this.charge(statement, result);
    if (this.steps > MAX_STEPS) throw new Error(`it does not end within ${MAX_STEPS} steps`);
    if (this.characters > MAX_CHARACTERS) throw new Error(`it writes more than ${MAX_CHARACTERS} characters`);
    return result;
  }

  /**
   * Returns the result of an expression that the library evaluates differently from Python; undefined for any other.
   */
  private asPython(node: Node, environment: Environment): Value | undefined {
    if (node.type === 'BinaryExpression') return this.operation(node, environment);
    if (node.type === 'FilterExpression') {
      const { operand, filter } = node as unknown as { operand: Node; filter: Node };
      const value = this.evaluate(operand, environment);
      const name = (filter.callee ?? filter).value as string;
      return (
        this.filtered(name, value, filter.args ?? [], environment) ??
        super.evaluate({ ...node, operand: held(value) } as Node, environment)
      );
    }
    if (node.type === 'MemberExpression') return this.member(node, environment);
    if (node.type === 'TestExpression') {
      const { operand, test, negate } = node as unknown as { operand: Node; test: Node; negate: boolean };
      if (test.value !== 'iterable' || this.evaluate(operand, environment).type !== 'UndefinedValue') return undefined;
      return super.evaluate({ ...node, operand: held(this.text('')), negate } as Node, environment);
    }
    return node.type === 'CallExpression' ? this.called(node, environment) : undefined;
  }

  private filtered(name: string, value: Value, args: Node[], environment: Environment): Value | undefined {
    const isText = value.type === 'StringValue';
    if (name === 'tojson' && value.type === 'UndefinedValue') throw new Error('it writes an undefined value as JSON');
    if (name === 'tojson') return this.text(pythonJson(value, this.jsonStyle(args, environment)));
    if (name === 'string') return this.text(pythonText(value));
    if (name === 'trim' && isText) return this.strip('strip', value, args, environment);
    if (name === 'length' && isText) return this.number(this.codePoints(value).length);
    if (name === 'capitalize' && isText) return this.text(capitalized(value.value as string));
    if (!Array.isArray(value.value)) return undefined;
    const items = value.value;
    if (['first', 'last'].includes(name) && items.length === 0) return this.global.lookupVariable('');
    if (name !== 'join') return undefined;
    if (args.some(({ key }) => key?.value === 'attribute'))
      throw new Error('it joins an attribute, which is not read here');
    const texts = super.evaluate(list(items.map((item) => held(this.text(pythonText(item))))), environment);
    const filter = { type: 'CallExpression', callee: { type: 'Identifier', value: name }, args };
    return super.evaluate({ type: 'FilterExpression', operand: held(texts), filter } as Node, environment);
  }

  /** Reads a part of a value. Python has no parts of undefined values, and counts code points. */
  private member(node: Node, environment: Environment): Value {
    const { object, property, computed } = node as unknown as { object: Node; property: Node; computed: boolean };
    const value = this.evaluate(object, environment);
    if (value.type === 'UndefinedValue') throw new Error('it reads a part of an undefined value');
    const isPart = computed && property.type !== 'SliceExpression' && value.type === 'StringValue';
    const at = isPart ? this.evaluate(property, environment) : undefined;
    const character = at?.type === 'IntegerValue' && this.codePoints(value).at(at.value as number);
    if (typeof character === 'string') return this.text(character);
    return super.evaluate({ ...node, object: held(value), ...(at && { property: held(at) }) } as Node, environment);
  }

  private called(node: Node, environment: Environment): Value | undefined {
    const { callee, args } = node;
    if (callee?.type !== 'MemberExpression' || !callee.object) return undefined;
    const value = this.evaluate(callee.object, environment);
    const name = String(callee.property?.value);
    const method = STRIPS.find((one) => one === name);
    if (value.type === 'StringValue') {
      if (method) return this.strip(method, value, args, environment);
      if (name === 'capitalize') return this.text(capitalized(value.value as string));
      if (['startswith', 'endswith'].includes(name) && args?.length !== 1)
        throw new Error(`it calls ${name} with ${args?.length ?? 0} values; 1 is read here`);
    }
    const member = this.evaluate({ ...callee, object: held(value) } as Node, environment);
    if (member.type === 'UndefinedValue') throw new Error(`it calls ${name}(), which is not known here`);
    return super.evaluate({ ...node, callee: held(member) } as Node, environment);
  }

  /** Returns the list that a loop iterates over: Python also accepts texts and undefined values. */
  private asItems(value: Value): Value {
    if (!['StringValue', 'UndefinedValue'].includes(value.type)) return value;
    if (value.type === 'UndefinedValue') return super.evaluate(list([]), this.global);
    return super.evaluate(list(this.codePoints(value).map((c) => held(this.text(c)))), this.global);
  }

  /** Returns the characters of a text, and counts them, because this takes time in proportion to its length. */
  private codePoints({ value }: Value): string[] {
    const text = value as string;
    this.characters += LOOK_UP * text.length;
    if (text.length > MAX_STEPS) throw new Error(`it reads a text of over ${MAX_STEPS} characters one by one`);
    return [...text];
  }

  private operation(node: Node, environment: Environment): Value | undefined {
    const { operator, left, right } = node as unknown as { operator: { value: string }; left: Node; right: Node };
    if (!['==', '!=', '~', '%', '+'].includes(operator.value)) return undefined;
    const [a, b] = [this.evaluate(left, environment), this.evaluate(right, environment)];
    const apply = (x: Value, y: Value) =>
      super.evaluate({ ...node, left: held(x), right: held(y) } as Node, environment);
    if (operator.value === '~') return this.text(pythonText(a) + pythonText(b));
    if (operator.value === '+') {
      if (a.type !== b.type && [a.type, b.type].includes('StringValue'))
        throw new Error('it adds a text and another value');
      return super.evaluate({ ...node, left: held(a), right: held(b) } as Node, environment);
    }
    if (operator.value !== '%') return apply(this.text(''), this.text(pythonEquals(a, b) ? '' : '!'));
    const result = apply(a, b) as { value: number } & Value;
    const divisor = b.value as number;
    if (result.value !== 0 && result.value < 0 !== divisor < 0) result.value += divisor;
    return result;
  }

  private strip(method: (typeof STRIPS)[number], of: Value, args: Node[] = [], environment: Environment): Value {
    const chars = args.length > 0 ? this.evaluate(args[0], environment) : undefined;
    return this.text(
      stripped(of.value as string, method, chars?.type === 'StringValue' ? (chars.value as string) : undefined),
    );
  }

  private jsonStyle(args: readonly Node[], environment: Environment): JsonStyle {
    const given = new Map(
      args.flatMap(({ key, value }) => (key ? [[key.value, this.evaluate(value as Node, environment).value]] : [])),
    );
    const separators = given.get('separators') as Value[] | null | undefined;
    return {
      indent: (given.get('indent') as number | string | null | undefined) ?? undefined,
      ensureAscii: given.get('ensure_ascii') === true,
      sortKeys: given.get('sort_keys') === true,
      separators: separators?.map(pythonText),
    };
  }

  /** Returns a float instead of an object that stands for it. */
  private asNumber(value: Value): Value {
    const text = writtenNumber(value);
    if (text === undefined || /^-?\d+$/.test(text)) return value;
    return super.evaluate({ type: 'FloatLiteral', value: Number(text) } as Node, this.global);
  }

  private number(value: number): Value {
    return super.evaluate({ type: 'IntegerLiteral', value } as Node, this.global);
  }

  private text(value: string): Value {
    return super.evaluate({ type: 'StringLiteral', value } as Node, this.global);
  }

  /**
   * Counts steps and characters by a value's size if the library processes the value in one step, without evaluating
   * statements.
   */
  private charge(statement: { type: string }, result: Value): void {
    const share = MAKERS.includes(statement.type) ? 1 : LOOK_UP;
    if (typeof result.value === 'string') this.characters += share * result.value.length;
    else if (share === 1) this.characters += this.sizeOf(result);
    if (!Array.isArray(result.value)) return;
    // The list of a loop also counts by its length, because a loop with an empty body evaluates no statement.
    this.steps += (this.iterables.has(statement) ? TURN_STEPS : share) * result.value.length;
  }

  /** Returns the number of characters and elements in a value. A part that occurs several times counts each time. */
  private sizeOf(value: Value): number {
    const known = this.sizes.get(value);
    if (known !== undefined) return known;
    const held: unknown = value.value;
    let size = typeof held === 'string' ? held.length : 1;
    if (Array.isArray(held) || held instanceof Map)
      for (const inner of held.values()) size += this.sizeOf(inner as Value);
    this.sizes.set(value, size);
    return size;
  }
}

interface Loop {
  type: 'For';
  body?: Node[];
  iterable: { type: string; lhs?: object };
}

function isLoop(statement: unknown): statement is Loop {
  return (statement as Loop | undefined)?.type === 'For';
}

/**
 * Returns the expression whose list a loop iterates over. In a loop with a condition that expression is one level
 * deeper.
 */
function iterableOf({ iterable }: Loop): object {
  return iterable.type === 'SelectExpression' && iterable.lhs ? iterable.lhs : iterable;
}

/** Like Python's range(), but with at most MAX_RANGE numbers. */
function boundedRange(start: number, stop?: number, step = 1): number[] {
  const [first, end] = typeof stop === 'number' ? [start, stop] : [0, start];
  const count = Math.max(0, Math.ceil((end - first) / step));
  if (!(count <= MAX_RANGE)) throw new Error(`range() of ${count} numbers; at most ${MAX_RANGE}`);
  return Array.from({ length: count }, (_, i) => first + i * step);
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replace(/\.$/, '').slice(0, 300);
}

/**
 * A chat template (Jinja) with bounds: it may be anybody's, so it ends after so many steps and so many characters, and what
 * goes wrong in it is an InputError.
 */

import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { InputError } from '../../errors.ts';

/** A conversation of a thousand messages takes some 50,000. */
const MAX_STEPS = 3e5;
const MAX_CHARACTERS = 1e8;
const MAX_RANGE = 1e4;

/** What every template may call, as the library's own `Template.render` has it, but for a bound on `range`. */
const GLOBALS = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  range: boundedRange,
  raise_exception: (message: unknown) => {
    throw new Error(String(message));
  },
  strftime_now: (format: unknown) => new Template('{{ strftime_now(format) }}').render({ format }),
};

type Value = ReturnType<Interpreter['evaluate']>;

export class ChatTemplate {
  private readonly program: Template['parsed'];

  /** Throws InputError where the text is not a template. */
  constructor(text: string) {
    try {
      this.program = new Template(text).parsed;
    } catch (error) {
      throw new InputError(`The chat template cannot be read (${reasonOf(error)}); it must be a Jinja template.`);
    }
  }

  /** Throws InputError with the template's own words where it raises, and where it does not end. */
  render(variables: Record<string, unknown>): string {
    try {
      const environment = new Environment();
      for (const [name, value] of Object.entries({ ...GLOBALS, ...variables })) environment.set(name, value);
      return (new BoundedInterpreter(environment).run(this.program) as { value: string }).value;
    } catch (error) {
      throw new InputError(`The chat template stops at this conversation: ${reasonOf(error)}.`);
    }
  }
}

class BoundedInterpreter extends Interpreter {
  private steps = 0;
  private readonly iterables = new WeakSet<object>();

  override evaluate(...given: Parameters<Interpreter['evaluate']>): Value {
    const [statement] = given;
    if (isLoop(statement)) this.iterables.add(iterableOf(statement));
    const result = super.evaluate(...given);
    // What is looped over counts by its length: a loop that does nothing evaluates nothing else.
    const turns = statement && this.iterables.has(statement) && Array.isArray(result.value) ? result.value.length : 0;
    this.steps += 1 + turns;
    if (this.steps > MAX_STEPS) throw new Error(`it does not end within ${MAX_STEPS} steps`);
    if (typeof result.value === 'string' && result.value.length > MAX_CHARACTERS) {
      throw new Error(`it writes more than ${MAX_CHARACTERS} characters`);
    }
    return result;
  }
}

interface Loop {
  type: 'For';
  iterable: { type: string; lhs?: object };
}

function isLoop(statement: unknown): statement is Loop {
  return (statement as Loop | undefined)?.type === 'For';
}

/** A loop with a condition holds its list one level deeper. */
function iterableOf({ iterable }: Loop): object {
  return iterable.type === 'SelectExpression' && iterable.lhs ? iterable.lhs : iterable;
}

/** Python's range(), of at most MAX_RANGE numbers. */
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

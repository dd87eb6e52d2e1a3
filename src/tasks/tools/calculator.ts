/** The tool `calculator`: + - * / parentheses, decimals and unary minus. It is a recursive-descent parser without `eval`. */

import type { Tool } from '../tool.ts';

const MAX_LENGTH = 200;
/** Largest result. A larger result would be printed with an exponent, which the calculator cannot parse. */
const MAX_RESULT = 1e15;

/** Tool that evaluates an expression of + - * / and parentheses with at most 200 characters. The result is rounded to two decimals. */
export const calculator: Tool = {
  name: 'calculator',
  description: 'Evaluates an arithmetic expression with + - * / and parentheses.',
  parameters: {
    type: 'object',
    properties: { expression: { type: 'string', description: 'For example 48/2 or (3+4)*5' } },
    required: ['expression'],
  },
  execute: ({ expression }) => calculate(String(expression)),
};

/** Evaluates an expression. Returns the result rounded to two decimals, or a text that starts with "Error:". Never throws. */
export function calculate(expression: string): string {
  const value = valueOrError(expression);
  return typeof value === 'string' ? `Error: ${value}` : String(Math.round(value * 100) / 100 || 0);
}

/** Evaluates an expression. Returns the result without rounding, or NaN for an expression that the calculator refuses. */
export function evaluate(expression: string): number {
  const value = valueOrError(expression);
  return typeof value === 'string' ? NaN : value;
}

function valueOrError(expression: string): number | string {
  if (expression.length > MAX_LENGTH)
    return `the expression has ${expression.length} characters, at most ${MAX_LENGTH} are allowed`;
  const parser = new Parser(expression);
  const value = parser.parse();
  if (parser.error !== null) return parser.error;
  return Math.abs(value) <= MAX_RESULT ? value : 'the result is too large';
}

/** Grammar: expression = term (('+' | '-') term)*; term = factor (('*' | '/') factor)*; factor = number | '-' factor | '(' ... ')'. */
class Parser {
  error: string | null = null;
  private at = 0;
  private readonly text: string;

  constructor(text: string) {
    this.text = text.replace(/\s+/g, ' ').trim();
  }

  parse(): number {
    if (this.text === '') return this.fail('the expression is empty');
    const value = this.expression();
    return this.at < this.text.length ? this.unexpected() : value;
  }

  private expression(): number {
    let value = this.term();
    for (;;) {
      if (this.take('+')) value += this.term();
      else if (this.take('-')) value -= this.term();
      else return value;
    }
  }

  private term(): number {
    let value = this.factor();
    for (;;) {
      if (this.take('*')) value *= this.factor();
      else if (this.take('/')) value = this.divide(value, this.factor());
      else return value;
    }
  }

  private factor(): number {
    if (this.error !== null) return NaN;
    if (this.take('-')) return -this.factor();
    if (this.take('(')) {
      const value = this.expression();
      return this.take(')') ? value : this.unexpected();
    }
    return this.number();
  }

  private number(): number {
    this.skipSpace();
    const found = /^(\d+(\.\d*)?|\.\d+)/.exec(this.text.slice(this.at));
    if (!found) return this.unexpected();
    this.at += found[0].length;
    return Number(found[0]);
  }

  private divide(value: number, by: number): number {
    return by === 0 ? this.fail('division by zero') : value / by;
  }

  private take(symbol: string): boolean {
    this.skipSpace();
    if (this.error !== null || this.text[this.at] !== symbol) return false;
    this.at++;
    return true;
  }

  private skipSpace(): void {
    while (this.text[this.at] === ' ') this.at++;
  }

  private unexpected(): number {
    const found = this.text[this.at];
    return this.fail(found === undefined ? 'the expression ends too early' : `unexpected "${found}" at ${this.at + 1}`);
  }

  /** Stores the first error. All results after it are discarded. */
  private fail(message: string): number {
    this.error ??= message;
    return NaN;
  }
}

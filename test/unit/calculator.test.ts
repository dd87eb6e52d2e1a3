import { describe, expect, test } from 'vitest';
import { rng } from '../random.ts';
import { calculate, calculator } from '../../src/tasks/tools/calculator.ts';
import { toolContext } from '../samples.ts';

describe('calculator', () => {
  test.each([
    ['48/2', '24'],
    ['2+3*4', '14'],
    ['(2+3)*4', '20'],
    ['10-3-4', '3'],
    ['100/10/5', '2'],
    ['-5+3', '-2'],
    ['3--5', '8'],
    ['2*-3', '-6'],
    ['--4', '4'],
    ['-(2+3)', '-5'],
    ['.5+1.', '1.5'],
    ['0.1+0.2', '0.3'],
    ['10/3', '3.33'],
    ['-1/3', '-0.33'],
    ['-1/1000', '0'],
    ['0*-1', '0'],
    [' 1 + 2 ', '3'],
    ['1\n+\t2', '3'],
    ['999999*999999', '999998000001'],
  ])('%s = %s', (expression, result) => expect(calculate(expression)).toBe(result));

  test.each([
    ['', 'Error: the expression is empty'],
    ['1/0', 'Error: division by zero'],
    ['1/(2-2)+5', 'Error: division by zero'],
    ['1+', 'Error: the expression ends too early'],
    ['(1+2', 'Error: the expression ends too early'],
    ['1+2)', 'Error: unexpected ")" at 4'],
    ['1 2', 'Error: unexpected "2" at 3'],
    ['2**3', 'Error: unexpected "*" at 3'],
    ['x+1', 'Error: unexpected "x" at 1'],
    ['1.2.3', 'Error: unexpected "." at 4'],
    ['1e3', 'Error: unexpected "e" at 2'],
    ['process.exit(1)', 'Error: unexpected "p" at 1'],
    ['9'.repeat(17), 'Error: the result is too large'],
    [`${'9'.repeat(199)}`, 'Error: the result is too large'],
    ['1'.repeat(201), 'Error: the expression has 201 characters, at most 200 are allowed'],
    ['('.repeat(200), 'Error: the expression ends too early'],
  ])('%s -> %s', (expression, message) => expect(calculate(expression)).toBe(message));

  test('agrees with JavaScript on 500 random expressions', () => {
    const { uniform } = rng(7);
    const int = (n: number) => Math.floor(uniform() * n);
    const build = (depth: number): string => {
      if (depth === 0 || uniform() < 0.2) return (uniform() < 0.2 ? '-' : '') + String(int(50) + 1);
      const [a, b] = [build(depth - 1), build(depth - 1)];
      return uniform() < 0.4 ? `(${a}${'+-*/'[int(4)]}${b})` : `${a}${'+-*/'[int(4)]} ${b}`;
    };
    let compared = 0;
    for (let i = 0; i < 500; i++) {
      const text = build(3);
      // Blanks prevent JavaScript from reading two minus signs as the operator "--".
      const value = new Function(`return ${text.replaceAll('-', ' - ')}`)() as number;
      if (!Number.isFinite(value) || text.length > 200) continue;
      expect(calculate(text), text).toBe(String(Math.round(value * 100) / 100 || 0));
      compared++;
    }
    expect(compared).toBeGreaterThan(400);
  });

  test('as a tool it reads the argument "expression", whatever its type', () => {
    expect(calculator.execute({ expression: '6*7' }, toolContext())).toBe('42');
    expect(calculator.execute({ expression: undefined }, toolContext())).toBe('Error: unexpected "u" at 1');
  });
});

/**
 * Solves the word problems of the gsm8k-tool task by their templates. A scripted engine replies with the solution when it solves a problem.
 */

import { calculatorCall, demonstration } from '../../src/extensions/sft/demonstrations.ts';
import { TEMPLATES } from '../../src/tasks/gsm8k/templates.ts';
import { keyedRng } from '../../src/tasks/random.ts';

const PATTERNS = TEMPLATES.map(({ text, steps }) => {
  const seen = new Set<string>();
  const pattern = text.replace(/[.?$]/g, '\\$&').replace(/\{(\w)\}/g, (_, name: string) => {
    if (seen.has(name)) return `\\k<${name}>`;
    seen.add(name);
    return `(?<${name}>\\w+)`;
  });
  return { steps, pattern: new RegExp(pattern) };
});

/** Returns the turns that solve the problem in a prompt, tool calls first; undefined if the task's templates do not match the problem. */
export function solveWordProblem(prompt: string): readonly string[] | undefined {
  for (const { pattern, steps } of PATTERNS) {
    const found = pattern.exec(prompt)?.groups;
    if (!found) continue;
    const program = steps.map((step) => step.replace(/\{(\w)\}/g, (_, name: string) => found[name]));
    const { calls } = demonstration({ id: '', messages: [], answer: '', program }, keyedRng('solved'));
    return [...calls.map(({ expression }) => calculatorCall(expression)), `#### ${calls.at(-1)?.result}`];
  }
  return undefined;
}

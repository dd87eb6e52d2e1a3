/** Figure 4.2: a tool as code, compared with the calculator on the calls of a trained model. */

import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure } from '../kit/figure.tsx';
import { RECORDED } from './stills.ts';

interface Call {
  expression: string;
  result: string;
}

/** Returns the calls of a try with their results. */
export function callsOf({ messages, promptMessages }: LoggedRollout): Call[] {
  return messages.slice(promptMessages).flatMap(({ role, content }, m, all) => {
    if (role !== 'assistant') return [];
    const written = /"expression":"([^"]*)"/.exec(content);
    return written ? [{ expression: written[1], result: all[m + 1]?.content ?? '' }] : [];
  });
}

const TOOL = `// The model reads the description, and then what run returns.
export const name = 'calculator';
export const description = 'Evaluates an arithmetic expression with + - * / and parentheses.';
export const parameters = {
  type: 'object',
  properties: { expression: { type: 'string' } },
  required: ['expression'],
};

export function run({ expression }) {
  if (!/^[-+*/(). 0-9]+$/.test(expression)) return 'Error: only numbers and + - * / ( )';
  const value = Function('return ' + expression)();
  return String(Math.round(value));
}
`;

/** Figure 4.2. */
export function ToolFigure() {
  const code = useSignal(TOOL);
  const result = useSignal<Checked | undefined>(undefined);
  const yours = useSignal<readonly string[] | undefined>(undefined);
  const tries = RECORDED.tools.tries;
  const calls = useMemo(() => tries.map(callsOf), [tries]);
  const all = calls.flat();
  const agree = yours.value?.filter((output, c) => output === all[c].result).length;
  const says =
    agree === undefined
      ? `The trained model made ${all.length} calls for ${tries.length} problems. Run your tool on them.`
      : `Your tool agrees with the calculator in ${agree} of ${all.length} calls.`;
  const run = async () => {
    try {
      const { Rule, toolOf } = await import('../../../src/extensions/modules/index.ts');
      const rule = await Rule.open('tool', code.peek());
      try {
        await toolOf(rule); // checks its description
        const outputs: string[] = [];
        for (const { expression } of all) {
          const output = await rule.run({ args: { expression } }).catch((error: Error) => `Error: ${error.message}`);
          outputs.push(typeof output === 'string' ? output : JSON.stringify(output));
        }
        yours.value = outputs;
        result.value = { ok: true, says: 'Run on every call.' };
      } finally {
        rule.close();
      }
    } catch (error) {
      const { line, column, message } = error as { line?: number; column?: number; message: string };
      result.value = { ok: false, says: line === undefined ? message : `Line ${line}: ${message}`, line, column };
    }
  };
  let c = 0;
  return (
    <Figure
      number="4.2"
      title="A tool of your own"
      says={says}
      source={`Recorded near the end of ${RECORDED.tools.command}, commit ${RECORDED.tools.commit}: one try for each of eight problems.`}
    >
      <CodeField label="Code of the tool" code={code} result={result.value} />
      <div class="buttons">
        <button type="button" class="primary" onClick={() => void run()}>
          Run it on the calls
        </button>
      </div>
      <p class={`result ${result.value?.ok === false ? 'wrong' : ''}`} role="status">
        {result.value?.says}
      </p>
      <div class="scroll" tabindex={0} role="group" aria-label="Calls of the trained model">
        <table>
          <thead>
            <tr>
              <th>problem</th>
              <th>call</th>
              <th>calculator</th>
              <th>yours</th>
            </tr>
          </thead>
          <tbody>
            {tries.flatMap((one, i) =>
              calls[i].map(({ expression, result: recorded }, k) => {
                const own = yours.value?.[c++];
                return (
                  <tr key={`${i}-${k}`}>
                    <td>{k === 0 ? one.messages[one.promptMessages - 1].content : ''}</td>
                    <td>
                      <code>{expression}</code>
                    </td>
                    <td>{recorded}</td>
                    <td class={own !== undefined && own !== recorded ? 'differs' : ''}>{own ?? ''}</td>
                  </tr>
                );
              }),
            )}
          </tbody>
        </table>
      </div>
    </Figure>
  );
}

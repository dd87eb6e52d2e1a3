/** Figure 4.2: a tool as code, compared with the calculator on the calls of a trained model, and used live by the shipped model. */

import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { Message } from '../../../src/tasks/task.ts';
import { calculate } from '../../../src/tasks/tools/calculator.ts';
import { move, movedTo } from '../kit/address.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, LiveButton, useOwnId } from '../kit/figure.tsx';
import { type Call, callersInWords, callsOf, RECORDED } from './stills.ts';

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

/** Maximum length of code that is stored in the address. */
const LONGEST = 4000;
/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 4-tools`). */
const COLD_S = 5;

const { tries } = RECORDED.tools;
const questionOf = ({ messages, promptMessages }: (typeof tries)[number]) => messages[promptMessages - 1].content;

interface CallRow {
  /** Heading of the calls. */
  name: string;
  calls: readonly { expression: string; calculator: string; yours?: string | undefined }[];
}

function CallTable({ label, rows }: { label: string; rows: readonly CallRow[] }) {
  return (
    <div class="scroll" tabindex={0} role="group" aria-label={label}>
      <table class="calls">
        <thead>
          <tr>
            <th>call</th>
            <th>calculator</th>
            <th>yours</th>
          </tr>
        </thead>
        {rows.map(({ name, calls }, i) => (
          <tbody key={i}>
            <tr>
              <th colSpan={3} scope="rowgroup">
                {name}
              </th>
            </tr>
            {calls.map(({ expression, calculator, yours }, k) => (
              <tr key={k}>
                <td>
                  <code>{expression}</code>
                </td>
                <td>{calculator}</td>
                <td class={yours !== undefined && yours !== calculator ? 'differs' : ''}>{yours}</td>
              </tr>
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

/** Figure 4.2. */
export function ToolFigure() {
  const code = useSignal(movedTo('tool') ?? TOOL);
  const result = useSignal<Checked | undefined>(undefined);
  const yours = useSignal<readonly string[] | undefined>(undefined);
  const calls = useMemo(() => tries.map((one) => callsOf(one.messages.slice(one.promptMessages))), []);
  const all = calls.flat();
  const agree = yours.value?.filter((output, c) => output === all[c].result).length;
  const says =
    agree === undefined
      ? `The trained model made ${all.length} calls for ${tries.length} problems. Run your tool on them.`
      : `Your tool agrees with the calculator in ${agree} of ${all.length} calls.`;
  const run = async () => {
    const text = code.peek();
    move({ tool: text === TOOL || text.length > LONGEST ? undefined : text });
    try {
      const { Rule, toolOf } = await import('../../../src/extensions/modules/index.ts');
      const rule = await Rule.open('tool', text);
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
  const rows = tries.map((one, i) => ({
    name: questionOf(one),
    calls: calls[i].map(({ expression, result: calculator }) => ({
      ...{ expression, calculator, yours: yours.value?.[c++] },
    })),
  }));
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
      <CallTable label="Calls of the trained model" rows={rows} />
      <OwnProblem code={code} />
    </Figure>
  );
}

function answerIn(messages: readonly Message[]): string {
  const written = /#### *(-?[\d.,]+)/.exec(messages.at(-1)?.content ?? '')?.[1];
  return written === undefined ? 'no answer' : `answer ${written}`;
}

/** The reader's own problem, which the untrained model answers with the reader's tool. */
function OwnProblem({ code }: { code: { peek(): string } }) {
  const id = useOwnId();
  const problem = useSignal(questionOf(tries[0]));
  const drawn = useSignal<readonly { messages: readonly Message[]; calls: readonly Call[]; own: string }[]>([]);
  const ask = async (signal: AbortSignal, say: (text: string) => void): Promise<string> => {
    const text = problem.peek().trim();
    if (text === '') throw new Error('The problem is empty. Write one.');
    const { answerWith, OWN_TRIES } = await import('./live.ts');
    drawn.value = [];
    const onTry = (messages: readonly Message[], own: string) => {
      drawn.value = [...drawn.peek(), { messages, calls: callsOf(messages), own }];
      say(`${drawn.peek().length} of ${OWN_TRIES} tries.`);
    };
    await answerWith(code.peek(), text, { onTry, signal });
    const tried = drawn.peek().map(({ calls }) => calls);
    return callersInWords(tried, drawn.peek().at(0)?.own ?? '');
  };
  const rows = drawn.value.map(({ messages, calls, own }, i) => ({
    name: `Try ${i + 1}, ${answerIn(messages)}${calls.length === 0 ? ', no call' : ''}`,
    calls: calls.map(({ tool, expression, result }) => ({
      expression: tool === own ? expression : `${tool}(${expression})`,
      calculator: calculate(expression),
      yours: tool === own ? result : undefined,
    })),
  }));
  return (
    <>
      <div class="field wide">
        <label for={id}>A problem of your own, for the model as it is before training</label>
        <input
          id={id}
          type="text"
          maxLength={300}
          value={problem.value}
          onInput={(event) => (problem.value = event.currentTarget.value)}
        />
      </div>
      <div class="buttons">
        <LiveButton
          id="tool"
          label="Let the model use your tool"
          coldSeconds={COLD_S}
          run={ask}
          done="Eight tries"
          onRecorded={undefined}
        />
      </div>
      {rows.length > 0 && <CallTable label="Calls of the model with your tool" rows={rows} />}
    </>
  );
}

/**
 * Tests rules (rewards, losses and tools as code): errors name the line, and a loss written as code has the gradients of the built-in one.
 */
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import { rowGradients } from '../../src/grpo/losses/rowGradients.ts';
import { Rule, RuleError, type RuleTry, toolOf } from '../../src/extensions/modules/rule.ts';
import type { ProgramKind, RuleKind } from '../../src/extensions/modules/rulePrograms.ts';
import { undo } from '@codemirror/commands';
import type { Transaction } from '@codemirror/state';
import { EditorView, type ViewUpdate } from '@codemirror/view';
import { effect, signal } from '@preact/signals';
import { codeState, replacement } from '../../demo/views/rules/codeMirror.ts';
import { applyOwn, applyRule } from '../../demo/actions/openRules.ts';
import type { Session } from '../../demo/engine/session.ts';
import { lossBy, type OpenRule, rewardBy, rulesOf } from '../../demo/training/ruleParts.ts';
import type { Run } from '../../demo/training/run.ts';
import { history } from '../../demo/state/page.ts';
import { asked, inForceSince, record, setLive, standing } from '../../demo/state/rules.ts';
import { enter, leave } from '../../demo/state/stage.ts';
import type { RunChange } from '../../demo/storage/runChanges.ts';
import { PRESETS } from '../../demo/views/rules/presets.ts';
import type { Rules } from '../../src/grpo/live.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { ScoredSample, Task } from '../../src/tasks/task.ts';
import { containing, stub } from '../stub.ts';
import { toolContext } from '../samples.ts';

const open: Rule<RuleKind>[] = [];
afterEach(() => open.splice(0).forEach((rule) => rule.close()));

async function opened<K extends RuleKind>(kind: K, code: string, timeMs?: number): Promise<Rule<K>> {
  const rule = await Rule.open(kind, code, timeMs);
  open.push(rule);
  return rule;
}

const tried: RuleTry = { answer: '12', text: '#### 12', messages: [], toolCalls: 2, tokens: 40, correct: true };

async function failureOf(code: string): Promise<RuleError> {
  const failing = (async () => (await opened('reward', code, 500)).run([tried]))();
  const error: unknown = await failing.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(RuleError);
  return error as RuleError;
}

test.each([
  ['export function reward() {\n  return 1 +;\n}', 2, 13, /^SyntaxError: unexpected token in expression: ';'/],
  ['export function reward() {\n  const a = 1;\n  return b(a);\n}', 3, 10, /^ReferenceError: 'b' is not defined/],
  ['const a = null;\na.x;', 2, 2, /^TypeError: cannot read property 'x' of null/],
  ['export const b = 1;', undefined, undefined, /^TypeError: there is no "export function reward"/],
  ['export const reward = () => "much";', undefined, undefined, /^TypeError: reward returned much\. Return a number/],
  ['export const reward = () => NaN;', undefined, undefined, /reward returned NaN\. Return a number/],
  ['export function reward() {\n  for (;;);\n}', undefined, undefined, /^it ran longer than 0\.5 s and was ended/],
  ['import "./other.js";', undefined, undefined, /a rule cannot import/],
  ['export const reward = () => fetch("https://example.test");', 1, undefined, /'fetch' is not defined/],
])('%j is refused at its line', async (code, line, column, message) => {
  const error = await failureOf(code);
  expect(error.message).toMatch(message);
  expect(error.line).toBe(line);
  if (column !== undefined) expect(error.column).toBe(column);
});

test('every preset loads and runs; 128 tries are scored together', async () => {
  const tries = Array.from({ length: 128 }, () => tried);
  const scores = await Promise.all(PRESETS.reward.map(async ({ code }) => (await opened('reward', code)).run(tries)));
  for (const given of scores) expect(given).toHaveLength(128);
  expect(scores.slice(1).map(([score]) => score)).toEqual([0.4, 0.4, expect.closeTo(0.2)]);
  const [own, offByOne] = await Promise.all(PRESETS.tool.map(async ({ code }) => toolOf(await opened('tool', code))));
  const answer = (tool: typeof own) => tool.execute({ expression: '(3+4)*5' }, toolContext());
  expect(await answer(own)).toBe('35');
  expect(await answer(offByOne)).toBe('36');
});

test('a tool can return any JSON value; other values are reported to the user', async () => {
  const code = `export const name = 'own', description = '', parameters = { type: 'object', properties: {} };
export const run = ({ result }) => eval(result);`;
  const tool = await toolOf(await opened('tool', code));
  const answer = async (result: string) => tool.execute({ result }, toolContext());
  const given = [];
  for (const result of ['42', '"42"', '({ a: [1] })', 'null']) given.push(await answer(result));
  expect(given).toEqual([42, '42', { a: [1] }, null]);
  for (const [result, found] of [
    ['undefined', 'undefined'],
    ['({ s: new Set([1]) })', 'an instance of Set under "s"'],
  ])
    await expect(answer(result)).rejects.toMatchObject({
      kind: 'tool returned',
      message: containing(`it returned ${found}.`),
    });
});

const config = resolveTrainConfig({
  name: 't',
  model: { path: 'm' },
  actor: { clipRatioLow: 0.2, clipRatioHigh: 0.28 },
});
const trainer = stub<GrpoTrainer>({ config });
const openRule = (kind: RuleKind, rule: Rule<RuleKind>): OpenRule => ({ kind, of: { name: 'mine', code: '' }, rule });

test('the clipped loss as code has the gradients of the built-in one, and a loss that returns grad is not differentiated', async () => {
  const ratios = [0.5, 0.79, 0.81, 1, 1.1, 1.27, 1.29, 2];
  const count = ratios.length * 2;
  const floats = (of: (e: number) => number) => Float32Array.from({ length: count }, (_, e) => of(e));
  const rows = {
    logProbs: floats((e) => -1 + Math.log(ratios[e % ratios.length])),
    oldLogProbs: floats(() => -1),
    advantages: floats((e) => (e < ratios.length ? 1.3 : -0.7)),
    weights: floats((e) => (e + 1) / 100),
    klWeights: floats(() => 0),
    entropy: floats(() => 1),
    seqStart: Uint32Array.of(0, count),
  };
  const wanted = rowGradients(policyLossSpec(config), rows).dLogProbs;
  const failures: unknown[] = [];
  const losses = await Promise.all(
    [
      PRESETS.loss[0].code,
      'export const loss = ({ advantage, ratio }) => ({ loss: 3, grad: -advantage * ratio });',
    ].map(async (code) =>
      lossBy(trainer, openRule('loss', stub<Rule<RuleKind>>(await opened('loss', code))), (error) =>
        failures.push(error),
      ),
    ),
  );
  const [clipped, given] = await Promise.all(losses.map((loss) => loss(rows)));
  expect(failures).toEqual([]);
  clipped.dLogProbs.forEach((grad, e) => expect(grad).toBeCloseTo(wanted[e], 7));
  expect(wanted.filter((grad) => grad === 0)).toHaveLength(4); // beyond the clip: 2, 1.29, 0.79, 0.5
  expect(given.loss).toBeCloseTo(3 * rows.weights.reduce((a, b) => a + b, 0), 5);
  given.dLogProbs.forEach((grad, e) =>
    expect(grad).toBeCloseTo(-rows.weights[e] * rows.advantages[e] * ratios[e % ratios.length], 5),
  );
});

test.each([
  ['({ logProb, entropy }) => -logProb * entropy', [-2, -3], [0.5, 0.25]],
  ['({ advantage, logProb }) => -advantage * logProb', [-1, -1], [0, 0]],
  ['({ ...token }) => token.entropy ** 2', [0, 0], [4, 6]],
  ['() => ({ loss: 1, grad: 2 })', [2, 2], [0, 0]],
  ['({ entropy }) => ({ loss: 1, grad: 2, entropyGrad: -entropy })', [2, 2], [-2, -3]],
])('the loss %s has its derivative by the entropy', async (code, dLogProbs, dEntropy) => {
  const tokens = (...values: number[]) => Float32Array.from(values);
  const rows = {
    ...{ logProbs: tokens(-0.5, -0.25), oldLogProbs: tokens(-1, -1), advantages: tokens(1, 1) },
    ...{ weights: tokens(1, 0.5), klWeights: tokens(0, 0), entropy: tokens(2, 3), seqStart: Uint32Array.of(0, 2) },
  };
  const rule = stub<Rule<RuleKind>>(await opened('loss', `export const loss = ${code};`));
  const given = await lossBy(trainer, openRule('loss', rule), (error) => expect.fail(String(error)))(rows);
  [1, 0.5].forEach((weight, e) => {
    expect(given.dLogProbs[e]).toBeCloseTo(weight * dLogProbs[e], 7);
    expect(given.dEntropy?.[e]).toBeCloseTo(weight * dEntropy[e], 7);
  });
});

test.each([
  [{ algorithm: { advEstimator: 'gdpo' } } as const, 'algorithm.advEstimator is "gdpo"'],
  [{ reward: { weights: { format: 0.5 } } }, 'reward.weights is set'],
])('a reward cannot be replaced where it would not count: %o', async (part, reason) => {
  const config = resolveTrainConfig({ name: 'x', model: { path: 'x' }, ...part });
  const rule = openRule('reward', await opened('reward', 'export const reward = () => 1;'));
  const task = stub<Task>({ reward: () => ({ score: 1, acc: 1 }) });
  const rulesOfKinds = (...rules: OpenRule[]) =>
    rulesOf(stub<GrpoTrainer>({ config }), task, new Map(rules.map((of) => [of.kind, of])), () => {});
  expect(() => rulesOfKinds(rule)).toThrow(`The reward cannot be replaced, because ${reason}:`);
  expect(rulesOfKinds().reward).toBeUndefined();
});

test("a reward that fails in a step leaves unscored samples without a reward; the task's own verdict stays", async () => {
  const task = stub<Task>({ reward: () => ({ score: 1, acc: 1, weights: { a: 1 }, turns: [1] }) });
  const code =
    'let n = 0;\nexport function reward({ tokens }) {\n  if (tokens === 3) throw new Error("three");\n  return tokens;\n}';
  const rule = openRule('reward', await opened('reward', code));
  const failures: unknown[] = [];
  const reward = rewardBy(task, rule, (error) => {
    rule.failed = true;
    failures.push(error);
  });
  const sample = (responseTokens: number) =>
    stub<ScoredSample>({ problem: { answer: '1' }, messages: [], responseTokens });
  expect(await reward(sample(2))).toEqual({ score: 2, acc: 1 });
  expect(await Promise.all([reward(sample(3)), reward(sample(4))])).toEqual([
    { score: NaN, acc: 1 },
    { score: NaN, acc: 1 },
  ]);
  expect(failures).toHaveLength(1);
  expect((failures[0] as RuleError).line).toBe(3);
});

test('a reward that fails in a step is replaced by the reward before it, and both changes are recorded', async () => {
  onTestFinished(() => void vi.restoreAllMocks());
  let fails = false;
  vi.spyOn(Rule, 'open').mockImplementation((_, code) => {
    const run = () => (fails && code === 'new' ? Promise.reject(new Error('three')) : Promise.resolve([code.length]));
    return Promise.resolve(stub<Rule<ProgramKind>>({ run, close: () => {} }));
  });
  let given: Rules = {};
  const replace = (rules: Rules) => void (given = rules);
  enter({ name: 'running', progress: 'running', run: stub<Run>({}) });
  const task = { reward: () => ({ score: 0, acc: 1 }) };
  setLive(stub<GrpoTrainer>({ config, state: { step: 4 }, change: () => {}, replace }), stub<Session>({ task }));
  for (const code of ['before', 'new']) await applyRule('reward', { name: code, code });
  const sample = stub<ScoredSample>({ problem: { answer: '1' }, messages: [] });
  const score = async () => (await given.reward?.(sample))?.score;
  expect(await score()).toBe(3);
  fails = true;
  expect([await score(), await score(), asked.value.reward?.name]).toEqual([NaN, 6, 'before']);
  const after = { step: 6, rule: 'reward', name: 'before', code: 'before' };
  expect(record.value).toEqual([{ step: 5, failed: 'reward' }, after]);
  enter({ name: 'looking', at: 'ended' });
  leave();
  await applyOwn('reward');
  [record.value, standing.value] = [[], {}];
});

test('a rule is in force since its newest change up to the step in progress, and not before its first', () => {
  const rule = (step: number, name: string, code?: string): RunChange => ({
    step,
    rule: 'reward',
    name,
    ...(code && { code }),
  });
  const since = (name: string, done: number) => {
    asked.value = { reward: { name, code: name } };
    history.value = Array.from({ length: done }, (_, i) => ({ 'training/global_step': i + 1 }));
    return inForceSince('reward');
  };
  record.value = [rule(5, 'a', 'a'), rule(20, 'own')]; // a repeated run has the changes of steps to come
  expect([since('a', 3), since('a', 4), since('a', 18), since('a', 19)]).toEqual([undefined, 5, 5, undefined]);
  record.value = [rule(5, 'a', 'a')]; // "b" was applied while the run was paused after step 8
  expect([since('b', 8), since('a', 8)]).toEqual([undefined, 5]);
  [record.value, asked.value, history.value] = [[], {}, []];
});

test("the editor reports typing and undo, but not the page's own changes, so a late effect changes nothing", () => {
  const code = signal('a');
  const late: (() => void)[] = [];
  let state = codeState({ label: 'Code', code: code.value, onChange: (to) => void (code.value = to) });
  /** Applies a transaction as CodeMirror's view does, but without a DOM. */
  const dispatch = (transaction: Transaction) => {
    state = transaction.state;
    const update = stub<ViewUpdate>({ transactions: [transaction], state, docChanged: transaction.docChanged });
    for (const hear of state.facet(EditorView.updateListener)) hear(update);
  };
  const setCode = (to: string) => dispatch(state.update(replacement(state, to)));
  const dispose = effect(() => {
    void code.value;
    late.push(() => setCode(code.value));
  });
  const flush = () => late.splice(0).forEach((run) => run());
  const type = (text: string) =>
    dispatch(
      state.update({ changes: { from: state.doc.length, insert: text }, selection: { anchor: state.doc.length + 1 } }),
    );

  for (const letter of 'bcd') type(letter); // the effects of all three have not run yet
  flush();
  flush();
  expect([state.doc.toString(), code.value, state.selection.main.head]).toEqual(['abcd', 'abcd', 4]);

  setCode('ab');
  expect([state.doc.toString(), code.value]).toEqual(['ab', 'abcd']);
  code.value = 'preset';
  flush();
  expect([state.doc.toString(), code.value]).toEqual(['preset', 'preset']);
  undo({ state, dispatch });
  expect([state.doc.toString(), code.value]).toEqual(['ab', 'ab']);
  dispose();
});

/** Tests the page's sentences about a group of tries, and the numbers and positions of tokens in its inspector. */

import type { VNode } from 'preact';
import { expect, onTestFinished, test, vi } from 'vitest';
import { bet } from '../../demo/state/bet.ts';
import { shownStep, tries } from '../../demo/state/page.ts';
import { present, showHistory } from '../../demo/state/present.ts';
import { changes } from '../../demo/state/rules.ts';
import { replay } from '../../demo/state/runs.ts';
import { comparison, comparisonOf, keepAnswers } from '../../demo/state/tries/comparison.ts';
import { showTry } from '../../demo/state/tries/growing.ts';
import { isHeld, looked, pickGroup, pickedGroup, shownTries } from '../../demo/state/tries/shown.ts';
import { drawCard } from '../../demo/views/result/card.ts';
import { Columns } from '../../demo/views/tries/columns.tsx';
import { bestFirst, groupsOf, mostTelling, whatItTeaches } from '../../demo/views/tries/groups.ts';
import {
  endOf,
  places,
  type TokenView,
  tokenViews,
  updateOfGroup,
  valueText,
} from '../../demo/views/inspector/measures.ts';
import type { TryTokens } from '../../demo/training/tokens.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { stub } from '../stub.ts';

const tryOf = (group: number, score: number | null, acc: number | null, advantage: number | null): LoggedRollout => ({
  step: 3,
  group,
  problem: `p${group}`,
  answer: '4',
  messages: [],
  promptMessages: 0,
  score,
  acc,
  advantage,
  stopReason: 'completed',
  numTurns: 1,
  numToolCalls: 0,
  responseTokens: 5,
});
const sentenceOf = (...tries: LoggedRollout[]) => whatItTeaches(groupsOf(tries)[0], tries.length, true);

test("a group's text says what it teaches, or why nothing", () => {
  expect(sentenceOf(tryOf(0, 1, 1, 0), tryOf(0, 1, 1, 0), tryOf(0, 1, 1, 0))).toBe(
    'All 3 tries earned 1.00. GRPO compares the tries at a problem: equal rewards make none more likely, so the update skips them.',
  );
  expect(sentenceOf(tryOf(0, 1, 1, 1.5), tryOf(0, 0, 0, -0.5), tryOf(0, 0, 0, -0.5), tryOf(0, 0, 0, -0.5))).toBe(
    'GRPO: 1 of 4 tries are correct. The update makes these more likely (advantage +1.50) and the others less likely (\u22120.50).',
  );
  expect(sentenceOf(tryOf(0, 0.2, 0, 0.7), tryOf(0, 0.1, 0, -0.7))).toBe(
    'Rewards range from 0.10 to 0.20: 1 more likely after the update (up to +0.70), 1 less likely (up to \u22120.70).',
  );
  expect(sentenceOf(tryOf(0, 1, 1, 0), tryOf(0, 0, 0, 0))).toContain('all advantages are 0');
  expect(sentenceOf(tryOf(0, null, null, 0))).toContain('No try has a reward');
});

test('if only some tries of a group were logged, the text says so and counts these', () => {
  const said = (...tries: LoggedRollout[]) => whatItTeaches(groupsOf(tries)[0], 16, false);
  expect(said(tryOf(0, 1, 1, 1.5), tryOf(0, 0, 0, -0.5), tryOf(0, 0, 0, -0.5))).toBe(
    '3 of 16 tries were logged. GRPO: 1 of 3 logged tries are correct. The update makes these more likely (advantage +1.50) and the others less likely (\u22120.50).',
  );
  expect(said(tryOf(0, 1, 1, 0))).toMatch(/^1 of 16 tries were logged\. The only logged try earned 1\.00\./);
  expect(said(tryOf(0, null, null, 0))).toBe('1 of 16 tries were logged. No logged try has a reward.');
});

test('columns of more tries than are drawn: mean and scale are those of all, and a try without a reward has no column', () => {
  const tries = [null, ...Array<number>(15).fill(1), 0, 0, 0].map((score) => tryOf(0, score, score, 0));
  const figure: VNode<{ 'aria-label'?: string; children?: unknown }> = Columns({ group: { group: 0, tries } });
  expect(figure.props['aria-label']).toBe(`Rewards none, ${'1.00, '.repeat(14)}1.00 and 3 more; mean 0.83`);
  const [columns] = figure.props.children as [VNode<{ children: [VNode | false] }>[]];
  expect(columns.map(({ props }) => props.children[0] !== false)).toEqual([false, ...Array<boolean>(15).fill(true)]);
});

test('tries without advantages: the text says what they wait for, and nothing that will not come', () => {
  const two = [tryOf(0, 1, 1, null), tryOf(0, 0, 0, null)];
  const said = (tries: LoggedRollout[], of: number, trains: boolean) => whatItTeaches(groupsOf(tries)[0], of, trains);
  expect(said(two, 8, true)).toBe('Scoring: 2 of 8 tries.');
  expect(said(two, 2, true)).toBe('All 2 tries are scored. Their advantages are shown when the step ends.');
  expect(said(two, 8, false)).toBe('The run was stopped before these tries were compared.');
  const untrained = two.map((one) => ({ ...one, step: 0 }));
  expect(said(untrained, 8, false)).toBe('Scoring: 2 of 8 tries.');
  expect(said(untrained, 2, false)).toMatch(/^2 tries of the untrained model\. A run compares/);
});

test("another run's results replace all that belonged to the run before: its replay line, held problem, inspector and changes", () => {
  vi.stubGlobal('cancelAnimationFrame', () => {});
  const [before, after] = [[tryOf(0, 1, 1, 1), tryOf(1, 0, 0, -1)], [tryOf(0, 0, 0, 0)]];
  present({ id: 'before', tries: before, changes: [{ step: 2, key: 'actor.optim.lr', from: 3e-4, to: 1e-4 }] });
  pickGroup(1);
  looked.value = before[1];
  shownStep.value = 3;
  replay.value = { from: 1, to: 3, steps: [{ step: 3, differing: [] }], hasRules: false };
  bet.value = { name: 'reward guessing', guess: 'down' };
  for (const [step, acc] of [
    [0, 0],
    [3, 1],
  ]) {
    const problem = { id: 'p', answer: '3', messages: [{ role: 'user' as const, content: 'What is 1 + 2?' }] };
    const answer = {
      group: 0,
      problem,
      trajectory: { responseIds: new Uint32Array() },
      messages: [],
      reward: { score: acc, acc },
    };
    keepAnswers([stub<Sample>(answer)], step);
  }
  const state = () => ({
    ...{ replay: replay.value, looked: looked.value, picked: pickedGroup.value, held: isHeld.value, bet: bet.value },
    ...{ step: shownStep.value, changes: changes.value, answers: comparison.value },
  });
  expect(Object.values(state()).filter((value) => !value || (Array.isArray(value) && value.length === 0))).toEqual([]);
  present({ id: 'after', tries: after });
  const none = { replay: undefined, looked: undefined, picked: undefined, held: false, bet: undefined };
  expect(state()).toEqual({ ...none, step: undefined, changes: [], answers: undefined });
  expect(shownTries.value).toEqual(after);
});

test('tries of a step that begins again, after its engine was lost, replace those of its first beginning', () => {
  let frame = () => {};
  vi.stubGlobal('cancelAnimationFrame', () => (frame = () => {}));
  vi.stubGlobal('requestAnimationFrame', (draw: () => void) => ((frame = draw), 1));
  const show = (group: number) =>
    showTry(
      stub<Sample>({
        group,
        problem: { messages: [] },
        messages: [],
        trajectory: { responseIds: new Uint32Array() },
        reward: {},
      }),
      3,
    );
  show(0);
  frame();
  show(1);
  showHistory([], undefined);
  show(0);
  frame();
  expect(tries.value.map(({ group }) => group)).toEqual([0]);
  present();
  vi.unstubAllGlobals();
});

/** Returns a drawing context with the letter widths of a wide font, such as DejaVu Sans, and the texts that were drawn with it. */
function widePen() {
  const written: { text: string; right: number; y: number }[] = [];
  const nothing = () => {};
  const pen = {
    font: '',
    measureText: (text: string) => ({ width: 0.7 * text.length * Number(/(\S+)px/.exec(pen.font)?.[1]) }),
    fillText: (text: string, x: number, y: number) =>
      void written.push({ text, right: x + pen.measureText(text).width, y }),
    ...{ fillRect: nothing, beginPath: nothing, moveTo: nothing, lineTo: nothing, stroke: nothing },
    ...{ roundRect: nothing, fill: nothing },
  };
  return { canvas: { getContext: () => pen } as unknown as HTMLCanvasElement, written };
}

test('the numbers of a result card end before its chart, and its answers inside their boxes, in any font', () => {
  onTestFinished(() => void vi.unstubAllGlobals());
  vi.stubGlobal('document', {});
  vi.stubGlobal('getComputedStyle', () => ({ getPropertyValue: () => 'x' }));
  const rewards = [1, 2].map((step) => ({ step, value: 0.5 }));
  const content = { title: 'grpo on sums', changed: '', caption: '', facts: [], rewards, comparison: undefined };
  for (const numbers of [['0.31', '0.84'], ['0.84'], ['0.00', '1.00']]) {
    const { canvas, written } = widePen();
    drawCard(canvas, { ...content, numbers });
    for (const number of numbers) expect(written.find(({ text }) => text === number)!.right, number).toBeLessThan(680);
  }
  for (const text of ['#### 28', 'calculator(56/2) = 28 #### 28', 'Each gets 28. '.repeat(40), 'x'.repeat(300)]) {
    const { canvas, written } = widePen();
    const [before, after] = [0, 9].map((step) => ({ step, right: step > 0, text }));
    drawCard(canvas, { ...content, numbers: ['0.31'], comparison: { number: 2, problem: 'Halve 56.', before, after } });
    const answers = written.filter(({ y }) => y > 410);
    expect(answers.length, text).toBeGreaterThan(3);
    for (const { right, y } of answers) expect([right < 1144, y < 598], text).toEqual([true, true]);
  }
});

test('a comparison has one held-out problem: the first that one model solved and the other did not', () => {
  const said = (step: number, group: number, acc: number): LoggedRollout => ({
    ...tryOf(group, acc, acc, null),
    step,
    promptMessages: 2,
    messages: [
      { role: 'system', content: 'Calculate.' },
      { role: 'user', content: `What is ${group} + 2?` },
      { role: 'assistant', content: '<tool_call>{"name":"calculator","arguments":{"expression":"1+2"}}</tool_call>' },
      { role: 'tool', content: '3' },
      { role: 'assistant', content: `${acc}` },
    ],
  });
  const [before, after] = [
    [said(0, 0, 0), said(0, 1, 0), said(0, 1, 1), said(0, 2, 1)],
    [said(9, 0, 0), said(9, 1, 1), said(9, 2, 0)],
  ];
  expect(comparisonOf(before, after)).toEqual({
    number: 2,
    problem: 'What is 1 + 2?',
    before: { step: 0, right: false, text: 'calculator(1+2) = 3 0' },
    after: { step: 9, right: true, text: 'calculator(1+2) = 3 1' },
  });
  expect(comparisonOf(before, [said(9, 0, 0)])?.number, 'no verdict differs').toBe(1);
  expect(comparisonOf(before, [{ ...said(9, 0, 1), problem: 'another' }])).toBeUndefined();
  expect(comparisonOf([], after)).toBeUndefined();
});

test('tries that the task does not judge are neither right nor wrong', () => {
  const both = sentenceOf(tryOf(0, 1, 1, 1), tryOf(0, 0, null, -1));
  expect(both).toBe(
    'Rewards range from 0.00 to 1.00: 1 more likely after the update (up to +1.00), 1 less likely (up to \u22121.00).',
  );
  const answers = [0, 1].map((group) => ({ ...tryOf(group, 1, group === 0 ? null : 1, null), problem: 'p' }));
  expect(comparisonOf(answers, answers)?.number).toBe(2);
  expect(comparisonOf(answers.slice(0, 1), answers)).toBeUndefined();
});

test('groups are in order, the one with the widest rewards is chosen, and a try without a reward is last', () => {
  const groups = groupsOf([tryOf(1, 1, 1, 1), tryOf(0, 0.5, 0, 0), tryOf(1, null, null, 0), tryOf(1, 0, 0, -1)]);
  expect(groups.map(({ group, tries }) => [group, tries.length])).toEqual([
    [0, 1],
    [1, 3],
  ]);
  expect(mostTelling(groups).group).toBe(1);
  expect(bestFirst(groups[1]).map(({ score }) => score)).toEqual([1, 0, null]);
});

const array = (...values: number[]) => [Float64Array.from(values)];

/** Three tokens: a sampled one whose ratio is clipped, one of a tool, and one that the update skipped. */
const tokens = (advantage: number) =>
  stub<TryTokens>({
    s: 0,
    sample: {
      group: 4,
      trajectory: {
        responseIds: Uint32Array.of(7, 8, 9),
        mask: Uint8Array.of(1, 0, 1),
        logProbs: Float32Array.of(Math.log(0.25), 0, Math.log(0.001)),
        weightVersions: Uint32Array.of(2, 0, 2),
      },
    },
    step: {
      samples: [{ group: 4 }],
      engine: { tokenizer: { decode: ([id]: number[]) => `t${id}` } },
      advantages: array(advantage, 0, advantage),
      numbers: {
        trained: array(1, 0, 0),
        ratio: array(1.5, 0, 0),
        entropy: array(0.7, 0, 0),
        clipped: array(1, 0, 0),
        grad: array(-0.02, 0, 0),
        advantage: array(advantage, 0, 0),
      },
    },
  });

test('a token has the numbers of its position; unknown ones are omitted', () => {
  const [clipped, said, skipped] = tokenViews(tokens(1.2));
  expect(clipped).toMatchObject({
    id: 7,
    text: 't7',
    drawn: true,
    trained: true,
    advantage: 1.2,
    ratio: 1.5,
    entropy: 0.7,
  });
  expect(clipped).toMatchObject({ clip: 1, gradient: 0.02, version: 2 });
  expect(clipped.probability).toBeCloseTo(0.25, 6);
  expect(said).toEqual({ id: 8, text: 't8', drawn: false, trained: false });
  expect(Object.keys(skipped)).toEqual(['id', 'text', 'drawn', 'trained', 'probability', 'advantage', 'version']);
  expect(valueText('clip', clipped)).toBe('clipped, rising');
  expect(valueText('clip', tokenViews(tokens(-1.2))[0])).toBe('clipped, falling');
  expect(valueText('ratio', skipped)).toBe('not known');
  expect(valueText('ratio', said)).toBe('not written by the model');
});

test("the group's text says how much was clipped, or that it was skipped", () => {
  const one = tokens(1.2);
  expect(updateOfGroup(one)).toBe('The update used 1 token of this group, 1 of them clipped.');
  one.step.numbers!.trained[0].fill(0);
  expect(updateOfGroup(one)).toContain('skipped');
});

test('positions on a scale are signed, within its ends, and undefined without a value', () => {
  const views = tokenViews(tokens(-1.2));
  expect(places('advantage', views)).toEqual([-1, undefined, -1]);
  expect(places('clip', views)).toEqual([-1, undefined, undefined]);
  const [likely, , unlikely] = places('probability', views);
  expect(likely).toBeCloseTo(Math.log(0.25) / Math.log(0.01), 5);
  expect(unlikely).toBe(1);
  const ratios = [{ ratio: 1 / 3 }, { ratio: 1 }, { ratio: 3 }] as TokenView[];
  expect(endOf('ratio', ratios)).toBeCloseTo(3, 10);
  expect(places('ratio', ratios).map((place) => Math.round(place! * 1e6) / 1e6)).toEqual([-1, 0, 1]);
});

/**
 * Data of lesson 1, the numbers in its text, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML.
 */

import { mean, std } from '../../../src/grpo/advantages/index.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { rowsPlot, silencePlot, silentShare } from '../kit/plot.ts';
import { advantagesBy, type Method, METHODS, type Recorded } from '../kit/recordings.ts';
import data from './recorded.json' with { type: 'json' };

export const RECORDED = data as unknown as Recorded;

/** Steps of the recorded run that figure 1.2 names. */
export const NAMED_STEPS = [1, 10, 20, 40, 80];

export const METHOD_NAMES = Object.keys(METHODS) as Method[];

const rewardsOf = (group: number): number[] => RECORDED.groups[group].tries.map(({ score }) => score ?? NaN);
const [groupA, groupB] = [rewardsOf(0), rewardsOf(1)];
const stepOf = (step: number) => RECORDED.run.steps.find(([number]) => number === step)!;
const pushOf = (rewards: number[]) => advantagesBy('grpo', rewards)[rewards.indexOf(1)];

/** Numbers in the lesson's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  'right-a': `${groupA.filter((r) => r === 1).length}`,
  'right-b': `${groupB.filter((r) => r === 1).length}`,
  'mean-b': mean(groupB).toFixed(3),
  'spread-b': std(groupB).toFixed(3),
  'push-a': pushOf(groupA).toFixed(3),
  'push-b': pushOf(groupB).toFixed(3),
  'push-wrong-b': Math.abs(advantagesBy('grpo', groupB)[1]).toFixed(3),
  'times-harder': (pushOf(groupB) / pushOf(groupA)).toFixed(1),
  'rate-1': stepOf(1)[1].toFixed(2),
  'rate-20': stepOf(20)[1].toFixed(2),
  'silent-1': percent(stepOf(1)[2]),
  'silent-20': percent(stepOf(20)[2]),
  'silent-80': percent(stepOf(80)[2]),
  'alike-1': percent(silentShare(stepOf(1)[1], 8)),
  'alike-20': percent(silentShare(stepOf(20)[1], 8)),
  'silent-2': percent(silentShare(stepOf(1)[1], 2)),
};

/** Formats a share as a percentage. */
export function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/** Returns the rows of figure 1.3. */
export const methodRows = (rewards: readonly number[], tokens: readonly number[] = []) =>
  METHOD_NAMES.map((method) => ({ name: METHODS[method].name, values: advantagesBy(method, rewards, tokens) }));

/** Describes rows for a screen reader: the advantage of each try, by method. */
export const rowsInWords = (rows: readonly { name: string; values: readonly number[] }[]): string =>
  rows.map(({ name, values }) => `${name} ${values.map(signed).join(', ')}`).join('; ');

function groupTable(group: number): string {
  const rewards = rewardsOf(group);
  const advantages = advantagesBy('grpo', rewards);
  const said = RECORDED.groups[group].tries.map(({ numToolCalls, messages }) =>
    `${numToolCalls === 0 ? '' : `${numToolCalls} calculator calls, then `}${messages.at(-1)?.content ?? ''}`.replaceAll(
      '<',
      '&lt;',
    ),
  );
  const rows = rewards.map(
    (reward, i) => `<tr><td>${said[i]}</td><td>${short(reward)}</td><td>${signed(advantages[i])}</td></tr>`,
  );
  const question = RECORDED.groups[group].prompt.at(-1)?.content ?? '';
  return `<table><caption>${question}</caption><thead><tr><th>try</th><th>reward</th><th>advantage</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
}

const at = { p: stepOf(1)[1], n: 8 };
const rows = methodRows(groupB);

/** Pictures by the number of their figure, as HTML. */
export const STILLS: Readonly<Record<string, string>> = {
  '1.1': `${groupTable(0)}${groupTable(1)}`,
  '1.2': silencePlot(
    at,
    RECORDED.run.steps,
    NAMED_STEPS,
    `Chance that a group of 8 is silent over the share of right tries. ${NAMED_STEPS.map((step) => `Step ${step} of the recorded run: ${short(stepOf(step)[1])} right, ${percent(stepOf(step)[2])} silent`).join('. ')}.`,
  ),
  '1.3': rowsPlot(rows, `Advantages of one right try of eight. ${rowsInWords(rows)}.`),
};

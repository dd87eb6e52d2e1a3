/**
 * Data of lesson 2, the numbers in its text, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML.
 */

import { computeAdvantages } from '../../../src/grpo/advantages/index.ts';
import type { LossAggMode } from '../../../src/grpo/losses/index.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { rowsPlot } from '../kit/plot.ts';
import { type LossOnTokens, type LossRow, pullShares, tokenGradients } from './losses.ts';
import { DRAWN, drawnCurve, PUBLISHED, pullPlot, ratiosOf } from './plots.ts';
import data from './recorded.json' with { type: 'json' };
import type { TokenGroup } from './updates.ts';

interface Recorded {
  command: string;
  commit: string;
  adapter: string;
  date: string;
  /** Learning rate of the recorded updates. */
  rate: number;
  /** Numbers of updates after which log-probs were recorded. */
  updates: number[];
  /** Command and commit of the page's recorded run, and two metrics of its step 1. */
  run: { command: string; commit: string; pgLoss: number; reward: number };
  groups: TokenGroup[];
}

export const RECORDED = data as Recorded;

/** Losses of figure 2.2. */
export const COLUMNS = ['grpo', 'dapo', 'cispo', 'sapo', 'gspo'];
export const COLUMN_NAMES: Readonly<Record<string, string>> = {
  grpo: 'GRPO',
  dapo: 'DAPO',
  cispo: 'CISPO',
  sapo: 'SAPO',
  gspo: 'GSPO',
};

/** data.maxResponseLength of the recipe. */
export const MAX_LENGTH = 160;

/** Aggregations of figure 2.3. */
export const MODES: readonly LossAggMode[] = [
  'token-mean',
  'seq-mean-token-mean',
  'seq-mean-token-sum',
  'seq-mean-token-sum-norm',
];

/** Formats a share as a percentage without decimals. */
export const percent = (share: number): string => `${Math.round(100 * share)}%`;

/** Returns GRPO's advantage of each try of a group. */
export function advantagesOf(rewards: readonly number[]): number[] {
  const groups = rewards.map(() => 0);
  const masks = rewards.map(() => [1]);
  return computeAdvantages('grpo', { rewards, groups, masks }).map(([first]) => first);
}

/** Returns the tries of all groups as rows of a loss, with their log-probs after `u` of `RECORDED.updates`. */
export function rowsAfter(groups: readonly TokenGroup[], u: number): { rows: LossRow[]; logProbs: number[][] } {
  const rows = groups.flatMap(({ tries }) => {
    const advantages = advantagesOf(tries.map(({ reward }) => reward));
    return tries.map(({ mask, logProbs }, i) => ({ mask, logProbs: logProbs[0], advantage: advantages[i] }));
  });
  return { rows, logProbs: groups.flatMap(({ tries }) => tries.map(({ logProbs }) => logProbs[u])) };
}

/** Returns the pulls of the five losses on all tokens after `u` of `RECORDED.updates`. */
export function pullsAfter(groups: readonly TokenGroup[], u: number): LossOnTokens[] {
  const { rows, logProbs } = rowsAfter(groups, u);
  return tokenGradients(rows, COLUMNS, { logProbs, maxResponseLength: MAX_LENGTH });
}

const trainedCount = ({ mask }: { mask: number[] }): number => mask.filter((m) => m === 1).length;

/** Trained tokens of a right and a wrong try of group A. */
export const [RIGHT_LENGTH, WRONG_LENGTH] = [1, 0].map((reward) =>
  trainedCount(RECORDED.groups[0].tries.find((one) => one.reward === reward)!),
);

const rightA = RECORDED.groups[0].tries[0];
/** Index of the token of `rightA` whose probability the updates moved against the token's pull. */
export const STRAY = 4;
const ratio = (one: { logProbs: number[][] }, u: number, t: number) =>
  Math.exp(one.logProbs[u][t] - one.logProbs[0][t]);
const [fresh, last] = [pullsAfter(RECORDED.groups, 0), pullsAfter(RECORDED.groups, RECORDED.updates.length - 1)];
const [once] = [pullsAfter(RECORDED.groups, 1)];
const of = (losses: readonly LossOnTokens[], name: string) => losses.find((one) => one.name === name)!;
const groupA = [...Array<number>(4).fill(RIGHT_LENGTH), ...Array<number>(4).fill(WRONG_LENGTH)];
const pushA = advantagesOf([1, 1, 1, 1, 0, 0, 0, 0]);
const sharesBy = (mode: LossAggMode) => pullShares(mode, groupA, pushA, MAX_LENGTH);
const rightShare = (mode: LossAggMode) => sharesBy(mode).reduce((sum, share) => sum + Math.max(0, share), 0);

/** Numbers in the lesson's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  tokens: `${RECORDED.groups.flatMap(({ tries }) => tries.map(trainedCount)).reduce((a, b) => a + b)}`,
  'first-1': ratio(rightA, 1, 0).toFixed(2),
  'first-8': ratio(rightA, 4, 0).toFixed(2),
  'stray-1': ratio(rightA, 1, STRAY).toFixed(2),
  'stray-4': ratio(rightA, 3, STRAY).toFixed(2),
  'held-1': percent(of(once, 'grpo').heldShare),
  'held-8': percent(of(last, 'grpo').heldShare),
  'held-gspo-1': percent(of(once, 'gspo').heldShare),
  'held-gspo-8': percent(of(last, 'gspo').heldShare),
  'right-seq': percent(of(fresh, 'grpo').rightShare),
  'right-token': percent(of(fresh, 'dapo').rightShare),
  'length-right': `${RIGHT_LENGTH}`,
  'length-wrong': `${WRONG_LENGTH}`,
  'share-token': percent(rightShare('token-mean')),
  'share-seq': percent(rightShare('seq-mean-token-mean')),
  'pg-loss': RECORDED.run.pgLoss.toFixed(3),
};

const FIGURE_RATIOS = [0.5, 1, 1.3, 2, 5];

function pullTable(): string {
  const rows = [1, -1].flatMap((advantage) =>
    DRAWN.map(({ id, name }) => {
      const { pull, held } = drawnCurve(id, FIGURE_RATIOS, { ...PUBLISHED, advantage });
      const cells = FIGURE_RATIOS.map((_, i) => `<td>${held[i] ? 'held' : signed(pull[i])}</td>`);
      return `<tr><td>${name}, advantage ${signed(advantage)}</td>${cells.join('')}</tr>`;
    }),
  );
  return `<table><caption>Pull at five ratios</caption><thead><tr><th>loss</th>${FIGURE_RATIOS.map((at) => `<th>${at}</th>`).join('')}</tr></thead><tbody>${rows.join('')}</tbody></table>`;
}

/** Formats a share. NaN means that the loss pulls no token. */
export const shareText = (share: number): string => (Number.isNaN(share) ? 'no pull' : percent(share));

function updatesTable(): string {
  const rows = COLUMNS.flatMap((name) =>
    [0, 1, 4].map((u) => {
      const { heldShare, rightShare: right, effectiveShare } = of(pullsAfter(RECORDED.groups, u), name);
      return `<tr><td>${COLUMN_NAMES[name]}</td><td>${RECORDED.updates[u]}</td><td>${percent(heldShare)}</td><td>${shareText(right)}</td><td>${shareText(effectiveShare)}</td></tr>`;
    }),
  );
  return `<table><caption>${NUMBERS['tokens']} tokens of two groups</caption><thead><tr><th>method</th><th>updates</th><th>held</th><th>pull on right tries</th><th>effective share</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
}

/** Returns the rows of figure 2.3, in percent of the pull. */
export const modeRows = (lengths: readonly number[], advantages: readonly number[]) =>
  MODES.map((mode) => ({
    name: MODE_NAMES[mode]!,
    values: pullShares(mode, lengths, advantages, MAX_LENGTH).map((share) => 100 * share),
  }));

const MODE_NAMES: Readonly<Partial<Record<LossAggMode, string>>> = {
  'token-mean': 'token-mean',
  'seq-mean-token-mean': 'seq mean',
  'seq-mean-token-sum': 'seq sum',
  'seq-mean-token-sum-norm': 'seq sum norm',
};

const ratios = ratiosOf('wide');
const drawn = DRAWN.map((one) => ({ ...one, curve: drawnCurve(one.id, ratios, PUBLISHED) }));
const modes = modeRows(groupA, pushA);

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '2.1': `${pullPlot(drawn, 'wide', { advantage: 1, ratio: 1 }, 'Pull of seven losses over the ratio, at advantage +1. The table below has the numbers.')}${pullTable()}`,
  '2.2': updatesTable(),
  '2.3': rowsPlot(
    modes,
    `Share of the pull of four right tries of ${RIGHT_LENGTH} tokens and four wrong ones of ${WRONG_LENGTH}. ${modes.map(({ name, values }) => `${name}: ${short(values[0])}% for a right try, ${short(values[4])}% for a wrong one`).join('; ')}.`,
  ),
};

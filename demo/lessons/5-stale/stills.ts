/** Data of lesson 5, its numbers, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML. */

import { mean } from '../../../src/grpo/advantages/index.ts';
import { duration, short } from '../../../src/ui/format.ts';
import { bandOver, last, RECORDED as UNDELAYED, runsOf, STEPS } from '../3-run/stills.ts';
import { attribute, curvesPlot, type NamedCurve } from '../kit/plot.ts';
import type { LogProbs } from '../kit/runLoop.ts';
import { agesPlot, timesPlot, weightsPlot } from './plots.ts';
import data from './recorded.json' with { type: 'json' };
import type { Setting, timesOf, Work } from './times.ts';
import { corrected, type Level } from './weights.ts';

/** Measures of a step of the loop. */
export type Measure = 'reward' | 'clipped' | 'low' | 'high' | 'share';

/** A recorded run of the loop, values by step. */
interface DelayedRun extends Record<Measure, number[]> {
  delay: number;
  loss: string;
  seed: number;
}

/** Tokens that one author wrote under one version of the weights: text, age in steps or -1 for a tool or the template, number of tokens. */
type Piece = [text: string, age: number, tokens: number];

/** Content of recorded.json, which scripts/record-stale.mjs writes. */
interface Recorded {
  command: string;
  commit: string;
  adapter: string;
  date: string;
  pipelineCommand: string;
  work: Work;
  /** Seconds of a step by pipeline as measured, and as simulated with the same setting. */
  measured: number[];
  setting: Setting;
  times: ReturnType<typeof timesOf>;
  /** Trained tokens by age for each step, and one try per group of the last but one step. */
  pipelines: { name: string; ages: number[][]; tries: Piece[][] }[];
  /** Tokens of the last batch of the runs with grpo and seed 1. */
  tokens: ({ delay: number; step: number } & LogProbs)[];
  runs: DelayedRun[];
}

export const RECORDED = data as unknown as Recorded;
const { command, commit, adapter, date } = RECORDED;
export const SOURCE = `Recorded: ${command}, commit ${commit}, ${adapter}, ${date}.`;
export const PIPELINE_SOURCE = `Recorded: ${RECORDED.pipelineCommand}, commit ${commit}, ${adapter}, ${date}.`;

export const percent = (share: number): string => `${Math.round(100 * share)}%`;

/** Step whose tries figure 5.1 shows. */
export const SHOWN_STEP = 5;

export const PIPELINES = RECORDED.pipelines;

/** Returns the share of the tokens by age, over all steps but the first, which has no older weights. */
export function agesOf({ ages }: (typeof PIPELINES)[number], steps = ages.slice(1)): number[] {
  const most = Math.max(...PIPELINES.flatMap((one) => one.ages.map((counts) => counts.length)));
  const sums = Array.from({ length: most }, (_, age) => steps.reduce((sum, counts) => sum + (counts[age] ?? 0), 0));
  const total = sums.reduce((a, b) => a + b, 0);
  return sums.map((sum) => sum / total);
}

/** Describes the ages of tokens. */
export const agesInWords = (shares: readonly number[]): string =>
  shares
    .flatMap((share, age) =>
      share > 0
        ? [
            `${percent(share)} ${age === 0 ? 'by the newest weights' : `by weights ${age} ${age === 1 ? 'step' : 'steps'} older`}`,
          ]
        : [],
    )
    .join(', ');

/** Draws tries as rows of tokens, by the age of the weights that drew them. */
export const rowsHtml = (tries: readonly Piece[][]): string =>
  `<ol class="rows">${tries
    .map(
      (pieces) =>
        `<li>${pieces
          .map(
            ([text, age]) =>
              `<span class="piece age-${age < 0 ? 'none' : Math.min(age, 2)}">${attribute(text.replaceAll('\n', '\u21b5'))}</span>`,
          )
          .join('')}</li>`,
    )
    .join('')}</ol>`;

/** Returns the tries of every second group, or of all. The groups that a step takes first were left over. */
export const shownTries = ({ tries }: (typeof PIPELINES)[number], all = false): readonly Piece[][] =>
  tries.filter((_, group) => all || group % 2 === 0);

/** Describes figure 5.1. */
export const rowsInWords = (pipeline: (typeof PIPELINES)[number]): string =>
  `Tokens that step ${SHOWN_STEP} of ${pipeline.name} trains on: drawn ${agesInWords(agesOf(pipeline, [pipeline.ages[SHOWN_STEP - 1]]))}.`;

export const DELAYS = [0, 1, 4, 16] as const;
export type Delay = (typeof DELAYS)[number];

export const LOSSES: readonly { id: string; name: string }[] = [
  { id: 'grpo', name: 'GRPO: clips the ratio' },
  { id: 'cispo', name: 'CISPO: weight of at most 5' },
  { id: 'importance_sampling', name: 'importance sampling: any weight' },
];

export const MEASURES: Readonly<Record<Measure, { name: string; most: number }>> = {
  reward: { name: 'reward, mean of 256 new tries', most: 1 },
  high: { name: 'ratio of the highest hundredth of the tokens', most: 8 },
  low: { name: 'ratio of the lowest hundredth of the tokens', most: 1 },
  share: { name: 'effective share of the tokens', most: 1 },
  clipped: { name: 'share of the tokens that are clipped', most: 0.5 },
};

/** Value of a measure without delay, where every ratio is 1. */
const FRESH = { clipped: 0, low: 1, high: 1, share: 1 };

/** Returns the recorded runs of a delay and a loss, one per seed. Without delay they are those of lesson 3. */
export const valuesOf = (delay: number, loss: string, measure: Measure): number[][] =>
  delay === 0
    ? runsOf(1e-3).map(({ reward }) => (measure === 'reward' ? reward : reward.map(() => FRESH[measure])))
    : RECORDED.runs.filter((run) => run.delay === delay && run.loss === loss).map((run) => run[measure]);

/** Returns the recorded delays of a loss. */
export const delaysOf = (loss: string): Delay[] => DELAYS.filter((delay) => valuesOf(delay, loss, 'reward').length > 0);

const CLASSES: Readonly<Record<Delay, string>> = { 0: 'curve-d', 1: 'curve-a', 4: 'curve-c', 16: 'curve-b' };

/** Returns the curve of a delay: mean and range of the seeds. */
export const delayCurve = (delay: Delay, loss: string, measure: Measure): NamedCurve =>
  bandOver(valuesOf(delay, loss, measure), { name: `${delay}`, className: CLASSES[delay] });

/** Returns the mean over the last five steps and all seeds. */
export const endOf = (delay: number, loss: string, measure: Measure = 'reward'): number =>
  mean(valuesOf(delay, loss, measure).map(last));

/** Returns the lowest and the highest seed over the last five steps. */
export function rangeOf(delay: number, loss: string): [number, number] {
  const ends = valuesOf(delay, loss, 'reward').map(last);
  return [Math.min(...ends), Math.max(...ends)];
}

export const delaysInWords = (loss: string, measure: Measure): string =>
  `Over the last five steps, by delay: ${delaysOf(loss)
    .map((delay) => `${short(endOf(delay, loss, measure))} with ${delay}`)
    .join(', ')}.`;

/** Tokens of the last batch of a recorded run with grpo. */
export const tokensOf = (delay: number) => RECORDED.tokens.find((one) => one.delay === delay) ?? RECORDED.tokens[0];

export const CAPS = [1, 1.25, 1.5, 2, 3, 4, 6, 8, 16];

/** Describes figure 5.3. */
export function capInWords(logProbs: LogProbs, cap: number, level: Level): string {
  const { cut, lost, share } = corrected(logProbs, cap, level);
  return `A cap of ${short(cap)} by ${level === 'token' ? 'token' : 'try'} cuts the weight of ${percent(cut)} of the tokens and takes ${percent(lost)} of all weight away. The tokens count as ${percent(share)} of their number.`;
}

export const tradeOf = (logProbs: LogProbs, level: Level) =>
  CAPS.map((cap) => {
    const { lost, share } = corrected(logProbs, cap, level);
    return { cap, share, kept: 1 - lost };
  });

/** Describes figure 5.4. */
export const timesInWords = (times: ReturnType<typeof timesOf>): string =>
  times
    .map(
      ({ name, seconds, waits, stale }) =>
        `${name}: ${short(seconds)} s per step, training waits ${percent(waits)} of it, ${percent(stale)} of the groups are old`,
    )
    .join('. ')
    .concat('.');

/** Final pass@1 on 256 problems by pipeline, mean of three seeds, and the time that fully-async saved with slow tools: docs/lab/pipelines.md. */
export const PASSES = { 'on-policy': '0.971', 'one-step-off': '0.978', 'fully-async': '0.956' } as const;
export const SAVED = '39%';

const start = mean(UNDELAYED.runs.filter(({ lr }) => lr === 1e-3).map(({ reward }) => mean(reward.slice(0, 5))));
const [cap2, uncapped] = [2, Infinity].map((cap) => corrected(tokensOf(16), cap, 'token'));
const { times } = RECORDED;
const fully = PIPELINES.find(({ name }) => name === 'fully-async')!;

/** Numbers of the lesson's text, by the name in its HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  'fully-old': percent(1 - agesOf(fully)[0]),
  start: start.toFixed(2),
  ...Object.fromEntries(DELAYS.map((delay) => [`end-${delay}`, endOf(delay, 'grpo').toFixed(2)])),
  ...Object.fromEntries(
    [0, 16].map((delay) => [
      `range-${delay}`,
      rangeOf(delay, 'grpo')
        .map((end) => end.toFixed(2))
        .join(' to '),
    ]),
  ),
  'cispo-16': endOf(16, 'cispo').toFixed(2),
  'is-16': endOf(16, 'importance_sampling').toFixed(2),
  'high-16': short(endOf(16, 'grpo', 'high')),
  'clipped-16': percent(endOf(16, 'grpo', 'clipped')),
  'share-16': percent(uncapped.share),
  'cut-2': percent(cap2.cut),
  'lost-2': percent(cap2.lost),
  'share-2': percent(cap2.share),
  'pass-on': PASSES['on-policy'],
  'pass-one': PASSES['one-step-off'],
  'pass-fully': PASSES['fully-async'],
  saved: SAVED,
  ...Object.fromEntries(['on', 'one', 'fully'].map((name, i) => [`time-${name}`, duration(times[i].seconds)])),
};

/** Pictures by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '5.1': rowsHtml(shownTries(fully)),
  '5.2': curvesPlot(
    DELAYS.map((delay) => delayCurve(delay, 'grpo', 'reward')),
    { steps: STEPS, y: [0, 1], of: MEASURES.reward.name },
    `Reward by delay. ${delaysInWords('grpo', 'reward')}`,
  ),
  '5.3': weightsPlot(
    corrected(tokensOf(16), 2, 'token').weights,
    uncapped.weights,
    capInWords(tokensOf(16), 2, 'token'),
  ),
  '5.4': timesPlot(times, timesInWords(times)),
};

/** Histogram of the ages of a pipeline's tokens, for exercise 5.1. */
export function agesStill(pipeline: (typeof PIPELINES)[number], name: string): string {
  const shares = agesOf(pipeline);
  return agesPlot(shares, `${name}: ${shares.map((share, age) => `age ${age} ${percent(share)}`).join(', ')}.`);
}

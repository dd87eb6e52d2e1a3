/** Numbers of lesson 7's text, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML. */

import { short } from '../../../src/ui/format.ts';
import { type Curve, runPlot } from '../kit/plot.ts';
import { percent } from './causes.ts';
import { early, late, RECORDED, STEPS } from './runs.ts';

const right = 'critic/acc/mean';
const curves = RECORDED.runs.map((run) => run.curves);

/** Share of right tries over the first (`first`) or the last (`last`) steps of a run. */
const first = (run: number) => early(RECORDED.runs[run], right)!;
const last = (run: number) => late(RECORDED.runs[run], right)!;
const loss = late(RECORDED.runs[0], 'actor/pg_loss')!;

/** Numbers in the lesson's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  steps: `${STEPS}`,
  'sound-first': percent(first(0)),
  'sound-last': percent(last(0)),
  'sound-loss': short(loss),
  'colder-last': percent(last(5)),
  'colder-differ': short(Math.max(...curves[5]['training/rollout_probs_diff_max'].map((value) => value ?? 0))),
};

const plot = (name: string, chart: string, run: number, behind: readonly Curve[] = []): string => {
  const curve = curves[run][chart];
  const label = `Run ${run}, ${name}: step 1 ${short(curve[1] ?? 0)}, step ${curve.length - 1} ${short(curve.at(-1) ?? 0)}`;
  return `<div><p>Run ${run}: ${name}</p>${runPlot(curve, label, { behind, last: STEPS, most: 1 })}</div>`;
};

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '7.1': `<div class="six">${curves.map((_, run) => plot('reward', 'critic/score/mean', run)).join('')}</div>`,
  '7.2': `<div class="six">${plot('share of right tries', right, 1, [curves[0][right]])}</div>`,
};

/** Curves and tables of the instructor's page, from the recorded data of the lessons. */

import { passInterval } from '../../../src/report/passInterval.ts';
import { short } from '../../../src/ui/format.ts';
import { RECORDED as STEP_1 } from '../1-groups/stills.ts';
import { RECORDED as RATES, STILLS as LOOPS } from '../3-run/stills.ts';
import { cheatPlot } from '../4-tools/plots.ts';
import { othersInWords, RECORDED as CHEATS, runInWords } from '../4-tools/stills.ts';
import { SOURCE as DELAY_SOURCE, STILLS as DELAYED } from '../5-stale/stills.ts';
import { passOf, TRIES } from '../6-claims/evidence.ts';
import { MODELS, percent, SOURCE, span, three } from '../6-claims/stills.ts';
import { early, late, RECORDED, STEPS } from '../7-faults/runs.ts';
import { runPlot } from '../kit/plot.ts';

const right = 'critic/acc/mean';
const { steps } = STEP_1.run;
const rewards = [null, ...steps.map(([, reward]) => reward)];
const silent = [null, ...steps.map(([, , share]) => share)];
const [first, last] = [steps[0], steps.at(-1)!];

const one = (title: string, plot: string) => `<div><p>${title}</p>${plot}</div>`;

const ends = (run: number) =>
  [early(RECORDED.runs[run], right), late(RECORDED.runs[run], right)].map((value) => short(value ?? 0)).join(' to ');

const evaluated = MODELS.map(({ name, outcomes }) => {
  const found = passInterval(outcomes);
  return `<tr><td>${name}</td><td>${three(found.mean)}</td><td>${span(found)}</td><td>${percent(passOf(outcomes, TRIES))}</td></tr>`;
});

/** The behaviour that each recorded reward of lesson 4 pays for. */
const PAID: Readonly<Record<string, string>> = { form: 'short answers', calls: 'tool calls', length: 'long tries' };

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '0.1': `<div class="six">${[
    one(
      `reward, ${short(first[1])} to ${short(last[1])}`,
      runPlot(rewards, `Reward of the default recipe: step 1 ${short(first[1])}, step ${last[0]} ${short(last[1])}`, {
        most: 1,
      }),
    ),
    one(
      `share of silent groups, ${short(first[2])} to ${short(last[2])}`,
      runPlot(
        silent,
        `Silent groups of the default recipe: step 1 ${short(first[2])}, step ${last[0]} ${short(last[2])}`,
        { most: 1 },
      ),
    ),
  ].join('')}</div><p class="source">${STEP_1.run.command}, commit ${STEP_1.run.commit}, one seed.</p>`,
  '0.2': `<div class="six">${RECORDED.runs
    .map(({ curves }, run) =>
      one(
        `run ${run}: ${ends(run)}`,
        runPlot(curves[right], `Share of right tries of run ${run}: ${ends(run)}`, {
          most: 1,
          last: STEPS,
          behind: run === 0 ? [] : [RECORDED.runs[0].curves[right]],
        }),
      ),
    )
    .join(
      '',
    )}</div><p class="source">${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}; means of the first and the last five of ${STEPS} steps. Pale: run 0.</p>`,
  '0.5': `${LOOPS['3.2']}<p class="source">${RATES.command}, commit ${RATES.commit}, ${RATES.adapter}. Mean and range of three seeds; figure 3.1 has seed 1 of the middle rate.</p>`,
  '0.6': `<div class="six">${CHEATS.runs
    .map((run) => one(`paid for ${PAID[run.pays]}`, cheatPlot(run, undefined, runInWords(run))))
    .join(
      '',
    )}</div><p class="source">scripts/record-cheats.mjs, commits ${CHEATS.runs.map(({ commit }) => commit).join(', ')}, ${CHEATS.adapter}, seed 1. Dots: 64 held-out problems. ${CHEATS.runs.map((run) => `Paid for ${PAID[run.pays]}: ${othersInWords(run)}.`).join(' ')}</p>`,
  '0.4': `${DELAYED['5.2']}<p class="source">${DELAY_SOURCE} Mean and range of three seeds. Delay 0: the runs of lesson 3.</p>`,
  '0.3': `<div class="scroll" tabindex="0" role="group" aria-label="Evaluations"><table><thead><tr><th>model</th><th>pass@1</th><th>95% interval</th><th>pass@${TRIES}</th></tr></thead><tbody>${evaluated.join('')}</tbody></table></div><p class="source">${SOURCE}</p>`,
};

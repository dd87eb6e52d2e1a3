/** Figure 1.2, how often a group is silent (all rewards equal), and figure 1.3, the advantages of one group by six methods. */

import { short, signed } from '../../../src/ui/format.ts';
import { move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, Select, Slider } from '../kit/figure.tsx';
import { rowsPlot, silencePlot, silentShare } from '../kit/plot.ts';
import { advantagesBy, gdpoAdvantages, questionOf } from '../kit/recordings.ts';
import { methodRows, NAMED_STEPS, percent, RECORDED, rowsInWords } from './stills.ts';

/** Figure 1.2. */
export function SilenceFigure() {
  const p = numberOf('rate', 0.25, 0, 1);
  const n = Math.round(numberOf('n', 8, 2, 32));
  const silent = silentShare(p, n);
  const says = `If ${percent(p)} of the tries at every problem are right, ${percent(silent)} of the groups of ${n} agree and teach nothing.`;
  const steps = NAMED_STEPS.map((step) => RECORDED.run.steps.find(([number]) => number === step)!);
  const label = `${says} The recorded run, groups of 8: ${steps.map(([step, right, share]) => `step ${step}, ${short(right)} right, ${percent(share)} silent`).join('; ')}.`;
  return (
    <Figure
      number="1.2"
      title="How often a group is silent"
      says={says}
      source={`Curve: p^n + (1 - p)^n. Dots: ${RECORDED.run.command}, commit ${RECORDED.run.commit}, one dot per step, groups of 8.`}
    >
      <div class="controls">
        <Slider
          control="rate"
          label="Share of right tries, p"
          value={p}
          least={0}
          most={1}
          step={0.01}
          shown={short(p)}
        />
        <Slider control="n" label="Tries per group, n" value={n} least={2} most={32} step={1} shown={`${n}`} />
      </div>
      <div
        class="svg"
        dangerouslySetInnerHTML={{ __html: silencePlot({ p, n }, RECORDED.run.steps, NAMED_STEPS, label) }}
      />
    </Figure>
  );
}

/** Factors on every reward. */
const SCALES = [1, 0.5, 0.1];

/** Returns the two named rewards of a group: right, and used the calculator without an error. */
const namedRewards = (group: number): number[][] => {
  const { tries } = RECORDED.groups[group];
  return [tries.map(({ score }) => score ?? NaN), tries.map(({ extra }) => Number(extra?.['toolCallsOk'] ?? 0))];
};

/** Figure 1.3. */
export function ScaleFigure() {
  const problem = Math.round(numberOf('of', 1, 0, RECORDED.groups.length - 1));
  const scale = SCALES.find((one) => String(one) === movedTo('times')) ?? 1;
  const offset = numberOf('plus', 0, 0, 1);
  const weights = [numberOf('right', 1, 0, 2), numberOf('tool', 0, 0, 2)];
  const named = namedRewards(problem).map((rewards) => rewards.map((reward) => reward * scale));
  const sum = named[0].map((reward, i) => weights[0] * reward + weights[1] * named[1][i] + offset);
  const tokens = RECORDED.groups[problem].tries.map(({ responseTokens }) => responseTokens);
  const rows = [...methodRows(sum, tokens), { name: 'GDPO', values: gdpoAdvantages(named, weights) }];
  const grpo = Math.max(...advantagesBy('grpo', sum));
  const plain = Math.max(...advantagesBy('drgrpo', sum));
  const says =
    `With rewards times ${scale} plus ${short(offset)}, the best try has advantage ${signed(grpo)} by GRPO ` +
    `and ${signed(plain)} by Dr. GRPO, which does not divide by the spread.`;
  return (
    <Figure
      number="1.3"
      title="Other methods, other scales"
      says={says}
      source="One row per method, one bar per try, all rows on one scale. On the right are the largest and the smallest advantage. GDPO normalises each named reward on its own."
    >
      <div class="controls">
        <Select
          control="of"
          label="Problem"
          initial="1"
          options={RECORDED.groups.map((group, g) => ({ value: `${g}`, name: `${g + 1}. ${questionOf(group)}` }))}
        />
        <Select
          control="times"
          label="All rewards times"
          initial="1"
          options={SCALES.map((one) => ({ value: `${one}`, name: `${one}` }))}
        />
        <Slider
          control="plus"
          label="All rewards plus"
          value={offset}
          least={0}
          most={1}
          step={0.05}
          shown={short(offset)}
        />
        <Slider
          control="right"
          label="Weight of a right answer"
          value={weights[0]}
          least={0}
          most={2}
          step={0.1}
          shown={short(weights[0])}
        />
        <Slider
          control="tool"
          label="Weight of using the calculator"
          value={weights[1]}
          least={0}
          most={2}
          step={0.1}
          shown={short(weights[1])}
        />
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: rowsPlot(rows, `${says} ${rowsInWords(rows)}.`) }} />
      <div class="buttons">
        <button
          type="button"
          onClick={() => move({ times: undefined, plus: undefined, right: undefined, tool: undefined, of: undefined })}
        >
          Reset
        </button>
      </div>
    </Figure>
  );
}

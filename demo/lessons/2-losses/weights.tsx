/** Figure 2.3: how four aggregations weigh long and short tries. */

import { short } from '../../../src/ui/format.ts';
import { numberOf } from '../kit/address.ts';
import { Figure, Slider } from '../kit/figure.tsx';
import { rowsPlot } from '../kit/plot.ts';
import { advantagesOf, MAX_LENGTH, modeRows, RECORDED, RIGHT_LENGTH, WRONG_LENGTH } from './stills.ts';

/** Figure 2.3. */
export function WeightsFigure() {
  const size = Math.round(numberOf('n', 8, 2, 16));
  const right = Math.min(size - 1, Math.round(numberOf('right', 4, 1, 15)));
  const long = Math.round(numberOf('long', RIGHT_LENGTH, 1, MAX_LENGTH));
  const brief = Math.round(numberOf('brief', WRONG_LENGTH, 1, MAX_LENGTH));
  const isRight = Array.from({ length: size }, (_, i) => i < right);
  const rows = modeRows(
    isRight.map((is) => (is ? long : brief)),
    advantagesOf(isRight.map(Number)),
  );
  const onRight = rows.map(({ values }) => values.reduce((sum, share) => sum + Math.max(0, share), 0));
  const says =
    `${right} right tries of ${long} tokens and ${size - right} wrong tries of ${brief}: of the pull, ` +
    `${short(onRight[0])}% is on the right tries by token-mean, ${short(onRight[1])}% by the mean over tries.`;
  const label = `${says} ${rows.map(({ name, values }) => `${name}: ${short(values[0])}% for a right try, ${short(values.at(-1)!)}% for a wrong one`).join('; ')}.`;
  return (
    <Figure
      number="2.3"
      title="Long tries, short tries"
      says={says}
      source={`One bar per try: its share of the pull before the first update. On the right are the largest and the smallest share, in percent. The modes are token-mean, seq-mean-token-mean (GRPO), seq-mean-token-sum and seq-mean-token-sum-norm (Dr. GRPO). The lengths at first are the trained tokens of group A (${RECORDED.command}, commit ${RECORDED.commit}).`}
    >
      <div class="controls">
        <Slider
          control="long"
          label="Tokens of a right try"
          value={long}
          least={1}
          most={MAX_LENGTH}
          step={1}
          shown={`${long}`}
        />
        <Slider
          control="brief"
          label="Tokens of a wrong try"
          value={brief}
          least={1}
          most={MAX_LENGTH}
          step={1}
          shown={`${brief}`}
        />
        <Slider control="n" label="Tries of the group" value={size} least={2} most={16} step={1} shown={`${size}`} />
        <Slider
          control="right"
          label="Right tries"
          value={right}
          least={1}
          most={size - 1}
          step={1}
          shown={`${right}`}
        />
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: rowsPlot(rows, label) }} />
    </Figure>
  );
}

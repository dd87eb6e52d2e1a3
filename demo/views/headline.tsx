/** The headline of a run: the share of problems solved before and now, over a faint curve of the reward. */

import { config, history } from '../state/page.ts';
import { headlineOf, measured, smoothed } from '../state/measured.ts';

const [WIDTH, HEIGHT] = [100, 40];

/** Shows the headline. Its height is the same before, during and after a run. */
export function Headline() {
  const { numbers, caption, now } = headlineOf(history.value, config.value?.trainer.totalTrainingSteps);
  return (
    <>
      <Curve />
      <p class="numbers-two">
        {numbers.length === 0 ? '\u2013' : numbers.map((value) => value.toFixed(2)).join(' \u2192 ')}
      </p>
      <p class="headline-of">
        <span>{caption}</span>
        <span class="now">{now}</span>
      </p>
    </>
  );
}

function Curve() {
  const values = smoothed(measured(history.value).rewards.map(({ value }) => value));
  if (values.length < 2) return null;
  const [low, high] = [Math.min(0, ...values), Math.max(1, ...values)];
  const x = (i: number) => (WIDTH * i) / (values.length - 1);
  const y = (value: number) => HEIGHT - (HEIGHT * (value - low)) / (high - low);
  return (
    <svg class="headline-curve" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <polyline points={values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(' ')} />
    </svg>
  );
}

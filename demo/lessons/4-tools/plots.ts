/** Picture of lesson 4: the mean reward and the share of right tries over the steps of a run. */

import { line, picture, round, text } from '../kit/plot.ts';

interface Drawn {
  /** Entries: step, mean reward, share of right tries. */
  steps: readonly (readonly [number, number, number])[];
  /** Entries: step, share of held-out problems solved. */
  heldOut: readonly (readonly [number, number])[];
  /** Entries: step and share of held-out problems, as drawn by the reader. */
  guess?: readonly (readonly [number, number])[] | undefined;
}

const SIZE = { width: 420, height: 240, left: 26, right: 64, top: 12, bottom: 38 };

/** @param at step to mark @param most last step on the axis; default: the last step of the run */
export function cheatPlot(
  { steps, heldOut, guess = [] }: Drawn,
  at: number | undefined,
  label: string,
  most?: number,
): string {
  const { width, height, left, right, top, bottom } = SIZE;
  const last = Math.max(1, most ?? steps.at(-1)?.[0] ?? 1);
  const highest = Math.max(1, ...steps.map(([, paid]) => paid));
  const x = (step: number) => left + (step / last) * (width - left - right);
  const y = (value: number) => height - bottom - (value / highest) * (height - top - bottom);
  const path = (className: string, points: readonly (readonly number[])[]) =>
    `<polyline class="${className}" points="${points.map(([step, value]) => `${round(x(step))},${round(y(value))}`).join(' ')}"/>`;
  const curve = (className: string, of: 1 | 2) =>
    path(
      className,
      steps.map((step) => [step[0], step[of]]),
    );
  const end = steps.at(-1);
  // Keep the names at the ends of the curves from overlapping.
  const [paidY, rightY] = end ? [y(end[1]), y(end[2])] : [0, 0];
  const apart = Math.abs(paidY - rightY) < 14 ? 14 : 0;
  const content = [
    ...[0, 0.5, 1].flatMap((value) => [
      line(value === 0 ? 'axis' : 'grid', left, y(value), width - right, y(value)),
      text('tick end', left - 5, y(value) + 4, `${value}`),
    ]),
    ...[0, last / 2, last].map((step) => text('tick middle', x(step), height - bottom + 16, `${Math.round(step)}`)),
    text('tick middle', x(last / 2), height - 4, 'step'),
    at === undefined ? '' : line('mean', x(at), top, x(at), height - bottom),
    guess.length > 0 ? path('curve guess', guess) : '',
    curve('curve paid', 1),
    curve('curve wanted', 2),
    ...heldOut.map(([step, share]) => `<circle class="dot" cx="${round(x(step))}" cy="${round(y(share))}" r="4"/>`),
    ...(end
      ? [text('tick', x(end[0]) + 6, paidY + 4 - apart, 'paid'), text('tick', x(end[0]) + 6, rightY + 4, 'right')]
      : []),
  ];
  return picture('plot', width, height, label, content.join(''));
}

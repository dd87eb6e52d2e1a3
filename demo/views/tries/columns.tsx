/** The tries of a group as columns: their rewards around the mean, and arrows as long as their advantages. */

import { short } from '../../../src/ui/format.ts';
import { isRight } from '../../state/tries/comparison.ts';
import type { Group } from './groups.ts';

const [WIDTH, HEIGHT, EDGE] = [44, 72, 16];

/** Maximum number of tries that are shown as columns. */
const MOST = 16;

/** Draws the columns in the order in which the tries were sampled. The height of the figure is constant. */
export function Columns({ group: { tries } }: { group: Group }) {
  const shown = tries.slice(0, MOST);
  const scores = shown.map(({ score }) => score ?? 0);
  const [low, high] = [Math.min(0, ...scores), Math.max(1, ...scores)];
  const y = (value: number) => HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - low)) / (high - low);
  const mean = scores.reduce((a, b) => a + b, 0) / scores.length;
  const furthest = Math.max(1e-9, ...shown.map(({ advantage }) => Math.abs(advantage ?? 0)));
  const said = `Rewards ${scores.map(short).join(', ')}; mean ${short(mean)}`;
  const width = Math.max(8, shown.length) * WIDTH;
  return (
    <svg class="columns" viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="xMinYMid" role="img" aria-label={said}>
      {shown.map((one, i) => {
        const [x, top] = [i * WIDTH + 6, Math.min(y(scores[i]), y(0) - 2)];
        return (
          <g key={i} class={isRight(one) ? 'column-right' : 'column-wrong'}>
            <rect x={x} y={top} width={WIDTH - 22} height={Math.max(2, Math.abs(y(0) - y(scores[i])))} rx="2" />
            <Arrow x={x + WIDTH - 14} length={((one.advantage ?? 0) / furthest) * (HEIGHT / 2 - 6)} />
          </g>
        );
      })}
      <path class="mean" d={`M0 ${y(mean)}H${shown.length * WIDTH}`} />
    </svg>
  );
}

/** An arrow that starts in the middle. It points up if the length is positive. */
function Arrow({ x, length }: { x: number; length: number }) {
  if (Math.abs(length) < 1) return null;
  const [from, to] = [HEIGHT / 2, HEIGHT / 2 - length];
  const head = 4 * Math.sign(length);
  return <path class="arrow" d={`M${x} ${from}V${to}M${x - 4} ${to + head}L${x} ${to}L${x + 4} ${to + head}`} />;
}

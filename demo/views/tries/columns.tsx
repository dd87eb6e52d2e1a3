/** The tries of a group as columns: their rewards around the mean, and arrows as long as their advantages. */

import { short } from '../../../src/ui/format.ts';
import { isRight } from '../../state/tries/comparison.ts';
import type { Group } from './groups.ts';

const [WIDTH, HEIGHT, EDGE] = [44, 72, 16];

/** Maximum number of tries that are shown as columns. */
const MOST = 16;

/**
 * Draws the columns in the order in which the tries were sampled; a try without a reward has none. Mean and scale are those of all tries.
 * The height of the figure is constant.
 */
export function Columns({ group: { tries } }: { group: Group }) {
  const shown = tries.slice(0, MOST);
  const scores = tries.flatMap(({ score }) => score ?? []);
  const [low, high] = [Math.min(0, ...scores), Math.max(1, ...scores)];
  const y = (value: number) => HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - low)) / (high - low);
  const mean = scores.reduce((a, b) => a + b, 0) / scores.length;
  const furthest = Math.max(1e-9, ...tries.map(({ advantage }) => Math.abs(advantage ?? 0)));
  const rewards = shown.map(({ score }) => (score === null ? 'none' : short(score))).join(', ');
  const further = tries.length > MOST ? ` and ${tries.length - MOST} more` : '';
  const said = `Rewards ${rewards}${further}${scores.length > 0 ? `; mean ${short(mean)}` : ''}`;
  const width = Math.max(8, shown.length) * WIDTH;
  return (
    <svg class="columns" viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="xMinYMid" role="img" aria-label={said}>
      {shown.map((one, i) => {
        const [x, end] = [i * WIDTH + 6, one.score === null ? undefined : y(one.score)];
        return (
          <g key={i} class={isRight(one) ? 'column-right' : 'column-wrong'}>
            {end !== undefined && (
              <rect
                x={x}
                y={Math.min(end, y(0) - 2)}
                width={WIDTH - 22}
                height={Math.max(2, Math.abs(y(0) - end))}
                rx="2"
              />
            )}
            <Arrow x={x + WIDTH - 14} length={((one.advantage ?? 0) / furthest) * (HEIGHT / 2 - 6)} />
          </g>
        );
      })}
      {scores.length > 0 && <path class="mean" d={`M0 ${y(mean)}H${shown.length * WIDTH}`} />}
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

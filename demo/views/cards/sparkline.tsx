/** A small curve of a recorded run, with its first and last value. */

import { short } from '../../../src/ui/format.ts';
import type { Recorded } from '../../state/recordedRecipes.ts';

const [WIDTH, HEIGHT] = [96, 30];

/** Draws a recorded curve. */
export function Sparkline({ recorded: { curve, of, steps } }: { recorded: Recorded }) {
  const [first, last] = [curve[0], curve[curve.length - 1]];
  const points = curve.map(([step, value]) => {
    const y = HEIGHT - 2 - Math.min(1, Math.max(0, value)) * (HEIGHT - 4);
    return `${((step / steps) * WIDTH).toFixed(1)},${y.toFixed(1)}`;
  });
  const said = `${of} from ${short(first[1])} to ${short(last[1])} in a recorded run`;
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={said}>
      <title>{said}</title>
      <path class="axis" d={`M0 ${HEIGHT - 1}H${WIDTH}`} />
      <polyline points={points.join(' ')} />
    </svg>
  );
}

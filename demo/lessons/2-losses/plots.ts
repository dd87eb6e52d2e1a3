/** Picture of lesson 2: losses as curves over the ratio of a token, as SVG text. */

import { line, picture, round, text } from '../kit/plot.ts';
import type { ClipRange } from '../../../src/grpo/losses/types.ts';
import { type Curve, ratioCurve } from './losses.ts';

/** A loss of figure 2.1. */
export interface DrawnLoss {
  id: string;
  name: string;
  curve: Curve;
}

/** Losses that figure 2.1 can draw. The reader can set the parameters of `grpo`, CISPO and SAPO. */
export const DRAWN: readonly { id: string; name: string; note: string }[] = [
  { id: 'grpo', name: 'PPO', note: 'with your clip; the loss of GRPO' },
  { id: 'dapo', name: "DAPO's clip", note: '0.2 below, 0.28 above, c = 10' },
  { id: 'cispo', name: 'CISPO', note: 'the weight is bounded' },
  { id: 'sapo', name: 'SAPO', note: 'a soft gate' },
  { id: 'gspo', name: 'GSPO', note: 'the ratio of the whole try' },
  { id: 'gmpo', name: 'GMPO', note: 'the mean of log ratios' },
  { id: 'unclipped', name: 'No clip', note: 'importance sampling alone' },
];

/** Parameters that the reader can set. Default: the values that the losses' papers published. */
export interface Numbers {
  advantage: number;
  low: number;
  high: number;
  c: number;
  wMax: number;
  /** Temperature of SAPO's gate, one for both signs of the advantage. Undefined: the two values that SAPO's paper published. */
  tau: number | undefined;
}

export const PUBLISHED: Numbers = { advantage: 1, low: 0.2, high: 0.2, c: 3, wMax: 5, tau: undefined };

/** Range of the ratio axis. 'close' is for GSPO, whose clip range is about a thousand times narrower. */
export const SCALES = { wide: { from: 0.05, to: 8 }, close: { from: 0.998, to: 1.002 } } as const;
export type Scale = keyof typeof SCALES;

const POINTS = 241;

/** Returns ratios whose logarithms are evenly spaced. */
export function ratiosOf(scale: Scale): Float64Array {
  const { from, to } = SCALES[scale];
  const step = Math.log(to / from) / (POINTS - 1);
  return Float64Array.from({ length: POINTS }, (_, i) => from * Math.exp(i * step));
}

/** Returns the curve of a loss of `DRAWN` with the reader's parameters. */
export function drawnCurve(
  id: string,
  ratios: ArrayLike<number>,
  { advantage, low, high, c, wMax, tau }: Numbers,
): Curve {
  const clips: Record<string, ClipRange> = {
    grpo: { clipRatioLow: low, clipRatioHigh: high, clipRatioC: c },
    unclipped: { clipRatioLow: 1, clipRatioHigh: Infinity, clipRatioC: Infinity },
  };
  const soft = tau === undefined ? {} : { tauPos: tau, tauNeg: tau };
  const name = id === 'unclipped' ? 'vanilla' : id;
  return ratioCurve(name, { ratios, advantage, clip: clips[id], numbers: id === 'cispo' ? { wMax } : soft });
}

const PULL = { width: 420, height: 260, left: 26, right: 10, top: 22, bottom: 40 };
const VALUE = { ...PULL, height: 110, top: 20, bottom: 8 };
/** Pulls of more than this many times the advantage leave the picture, so that a curve without a bound does not flatten the others. */
const MOST = 5.2;

/** Returns the ratio at a place of the picture, from 0 at its left to 1 at its right edge. */
export function ratioAt(place: number, scale: Scale): number {
  const { from, to } = SCALES[scale];
  const inner = (place * PULL.width - PULL.left) / (PULL.width - PULL.left - PULL.right);
  return from * (to / from) ** Math.min(1, Math.max(0, inner));
}

/** Draws the pulls of losses over the ratio, with a handle at `ratio`. */
export function pullPlot(
  losses: readonly DrawnLoss[],
  scale: Scale,
  { advantage, ratio }: { advantage: number; ratio: number },
  label: string,
): string {
  const all = losses.flatMap(({ curve }) => Array.from(curve.pull));
  const limit = MOST * Math.abs(advantage);
  const [low, high] = [Math.max(-limit, Math.min(0, ...all)), Math.min(limit, Math.max(0, ...all))];
  return chart(PULL, losses, {
    scale,
    low,
    high,
    ratio,
    of: ({ pull }) => pull,
    label,
    title: 'pull: above 0 the token becomes more likely',
  });
}

/** Draws the values of losses, less their value at ratio 1, so that only the shape counts. */
export function valuePlot(
  losses: readonly DrawnLoss[],
  scale: Scale,
  { ratio }: { ratio: number },
  label: string,
): string {
  const shapes = losses.map(({ curve, ...one }) => {
    const middle = ratiosOf(scale).findIndex((at) => at >= 1);
    return { ...one, curve: { ...curve, loss: curve.loss.map((value) => value - curve.loss[middle]) } };
  });
  const all = shapes.flatMap(({ curve }) => Array.from(curve.loss));
  const [low, high] = [Math.max(-3, Math.min(-0.001, ...all)), Math.min(3, Math.max(0.001, ...all))];
  return chart(VALUE, shapes, {
    scale,
    low,
    high,
    ratio,
    of: ({ loss }) => loss,
    label,
    title: 'value of the loss, less its value at ratio 1',
  });
}

interface ChartOptions {
  scale: Scale;
  low: number;
  high: number;
  ratio: number;
  of: (curve: Curve) => Float64Array;
  label: string;
  title: string;
}

function chart(size: typeof PULL, losses: readonly DrawnLoss[], o: ChartOptions): string {
  const { from, to } = SCALES[o.scale];
  const [low, high] = o.low === o.high ? [o.low - 1, o.high + 1] : [o.low, o.high];
  const [bottom, inner] = [size.height - size.bottom, size.width - size.left - size.right];
  const x = (ratio: number) => size.left + (Math.log(ratio / from) / Math.log(to / from)) * inner;
  const y = (value: number) => bottom - ((value - low) / (high - low)) * (bottom - size.top);
  const ratios = ratiosOf(o.scale);
  const isMain = size.bottom > 10;
  const ticks = o.scale === 'wide' ? [0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8] : [0.998, 0.999, 1, 1.001, 1.002];
  const grid = ticks.flatMap((at) => [
    line('grid', x(at), size.top, x(at), bottom),
    isMain ? text('tick middle', x(at), bottom + 16, `${at}`) : '',
  ]);
  const levels = isMain ? [low, 0, high].filter((at, i, all) => all.indexOf(at) === i) : [0];
  const across = levels.flatMap((at) => [
    line(at === 0 ? 'axis' : 'grid', x(from), y(at), x(to), y(at)),
    text('tick end', size.left - 6, y(at) + 4, Math.abs(at) < 10 ? at.toFixed(1).replace(/\.0$/, '') : at.toFixed(0)),
  ]);
  const curves = losses.map(({ id, curve }) => {
    const values = o.of(curve);
    return segments(values, low, high).map(
      (part) =>
        `<polyline class="loss loss-${id}" points="${part.map((i) => `${round(x(ratios[i]))},${round(y(values[i]))}`).join(' ')}"/>`,
    );
  });
  const content = [
    ...grid,
    ...across,
    line('mean', x(o.ratio), size.top, x(o.ratio), bottom),
    ...curves.flat(),
    isMain ? `<circle class="handle" cx="${round(x(o.ratio))}" cy="${round(bottom)}" r="7"/>` : '',
    isMain
      ? text('tick middle', x(from) + inner / 2, size.height - 6, 'ratio: probability now / when it was sampled')
      : '',
    text('tick', 0, 12, o.title),
  ];
  return picture(isMain ? 'plot pulls' : 'plot values', size.width, size.height, o.label, content.join(''));
}

/**
 * Returns runs of indices whose values are within the picture. A jump to another value starts a run, so that no slanted line is drawn
 * across the jump.
 */
function segments(values: Float64Array, low: number, high: number): number[][] {
  const parts: number[][] = [[]];
  const jump = 0.08 * (high - low);
  const slack = 1e-9 * (high - low);
  values.forEach((value, i) => {
    const inside = value >= low - slack && value <= high + slack;
    if (!inside || (i > 0 && Math.abs(value - values[i - 1]) > jump)) parts.push([]);
    if (inside) parts.at(-1)!.push(i);
  });
  return parts.filter((part) => part.length > 1);
}

/** Curves over steps, in the page's colours: one uPlot. The page draws its live curves with it, the reports theirs. */

import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { el } from './dom.ts';
import { ticks } from './format.ts';

export interface Line {
  label: string;
  /** A custom property of the page's style that holds the colour, as --accent. */
  colour: string;
  /** CSS pixels. */
  width: number;
  dash?: number[];
  /** Diameter of a mark at each value, in CSS pixels; 0 = none. */
  points: number;
  /** Share of the colour's opacity; 1 unless told. */
  opacity?: number;
}

interface LineChartSpec {
  lines: Line[];
  /** CSS pixels. */
  height: number;
  /** Fills between the lines with these places in `lines`, upper first. */
  bands?: { between: [number, number]; colour: string; opacity: number }[];
  /** Names and values under the chart; a click on a name hides its line. */
  legend: boolean;
  xLabel?: string;
  /** Lowest and highest value that an axis shows at least. */
  xAtLeast?: [number, number];
  yAtLeast?: [number, number];
  /** Charts of one key show the pointer at the same step. */
  sync?: string;
  /** Told the place of the value under the pointer. */
  onPointer?: (index: number | null) => void;
}

/** Steps, then the values of each line; null where a line has none. */
export type LineData = [number[], ...(number | null)[][]];

const STEP_MARKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

export class LineChart {
  readonly box = el('div', 'plot');
  readonly #spec: LineChartSpec;
  #data: LineData;
  #plot: uPlot | undefined;

  constructor(spec: LineChartSpec) {
    this.#spec = spec;
    this.#data = [[], ...spec.lines.map(() => [])];
  }

  set data(data: LineData) {
    this.#data = data;
    this.#plot?.setData(data);
  }

  /** Draws anew, with the page's present colours. */
  build(): void {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), this.#data, this.box);
  }

  /** Takes the width that the page gives it. */
  fit(): void {
    const width = this.box.clientWidth;
    const { height } = this.#spec;
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height });
  }

  /** Shows or hides the line at a place of `lines`. */
  show(place: number, show: boolean): void {
    this.#plot?.setSeries(place + 1, { show });
  }

  #options(): uPlot.Options {
    const { lines, height, bands = [], legend, xLabel, xAtLeast, yAtLeast, sync, onPointer } = this.#spec;
    const axis = { stroke: colourOf('--muted'), font: `12px ${colourOf('--font')}`, ticks: { show: false } };
    const grid = { stroke: colourOf('--line'), width: 1 };
    return {
      width: this.box.clientWidth || 320,
      height,
      legend: { show: legend },
      padding: [8, 12, 0, 0],
      cursor: {
        y: false,
        points: { size: 7 },
        ...(sync !== undefined && { sync: { key: sync } }),
        drag: { x: false, y: false },
      },
      scales: {
        x: {
          time: false,
          ...(xAtLeast && { range: (_: uPlot, min: number, max: number) => around(xAtLeast, min, max) }),
        },
        y: { range: (_, min, max) => (yAtLeast ? around(yAtLeast, min, max && max * 1.02) : fitting(min, max)) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 24, space: 60, incrs: STEP_MARKS, ...labelled(xLabel) },
        { ...axis, grid, size: 56, space: 32, values: (_, values) => ticks(values) },
      ],
      series: [{ label: xLabel ?? '' }, ...lines.map(seriesOf)],
      bands: bands.map(({ between: [upper, lower], colour, opacity }) => ({
        series: [upper + 1, lower + 1],
        fill: colourOf(colour, opacity),
      })),
      hooks: { setCursor: [(plot) => onPointer?.(plot.cursor.idx ?? null)] },
    };
  }
}

/** Draws charts now, and again whenever the page's colours or its width change. */
export function drawCharts(charts: readonly LineChart[], parent: HTMLElement): void {
  const build = () => charts.forEach((chart) => chart.build());
  build();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', build);
  new ResizeObserver(() => charts.forEach((chart) => chart.fit())).observe(parent);
}

/** An axis from `min` to `max` that shows at least what is asked; both are absent where there are no values. */
const around = ([low, high]: [number, number], min: number | undefined, max: number | undefined): [number, number] => [
  Math.min(min ?? low, low),
  Math.max(max ?? high, high),
];

/** uPlot's own choice, but for a curve that is 0 throughout, which it shows from 0 to 100: that reads as per cent. */
function fitting(min: number | null, max: number | null): uPlot.Range.MinMax {
  if (min === null || max === null) return [null, null];
  return min === 0 && max === 0 ? [0, 1] : uPlot.rangeNum(min, max, 0.1, true);
}

const labelled = (label: string | undefined) =>
  label === undefined ? {} : { label, size: 28, gap: 8, labelSize: 18, labelFont: `12px ${colourOf('--font')}` };

function seriesOf({ label, colour, width, dash, points, opacity = 1 }: Line): uPlot.Series {
  const stroke = colourOf(colour, opacity);
  const marks = points > 0 ? { show: true, size: points, fill: stroke } : { show: false };
  return { label, stroke, width, spanGaps: true, points: marks, ...(dash && { dash }) };
}

/** The value of a custom property; below an opacity of 1 it must be a colour as #rrggbb. */
function colourOf(property: string, opacity = 1): string {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  if (opacity === 1) return colour;
  return `${colour}${Math.round(255 * opacity)
    .toString(16)
    .padStart(2, '0')}`;
}

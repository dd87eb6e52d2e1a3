/** Charts of curves over steps in the page's colours, made with uPlot. Used by the page for live curves, and by the reports. */

import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { el } from './dom.ts';
import { ticks } from './format.ts';

/** Style of one curve. */
export interface Line {
  label: string;
  /** Name of the CSS custom property with the line's colour, such as --accent. */
  colour: string;
  /** Line width in CSS pixels. */
  width: number;
  dash?: number[];
  /** Diameter of the mark at each value, in CSS pixels; 0 = no marks. */
  points: number;
  /** Opacity of the line. Default: 1. */
  opacity?: number;
}

interface LineChartSpec {
  lines: Line[];
  /** Height in CSS pixels. */
  height: number;
  /** Areas to fill between two lines. The lines are given by their indices in `lines`, the upper one first. */
  bands?: { between: [number, number]; colour: string; opacity: number }[];
  /** True to show names and values under the chart. A click on a name hides its line. */
  legend: boolean;
  xLabel?: string;
  /** Range that the x axis (or the y axis) always includes. */
  xAtLeast?: [number, number];
  yAtLeast?: [number, number];
  /** Key of a group of charts. If the pointer is over one of them, all show the value at the same step. */
  sync?: string;
  /** Called with the index of the value under the pointer; null if the pointer is not over a value. */
  onPointer?: (index: number | null) => void;
}

/** A vertical line at a step. */
export interface Mark {
  step: number;
  /** Name of the CSS custom property with the mark's colour. */
  colour: string;
  dash?: number[];
}

/** The steps, then the values of each line; null if a line has no value at a step. */
export type LineData = [number[], ...(number | null)[][]];

/** Diameter of the mark of a line that has only one value, in CSS pixels. */
const SINGLE = 6;

const STEP_MARKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/** A chart of curves over steps that can be redrawn, resized and updated. */
export class LineChart {
  readonly box = el('div', 'plot');
  readonly #spec: LineChartSpec;
  #data: LineData;
  #marks: readonly Mark[] = [];
  #plot: uPlot | undefined;

  constructor(spec: LineChartSpec) {
    this.#spec = spec;
    this.#data = [[], ...spec.lines.map(() => [])];
  }

  set data(data: LineData) {
    this.#data = data;
    this.#plot?.setData(data);
  }

  /** Replaces the lines and their values. */
  setLines(lines: Line[], data: LineData): void {
    [this.#spec.lines, this.#data] = [lines, data];
    if (this.#plot) this.build();
  }

  set marks(marks: readonly Mark[]) {
    this.#marks = marks;
    this.#plot?.redraw(false);
  }

  /** Last step that the x axis always includes. Takes effect when the values are next replaced. */
  set xTo(step: number) {
    const [first = 0] = this.#spec.xAtLeast ?? [];
    this.#spec.xAtLeast = [first, step];
  }

  /** Moves the pointer to the value with this index; null removes the pointer. */
  point(index: number | null): void {
    if (!this.#plot) return;
    const [steps, ...lines] = this.#data;
    if (index === null) return this.#plot.setCursor({ left: -10, top: -10 });
    const value = lines.map((line) => line[index]).find((known) => known !== null) ?? 0;
    this.#plot.setCursor({ left: this.#plot.valToPos(steps[index], 'x'), top: this.#plot.valToPos(value, 'y') });
  }

  /** Redraws with the page's current colours. */
  build(): void {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), this.#data, this.box);
    // A crash of the GPU process clears the canvas, and resets the colours and fonts that uPlot assumes to be set.
    this.#plot.ctx.canvas.addEventListener('contextrestored', () => this.build());
  }

  /** Resizes the chart to the width of its box. */
  fit(): void {
    const width = this.box.clientWidth;
    const { height } = this.#spec;
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height });
  }

  /** Shows or hides the line at an index of `lines`. */
  show(place: number, show: boolean): void {
    this.#plot?.setSeries(place + 1, { show });
  }

  #options(): uPlot.Options {
    const spec = this.#spec;
    const { lines, height, bands = [], legend, xLabel, yAtLeast, sync, onPointer } = spec;
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
          ...(spec.xAtLeast && { range: () => around(spec.xAtLeast!, this.#data[0][0], this.#data[0].at(-1)) }),
        },
        y: { range: (_, min, max) => (yAtLeast ? withRoom(yAtLeast, min, max) : fitting(min, max)) },
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
      hooks: { setCursor: [(plot) => onPointer?.(plot.cursor.idx ?? null)], draw: [(plot) => this.#drawMarks(plot)] },
    };
  }

  #drawMarks({ ctx, bbox, valToPos }: uPlot): void {
    for (const { step, colour, dash = [] } of this.#marks) {
      const x = Math.round(valToPos(step, 'x', true));
      ctx.save();
      [ctx.strokeStyle, ctx.lineWidth] = [colourOf(colour), devicePixelRatio];
      ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
    }
  }
}

/** Draws charts now, and again whenever the page's colours or the width of the charts change. */
export function drawCharts(charts: readonly LineChart[], parent: HTMLElement): void {
  const build = () => charts.forEach((chart) => chart.build());
  build();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', build);
  new ResizeObserver(() => charts.forEach((chart) => chart.fit())).observe(parent);
}

/** Returns a required range, extended so that it includes `min` and `max`, which are undefined without values. */
const around = ([low, high]: [number, number], min: number | undefined, max: number | undefined): [number, number] => [
  Math.min(min ?? low, low),
  Math.max(max ?? high, high),
];

/** Like `around`, but leaves some space above a value that exceeds the required range. */
const withRoom = (asked: [number, number], min: number | undefined, max: number | undefined): [number, number] =>
  around(asked, min, max !== undefined && max > asked[1] ? max * 1.02 : max);

/**
 * Returns uPlot's own range, except for a curve that is always 0. uPlot would show such a curve from 0 to 100, which looks like per cent.
 */
function fitting(min: number | null, max: number | null): uPlot.Range.MinMax {
  if (min === null || max === null) return [null, null];
  return min === 0 && max === 0 ? [0, 1] : uPlot.rangeNum(min, max, 0.1, true);
}

const labelled = (label: string | undefined) =>
  label === undefined ? {} : { label, size: 28, gap: 8, labelSize: 18, labelFont: `12px ${colourOf('--font')}` };

function seriesOf({ label, colour, width, dash, points, opacity = 1 }: Line): uPlot.Series {
  const stroke = colourOf(colour, opacity);
  const marks = { show: points > 0 || isSingle, size: points || SINGLE, fill: stroke };
  return { label, stroke, width, spanGaps: true, points: marks, ...(dash && { dash }) };
}

/** Returns true if a line has only one value. Such a line has no length to draw, so it gets a mark. */
const isSingle = ({ data }: uPlot, line: number): boolean =>
  Array.from(data[line]).filter((value) => value != null).length === 1;

/** Returns the colour in a CSS custom property. With an opacity below 1, the property must have the form #rrggbb. */
function colourOf(property: string, opacity = 1): string {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  if (opacity === 1) return colour;
  return `${colour}${Math.round(255 * opacity)
    .toString(16)
    .padStart(2, '0')}`;
}

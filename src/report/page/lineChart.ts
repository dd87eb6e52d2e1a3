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

/** An upright line at a step. */
export interface Mark {
  step: number;
  /** A custom property, as of a line. */
  colour: string;
  dash?: number[];
}

/** Steps, then the values of each line; null where a line has none. */
export type LineData = [number[], ...(number | null)[][]];

/** Diameter of a value that is alone in its line, in CSS pixels. */
const SINGLE = 6;

const STEP_MARKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

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

  /** Other lines, with their values. */
  setLines(lines: Line[], data: LineData): void {
    [this.#spec.lines, this.#data] = [lines, data];
    if (this.#plot) this.build();
  }

  set marks(marks: readonly Mark[]) {
    this.#marks = marks;
    this.#plot?.redraw(false);
  }

  /** The last step that the axis shows at least, from the next values on. */
  set xTo(step: number) {
    const [first = 0] = this.#spec.xAtLeast ?? [];
    this.#spec.xAtLeast = [first, step];
  }

  /** Moves the pointer to a place in the values; null takes it away. */
  point(index: number | null): void {
    if (!this.#plot) return;
    const [steps, ...lines] = this.#data;
    if (index === null) return this.#plot.setCursor({ left: -10, top: -10 });
    const value = lines.map((line) => line[index]).find((known) => known !== null) ?? 0;
    this.#plot.setCursor({ left: this.#plot.valToPos(steps[index], 'x'), top: this.#plot.valToPos(value, 'y') });
  }

  /** Draws anew, with the page's present colours. */
  build(): void {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), this.#data, this.box);
    // A crash of the GPU's process takes what was drawn, and the colours and fonts that uPlot believes to be set.
    this.#plot.ctx.canvas.addEventListener('contextrestored', () => this.build());
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

/** As `around`, with a little room above a value that is higher than what is asked. */
const withRoom = (asked: [number, number], min: number | undefined, max: number | undefined): [number, number] =>
  around(asked, min, max !== undefined && max > asked[1] ? max * 1.02 : max);

/** uPlot's own choice, but for a curve that is 0 throughout, which it shows from 0 to 100: that reads as per cent. */
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

/** A line of one value has no length to draw. */
const isSingle = ({ data }: uPlot, line: number): boolean =>
  Array.from(data[line]).filter((value) => value != null).length === 1;

/** The value of a custom property; below an opacity of 1 it must be a colour as #rrggbb. */
function colourOf(property: string, opacity = 1): string {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  if (opacity === 1) return colour;
  return `${colour}${Math.round(255 * opacity)
    .toString(16)
    .padStart(2, '0')}`;
}

/** compare.html: the table and the curves of several algorithms, each of which can be hidden. */

import type { ComparedChart, ComparisonReport } from '../comparison.ts';
import { el, folded, scrolling, table } from '../../ui/dom.ts';
import { drawCharts, LineChart } from '../../ui/lineChart.ts';

const COLOURS = 8;
const colourOf = (algorithm: number) => `--series-${algorithm % COLOURS}`;

/** A curve with fewer evaluated steps than this has a mark at each of them. */
const FEW = 12;

/** Adds the content of compare.html to the page. */
export function comparisonView(report: ComparisonReport, parent: HTMLElement): void {
  const { title, about, charts, config } = report;
  const curves = charts.map(chartOf);
  const drawings = curves.map((chart, i) => el('figure', 'chart', el('figcaption', '', charts[i].title), chart.box));
  const names = charts[0]?.curves.map(({ label }) => label) ?? [];
  const figures = el('div', 'charts', ...drawings);
  parent.append(
    el('h1', '', title),
    el('p', '', about),
    scrolling('Algorithms', table(report.table)),
    el(
      'p',
      '',
      'Lines are means over seeds, bands reach from the lowest seed to the highest. Click a name to hide it.',
    ),
    el('div', 'toggles', ...names.map((name, algorithm) => toggle(name, algorithm, curves))),
    figures,
    folded('config', scrolling('config', el('pre', '', config))),
  );
  drawCharts(curves, figures);
}

/** Draws three lines per algorithm: mean, highest and lowest. The band is between the highest and the lowest. */
function chartOf({ steps, curves }: ComparedChart): LineChart {
  const points = steps.length < FEW ? 5 : 0;
  const chart = new LineChart({
    lines: curves.flatMap(({ label }, i) => {
      const edge = { colour: colourOf(i), width: 0, points: 0, opacity: 0.25 };
      return [
        { label, colour: colourOf(i), width: 1.75, points },
        { label: `${label} highest`, ...edge },
        { label: `${label} lowest`, ...edge },
      ];
    }),
    bands: curves.map((_, i) => ({ between: [3 * i + 1, 3 * i + 2], colour: colourOf(i), opacity: 0.13 })),
    height: 260,
    legend: false,
    xLabel: 'step',
  });
  chart.data = [steps, ...curves.flatMap(({ mean, high, low }) => [mean, high, low])];
  return chart;
}

/** Creates a button that hides an algorithm in all charts, or shows it again. */
function toggle(name: string, algorithm: number, charts: readonly LineChart[]): HTMLElement {
  const line = el('i');
  line.style.background = `var(${colourOf(algorithm)})`;
  const button = el('button', '', line, name);
  button.type = 'button';
  let shown = true;
  const tell = () => button.setAttribute('aria-pressed', String(shown));
  tell();
  button.addEventListener('click', () => {
    shown = !shown;
    tell();
    for (const chart of charts) for (const k of [0, 1, 2]) chart.show(3 * algorithm + k, shown);
  });
  return button;
}

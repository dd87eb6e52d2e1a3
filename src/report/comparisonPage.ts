/** compare.html: the curves of several algorithms in one file that loads nothing. */

import { comparedCells, comparedCharts, comparedRows, type AlgorithmRuns } from './comparison.ts';
import { escapeHtml, standalonePage } from './report.ts';
import { REPORT_CSS } from './reportPage.ts';

export interface PageInputs {
  title: string;
  /** What was run, in sentences. */
  about: string;
  all: readonly AlgorithmRuns[];
  /** pass@1 that counts as reached. */
  target: number;
  /** The one config all runs share, as YAML. */
  config: string;
}

export function comparisonPage({ title, about, all, target, config }: PageInputs): Promise<string> {
  return standalonePage({
    title,
    css: REPORT_CSS + PAGE_CSS,
    body: [
      `<h1>${escapeHtml(title)}</h1><p>${escapeHtml(about)}</p>`,
      tableHtml(comparedCells(comparedRows(all, target))),
      '<p>Lines are means over seeds, bands reach from the lowest seed to the highest. Click a name to hide it.</p>',
      '<div id="legend"></div><main id="charts"></main>',
      `<details><summary>config</summary><pre>${escapeHtml(config)}</pre></details>`,
    ],
    data: comparedCharts(all),
    script: PAGE_SCRIPT,
  });
}

function tableHtml([header, ...rows]: string[][]): string {
  const row = (cells: string[], tag: string) =>
    `<tr>${cells.map((cell) => `<${tag}>${escapeHtml(cell)}</${tag}>`).join('')}</tr>`;
  return `<table><thead>${row(header, 'th')}</thead><tbody>${rows.map((r) => row(r, 'td')).join('')}</tbody></table>`;
}

const PAGE_CSS = `
table { border-collapse: collapse; font-size: 14px; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
#legend button { font: inherit; background: none; border: 0; cursor: pointer; padding: .2rem .7rem .2rem 0; }
#legend button.off { opacity: .35; }
#legend i { display: inline-block; width: 14px; height: 4px; margin-right: 5px; vertical-align: middle; }
`;

/** Three series a curve: mean, highest, lowest; the band lies between the last two. */
const PAGE_SCRIPT = `
const colours = ['#2563a8', '#c2621b', '#2a7d4f', '#8a3fa0', '#8a8a2a', '#b03060', '#3a9a9a', '#555555'];
const colourOf = (i) => colours[i % colours.length];
const plots = [];
const data = JSON.parse(document.getElementById('data').textContent);
for (const { title, steps, curves } of data) {
  const box = document.createElement('div');
  box.className = 'chart';
  document.getElementById('charts').append(box);
  const plain = { width: 0, spanGaps: true, points: { show: false } };
  plots.push(new uPlot({
    title, width: box.clientWidth - 4, height: 260,
    scales: { x: { time: false } },
    legend: { show: false },
    axes: [{ label: 'step' }, { size: 64, values: (_, ticks) => ticks.map((tick) => String(Number(tick.toPrecision(3)))) }],
    series: [{ label: 'step' }, ...curves.flatMap(({ label }, i) => [
      { label, stroke: colourOf(i), width: 1.75, spanGaps: true, points: { show: steps.length < 12 } },
      { ...plain, label: label + ' highest', stroke: colourOf(i) + '40' },
      { ...plain, label: label + ' lowest', stroke: colourOf(i) + '40' },
    ])],
    bands: curves.map((_, i) => ({ series: [3 * i + 2, 3 * i + 3], fill: colourOf(i) + '22' })),
  }, [steps, ...curves.flatMap(({ mean, high, low }) => [mean, high, low])], box));
}
(data[0]?.curves ?? []).forEach(({ label }, i) => {
  const button = document.createElement('button');
  const line = document.createElement('i');
  line.style.background = colourOf(i);
  button.append(line, label);
  button.onclick = () => {
    const show = button.classList.toggle('off') === false;
    for (const plot of plots) for (const k of [1, 2, 3]) plot.setSeries(3 * i + k, { show });
  };
  document.getElementById('legend').append(button);
});
`;

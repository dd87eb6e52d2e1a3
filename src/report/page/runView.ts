/** report.html: the summary, the curves and a few rollouts of a run. */

import type { Message } from '../../tasks/task.ts';
import type { LoggedRollout, ShownStep } from '../../runs/rollouts.ts';
import type { ChartData, RunReport } from '../runReport.ts';
import { el, folded, scrolling } from '../../ui/dom.ts';
import { drawCharts, LineChart } from '../../ui/lineChart.ts';
import { plural } from '../../ui/format.ts';

/** A chart with fewer values than this has a mark at each of them. */
const FEW = 40;

/** Adds the content of report.html to the page. */
export function runView(
  { title, summary, charts, rollouts, valRollouts, config }: RunReport,
  parent: HTMLElement,
): void {
  const { figures, draw } = chartFigures(charts);
  parent.append(
    el('h1', '', title),
    scrolling('Summary', el('pre', '', summary)),
    figures,
    el('h2', '', 'Rollouts'),
    ...(rollouts.length > 0 ? rollouts.map(stepView) : [el('p', '', 'No rollouts were logged (trainer.logRollouts).')]),
    ...(valRollouts.length > 0 ? [el('h2', '', 'Answers of evaluations'), ...valRollouts.map(stepView)] : []),
    folded('config.yaml', scrolling('config.yaml', el('pre', '', config))),
  );
  draw();
}

/** Returns the figures of charts. Insert them into the page, then call `draw`. */
export function chartFigures(charts: readonly ChartData[]): { figures: HTMLElement; draw(): void } {
  const curves = charts.map(chartOf);
  const drawings = curves.map((chart, i) => {
    const caption = el('figcaption', '', charts[i].title);
    caption.title = charts[i].hint ?? '';
    return el('figure', 'chart', caption, chart.box);
  });
  const figures = el('div', 'charts', ...drawings);
  return { figures, draw: () => drawCharts(curves, figures) };
}

function chartOf({ steps, series }: ChartData): LineChart {
  const points = steps.length < FEW ? 5 : 0;
  const chart = new LineChart({
    lines: series.map(({ label }, i) => ({ label, colour: `--series-${i}`, width: 1.5, points })),
    height: 230,
    legend: true,
    xLabel: 'step',
  });
  chart.data = [steps, ...series.map(({ values }) => values)];
  return chart;
}

function stepView({ step, rollouts }: ShownStep): HTMLElement {
  const view = folded(`step ${step}`, el('div', 'cards', ...rollouts.map(rolloutView)));
  view.open = true;
  return view;
}

function rolloutView(rollout: LoggedRollout): HTMLElement {
  const {
    score,
    advantage = null,
    turnRewards,
    extra,
    acc,
    stopReason,
    numToolCalls,
    responseTokens,
    answer,
    problem,
  } = rollout;
  const facts = [
    score === null ? 'no reward' : `reward ${score.toFixed(2)}`,
    advantage === null ? '' : `advantage ${advantage.toFixed(2)}`,
    turnRewards ? `by turn ${turnRewards.map((turn) => turn.toFixed(2)).join(', ')}` : '',
    ...Object.entries(extra ?? {}).map(([name, value]) => `${name} ${value}`),
    `answer ${answer}`,
    `${numToolCalls} tool calls`,
    plural(responseTokens, 'token'),
    stopReason,
    problem,
  ];
  const head = el('header', acc === 1 ? 'right' : 'wrong', facts.filter(Boolean).join(' - '));
  return el('article', '', head, ...rollout.messages.map(messageView));
}

/** Shows the text as the model read or wrote it, including tool calls. */
const messageView = ({ role, content }: Message): HTMLElement =>
  el('div', `message ${role}`, el('b', '', role), el('span', '', content));

/** All curves of the page: one figure each, a shared pointer, and other runs overlaid on the shown one. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import { el, svg } from '../../../src/ui/dom.ts';
import { drawCharts, type Mark } from '../../../src/ui/lineChart.ts';
import type { OtherRun } from '../../state/runs.ts';
import { DASHES, LiveChart } from './liveChart.ts';
import { type ChartSpec, CHARTS, criterionCharts } from './specs.ts';

/** Least number of steps on an axis. */
const FEWEST_STEPS = 5;

/** Creates and updates the charts. */
export class Charts {
  readonly #charts: LiveChart[] = [];
  readonly #parent: HTMLElement;
  readonly #legend = el('ul', 'run-legend');

  constructor(parent: HTMLElement) {
    this.#parent = parent;
    this.#legend.hidden = true;
    parent.append(this.#legend);
    this.#append(CHARTS);
    this.show([]);
  }

  /** Replaces the shown steps. @param marks steps to mark in every chart @param name of the shown run */
  show(
    history: readonly Metrics[],
    others: readonly OtherRun[] = [],
    marks: readonly Mark[] = [],
    name = 'This run',
  ): void {
    const shown = new Set(this.#charts.map(({ figure }) => figure.dataset['chart']));
    this.#append(criterionCharts(history).filter(({ id }) => !shown.has(id)));
    const ends = [history, ...others.map((other) => other.history)].map(
      (lines) => lines.at(-1)?.['training/global_step'] ?? 0,
    );
    const lastStep = Math.max(FEWEST_STEPS, ...ends);
    this.#charts.forEach((chart) => chart.show({ history, others, marks, lastStep }));
    this.#name(others, name);
  }

  #append(specs: readonly ChartSpec[]): void {
    const charts = specs.map((spec) => new LiveChart(spec));
    this.#charts.push(...charts);
    this.#parent.append(...charts.map(({ figure }) => figure));
    if (charts.length > 0)
      drawCharts(
        charts.map(({ chart }) => chart),
        this.#parent,
      );
  }

  /** Labels the lines by run. A single run needs no label. */
  #name(others: readonly OtherRun[], shown: string): void {
    this.#legend.hidden = others.length === 0;
    const names = [{ name: shown, slot: -1 }, ...others];
    const items = names.map(({ name, slot }) => el('li', '', sample(slot), name));
    const text = names.map(({ name, slot }) => `${slot} ${name}`).join();
    if (this.#legend.dataset['runs'] === text) return;
    this.#legend.dataset['runs'] = text;
    this.#legend.replaceChildren(...items);
  }
}

/** Returns a sample of a run's line; slot -1 is the shown run. */
function sample(slot: number): SVGElement {
  const stroke = slot < 0 ? 'var(--accent)' : `var(--run-${slot})`;
  const dash = (DASHES[slot] ?? []).join(' ');
  const line = svg('line', { x1: 0, y1: 6, x2: 36, y2: 6, stroke, 'stroke-width': 2.5, 'stroke-dasharray': dash });
  return svg('svg', { width: 36, height: 12, 'aria-hidden': 'true' }, line);
}

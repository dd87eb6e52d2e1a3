/** All curves of the page: one figure each, a shared pointer, and other runs overlaid on the shown one. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import { el, svg } from '../../../src/ui/dom.ts';
import { drawCharts, type Mark } from '../../../src/ui/lineChart.ts';
import type { Along, OtherRun } from '../../state/runs.ts';
import { elapsed } from './curves.ts';
import { DASHES, LiveChart } from './liveChart.ts';
import { type ChartSpec, CHARTS, criterionCharts } from './specs.ts';

/** Least number of steps on an axis. */
const FEWEST_STEPS = 5;

/** Creates and updates the charts. */
export class Charts {
  readonly #charts: LiveChart[] = [];
  readonly #parent: HTMLElement;
  readonly #more: HTMLElement;
  readonly #legend = el('ul', 'run-legend');

  /** @param more element that gets the curves below the timeline */
  constructor(parent: HTMLElement, more: HTMLElement) {
    [this.#parent, this.#more] = [parent, more];
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
    along: Along = 'steps',
  ): void {
    const shown = new Set(this.#charts.map(({ figure }) => figure.dataset['chart']));
    this.#append(criterionCharts(history).filter(({ id }) => !shown.has(id)));
    const runs = [history, ...others.map((other) => other.history)];
    const times = along === 'seconds' ? elapsed(history) : undefined;
    const ends = runs.map((lines) =>
      times ? (elapsed(lines).at(-1) ?? 0) : (lines.at(-1)?.['training/global_step'] ?? 0),
    );
    const last = Math.max(FEWEST_STEPS, ...ends);
    const at = (step: number) => times?.[history.findIndex((line) => line['training/global_step'] === step)] ?? step;
    const placed = marks.map((mark) => ({ ...mark, step: at(mark.step) }));
    this.#charts.forEach((chart) => chart.show({ history, others, marks: placed, last, along }));
    this.#name(others, name);
  }

  #append(specs: readonly ChartSpec[]): void {
    const charts = specs.map((spec) => new LiveChart(spec));
    this.#charts.push(...charts);
    charts.forEach(({ figure }, i) => (specs[i].more ? this.#more : this.#parent).append(figure));
    if (charts.length > 0)
      drawCharts(
        charts.map(({ chart }) => chart),
        document.body,
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

/** Returns a short line in the style of a run's curve, for the legend. Slot -1 is the shown run. */
function sample(slot: number): SVGElement {
  const stroke = slot < 0 ? 'var(--accent)' : `var(--run-${slot})`;
  const dash = (DASHES[slot] ?? []).join(' ');
  const line = svg('line', { x1: 0, y1: 6, x2: 36, y2: 6, stroke, 'stroke-width': 2.5, 'stroke-dasharray': dash });
  return svg('svg', { width: 36, height: 12, 'aria-hidden': 'true' }, line);
}

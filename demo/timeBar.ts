/** Where the time went: one bar, cut by phase, over all steps so far. */

import type { Metrics } from '../src/grpo/metrics.ts';
import { el } from '../src/report/page/dom.ts';
import { duration } from '../src/report/page/format.ts';

/** Phases that follow one another; tools and rewards run inside `generate`. */
const PHASES = [
  { name: 'generate', keys: ['timing_s/gen'] },
  { name: 'log-probs', keys: ['timing_s/old_log_prob', 'timing_s/ref'] },
  { name: 'update', keys: ['timing_s/update_actor'] },
  { name: 'sync', keys: ['timing_s/sync'] },
  { name: 'evaluate', keys: ['timing_s/testing'] },
] as const;

export class TimeBar {
  readonly #parent: HTMLElement;
  #seconds: Record<string, number> = {};

  constructor(parent: HTMLElement) {
    this.#parent = parent;
    this.clear();
  }

  clear(): void {
    this.#seconds = {};
    this.#parent.replaceChildren(el('p', 'empty', 'Shown after the first step.'));
  }

  add(metrics: Metrics): void {
    for (const [name, value] of Object.entries(metrics))
      if (name.startsWith('timing_s/')) this.#seconds[name] = (this.#seconds[name] ?? 0) + value;
    const parts = this.#parts();
    const total = parts.reduce((sum, { seconds }) => sum + seconds, 0);
    const bar = el('div', 'bar');
    const legend = el('ul', 'legend');
    for (const { name, seconds } of parts) {
      if (seconds / total < 0.001) continue;
      const piece = el('span', `piece phase-${name}`);
      piece.style.flexGrow = String(seconds / total);
      piece.title = `${name}: ${duration(seconds)}`;
      bar.append(piece);
      const share = `${((100 * seconds) / total).toFixed(0)}%`;
      legend.append(el('li', '', el('i', `key phase-${name}`), name, el('b', '', `${duration(seconds)}`), share));
    }
    this.#parent.replaceChildren(bar, legend, this.#note());
  }

  #parts(): { name: string; seconds: number }[] {
    const known = PHASES.map(({ name, keys }) => ({ name, seconds: this.#sum(keys) }));
    const inSteps = known.reduce((sum, { name, seconds }) => sum + (name === 'evaluate' ? 0 : seconds), 0);
    return [...known, { name: 'rest', seconds: Math.max(0, this.#sum(['timing_s/step']) - inSteps) }];
  }

  #note(): HTMLElement {
    const [tools, reward] = [this.#sum(['timing_s/tools']), this.#sum(['timing_s/reward'])];
    return el(
      'p',
      'note',
      `Inside generate, summed over tries that overlap: tools ${duration(tools)}, rewards ${duration(reward)}.`,
    );
  }

  #sum(keys: readonly string[]): number {
    return keys.reduce((sum, key) => sum + (this.#seconds[key] ?? 0), 0);
  }
}

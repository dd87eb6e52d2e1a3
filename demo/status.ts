/** Where a run stands: step, phase, speed, time left. */

import type { TrainConfig } from '../src/grpo/config/types.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import type { Phase } from '../src/grpo/types.ts';
import { el, setText } from '../src/report/page/dom.ts';
import { clock, short } from '../src/report/page/format.ts';

const PHASES: Record<Phase, string> = {
  generate: 'Generating',
  tools: 'Running tools',
  reward: 'Scoring',
  'log-probs': 'Log-probs',
  update: 'Updating the model',
  sync: 'Syncing',
  validate: 'Evaluating',
};

const STATES: Record<string, string> = {
  idle: 'Ready',
  loading: 'Loading the model',
  paused: 'Paused',
  done: 'Done',
  failed: 'Failed',
  'no-gpu': 'No GPU',
};

const TILES = { step: 'Step', now: 'Now', speed: 'Tokens per second', left: 'Time left' };

export class Status {
  readonly #tiles: Record<keyof typeof TILES, HTMLElement>;
  readonly #progress: HTMLProgressElement;
  #state = 'idle';
  #phase: Phase | undefined;
  #samples = { done: 0, total: 0 };
  #steps = { done: 0, total: 0 };
  #validations: { problems: number; left: number; seconds: number } = { problems: 0, left: 0, seconds: 0 };
  #stepSeconds = 0;
  #testFreq = 0;

  constructor(parent: HTMLElement, progress: HTMLProgressElement) {
    this.#progress = progress;
    const tile = (key: keyof typeof TILES) => {
      const value = el('dd', '', '\u2013');
      value.id = `status-${key}`;
      parent.append(el('div', 'tile', el('dt', '', TILES[key]), value));
      return value;
    };
    this.#tiles = { step: tile('step'), now: tile('now'), speed: tile('speed'), left: tile('left') };
  }

  begin({ trainer, data, rollout }: TrainConfig): void {
    this.#steps = { done: 0, total: trainer.totalTrainingSteps };
    this.#samples = { done: 0, total: data.trainBatchSize * rollout.n };
    this.#testFreq = trainer.testFreq;
    this.#validations = { problems: data.valMaxSamples, left: this.#evaluationsLeft(), seconds: 0 };
    [this.#stepSeconds, this.#phase] = [0, undefined];
    for (const key of ['speed', 'left'] as const) setText(this.#tiles[key], '\u2013');
    this.#draw();
  }

  setState(state: string): void {
    this.#state = state;
    this.#draw();
  }

  phase(phase: Phase, _step: number): void {
    this.#phase = phase;
    if (phase === 'generate') this.#samples.done = 0;
    this.#draw();
  }

  sample(): void {
    this.#samples.done++;
    this.#draw();
  }

  step(metrics: Metrics): void {
    this.#steps.done = metrics['training/global_step'];
    this.#stepSeconds += metrics['timing_s/step'] ?? 0;
    this.#validations.seconds = metrics['timing_s/testing'] ?? this.#validations.seconds;
    this.#validations.left = this.#evaluationsLeft();
    const speed = metrics['perf/throughput'];
    if (speed !== undefined) setText(this.#tiles.speed, short(speed));
    if (this.#steps.done > 0) setText(this.#tiles.left, clock(this.#secondsLeft()));
    this.#draw();
  }

  /** Mean step so far, and the evaluations still to come at what the last one took. */
  #secondsLeft(): number {
    const { done, total } = this.#steps;
    return (this.#stepSeconds / done) * (total - done) + this.#validations.left * this.#validations.seconds;
  }

  /** The last one is done twice, sampled and greedy. */
  #evaluationsLeft(): number {
    const { done, total } = this.#steps;
    if (done >= total) return 0;
    const at = (step: number) => (this.#testFreq > 0 ? Math.floor(step / this.#testFreq) : 0);
    return at(total - 1) - at(done) + 1;
  }

  #draw(): void {
    const { done, total } = this.#steps;
    setText(this.#tiles.step, total > 0 ? `${done} of ${total}` : '\u2013');
    setText(this.#tiles.now, this.#now());
    const part = this.#samples.total > 0 && this.#phase === 'generate' ? this.#samples.done / this.#samples.total : 0;
    this.#progress.value = total > 0 ? Math.min(1, (done + part * 0.7) / total) : 0;
  }

  #now(): string {
    const fixed = STATES[this.#state];
    if (fixed) return fixed;
    const doing = this.#phase ? PHASES[this.#phase] : 'Starting';
    const { done, total } = this.#samples;
    const detail = this.#phase === 'generate' && done > 0 ? ` ${done} of ${total}` : '';
    const evaluated = this.#phase === 'validate' ? ` ${this.#validations.problems} problems` : '';
    const after = { pausing: ', then pause', stopping: ', then stop' }[this.#state] ?? '';
    return `${doing}${detail}${evaluated}${after}`;
  }
}

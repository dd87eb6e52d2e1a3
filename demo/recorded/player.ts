/** Plays a run that scripts/record.mjs recorded. It writes the same signals as a run. */

import { batch, effect, signal } from '@preact/signals';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { config, history, tries } from '../state/page.ts';
import { openRecording, type RecordedName, type Recording } from './recording.ts';

/** Steps per second at speed 1. */
const STEPS_PER_S = 2;

/** Plays a recording. */
export class Player {
  readonly config: TrainConfig;
  readonly recording: Recording;
  /** Number of history lines that are shown. */
  readonly at = signal(0);
  readonly playing = signal(false);
  readonly speed = signal(1);
  readonly #tries: ReadonlyMap<number, LoggedRollout[]>;
  #endings: (() => void)[] = [];

  static async open(name: RecordedName): Promise<Player> {
    return new Player(await openRecording(name));
  }

  private constructor(recording: Recording) {
    this.recording = recording;
    this.config = parseTrainConfig(recording.config, { source: 'config.yaml', note: () => {} });
    const steps = [...new Set(recording.tries.map(({ step }) => step))];
    this.#tries = new Map(steps.map((at) => [at, recording.tries.filter(({ step }) => step === at)]));
  }

  /** Shows the recording, and follows `at` until `close`. */
  show(): void {
    this.#endings = [effect(() => this.#show()), effect(() => this.#tick())];
  }

  get lines(): number {
    return this.recording.history.length;
  }

  play(): void {
    if (this.at.value === this.lines) this.at.value = 1;
    this.playing.value = true;
  }

  /** Stops the player. What it shows stays. */
  close(): void {
    this.#endings.forEach((end) => end());
  }

  #show(): void {
    const shown = this.recording.history.slice(0, this.at.value);
    const newest = shown.findLast((line) => this.#tries.has(line['training/global_step']));
    batch(() => {
      [config.value, history.value] = [this.config, shown];
      tries.value = newest ? this.#tries.get(newest['training/global_step'])! : [];
    });
  }

  #tick(): (() => void) | undefined {
    if (!this.playing.value) return undefined;
    const timer = setInterval(
      () => {
        this.at.value = Math.min(this.lines, this.at.peek() + 1);
        if (this.at.peek() === this.lines) this.playing.value = false;
      },
      1000 / (STEPS_PER_S * this.speed.value),
    );
    return () => clearInterval(timer);
  }
}

/** Samples training problems from three pools by the result of their last group (prime-rl's difficulty pools). */

import { InputError } from '../../errors.ts';
import { keyedRng } from '../../tasks/random.ts';
import type { TrainConfig } from '../config/types.ts';
import type { Metrics } from '../metrics.ts';
import type { StatefulPart } from '../parts.ts';

const POOLS = ['hard', 'normal', 'easy'] as const;
type Pool = (typeof POOLS)[number];

/**
 * Samples problems with replacement, by pool. A problem's pool follows from the mean score of its latest group; a
 * problem without a group has weight 1. A checkpoint stores these means. The random key of a draw is the seed and the
 * number of the draw.
 */
export class DifficultySampler implements StatefulPart {
  readonly #settings: TrainConfig['data']['difficulty'];
  readonly #seed: number;
  /** [trainSize] mean score of each problem's last group; undefined if the problem had none. */
  readonly #scores: (number | undefined)[];

  constructor(config: TrainConfig, trainSize: number) {
    this.#settings = config.data.difficulty;
    this.#seed = config.seed;
    this.#scores = Array.from({ length: trainSize }, () => undefined);
  }

  /** Returns the index of the problem for draw `number` of the run, by the current pools. */
  draw(number: number): number {
    const weights = this.#scores.map((score) => this.#weight(score));
    const total = weights.reduce((a, b) => a + b, 0);
    if (total === 0) {
      throw new InputError(
        'data.sampler "difficulty" has no problem left to sample: all are in pools of weight 0. Raise a data.difficulty weight.',
      );
    }
    let left = keyedRng('difficulty', this.#seed, number).uniform() * total;
    const index = weights.findIndex((weight) => (left -= weight) < 0);
    return index >= 0 ? index : weights.findLastIndex((weight) => weight > 0); // rounding of the sum can leave no index
  }

  /** Records the mean score of a group of problem `index`. */
  observe(index: number, score: number): void {
    this.#scores[index] = score;
  }

  /** Number of problems in each pool. */
  metrics(): Metrics {
    const pools = this.#scores.map((score) => (score === undefined ? 'unseen' : this.#pool(score)));
    const count = (name: string) => pools.filter((pool) => pool === name).length;
    return Object.fromEntries(['unseen', ...POOLS].map((name) => [`pool/${name}`, count(name)]));
  }

  /** Index and last mean score of each problem that had a group. */
  state(): [number, number][] {
    return this.#scores.flatMap((score, index) => (score === undefined ? [] : [[index, score] as [number, number]]));
  }

  /** Throws InputError if the state is not a list of problem numbers of this task with their scores. */
  restore(state: unknown): void {
    const { length } = this.#scores;
    const isSeen = (seen: unknown): seen is [number, number] =>
      Array.isArray(seen) &&
      seen.length === 2 &&
      Number.isInteger(seen[0]) &&
      seen[0] >= 0 &&
      seen[0] < length &&
      Number.isFinite(seen[1]);
    if (!Array.isArray(state) || !state.every(isSeen))
      throw new InputError(
        `The checkpoint's state of data.sampler is not a list of problems 0 to ${length - 1} with their scores: it is damaged, or of ` +
          'another data.trainMaxSamples.',
      );
    this.#scores.fill(undefined);
    for (const [index, score] of state) this.#scores[index] = score;
  }

  #pool(score: number): Pool {
    const { hard, easy } = this.#settings;
    return score <= hard ? 'hard' : score <= easy ? 'normal' : 'easy';
  }

  #weight(score: number | undefined): number {
    return score === undefined ? 1 : this.#settings[`${this.#pool(score)}Weight`];
  }
}

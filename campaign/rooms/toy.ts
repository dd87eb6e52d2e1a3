/** A policy without a GPU for the real verifier: next-token probabilities depend on the version of the weights and the position. */

import type { CheckingModel } from '../../src/extensions/rooms/index.ts';
import type { PackedBatch } from '../../src/model/engine.ts';
import { uniformAt } from '../../src/model/random.ts';
import type { GenerateRequest, Generation, TurnEngine } from '../../src/rollout/types.ts';
import { keyedRng } from '../../src/tasks/random.ts';

/** First token id that the policy can sample, and the number of ids. All are tokens of plain text. */
const [FIRST, COUNT] = [100, 60];
/** Standard deviation of the logits, and of their change from one version of the weights to the next, like that of a training step. */
const [SPREAD, STEP] = [2, 0.05];

interface Row {
  /** [COUNT + 1] cumulative probability before each token, and the total, in the sampler's precision. */
  cdf: Float32Array;
  logProbs: Float32Array;
}

/** The toy policy on one adapter. */
export class ToyPolicy {
  readonly #rows = new Map<string, Row>();
  readonly #noise: number;

  /** @param noise largest relative difference of this adapter's probabilities */
  constructor(noise = 0) {
    this.#noise = noise;
  }

  /** Draws the token of a key at a position, with its log-prob. */
  draw(version: number, key: readonly [number, number], position: number): { id: number; logProb: number } {
    const { cdf, logProbs } = this.#row(version, position);
    const goal = Math.fround(uniformAt(key, position) * cdf[COUNT]);
    const j = Math.min(COUNT - 1, cdf.findIndex((mass, t) => t > 0 && goal < mass) - 1);
    return { id: FIRST + j, logProb: logProbs[j] };
  }

  /** Returns the cumulative probabilities around each token by the policy itself, as the controller computes them. */
  modelOf(version: number): CheckingModel {
    return {
      drawBounds: async ({ targets, entryRow, headRows, positions }: PackedBatch) => {
        const none = () => new Float32Array(targets.length);
        const bounds = { logProbs: none(), below: none(), through: none(), total: none() };
        targets.forEach((id, e) => {
          const { cdf, logProbs } = this.#row(version, positions[headRows[entryRow[e]]] + 1);
          const j = id - FIRST;
          bounds.logProbs[e] = logProbs[j] ?? -100;
          bounds.below[e] = cdf[j] ?? 2;
          bounds.through[e] = cdf[j + 1] ?? 2;
          bounds.total[e] = cdf[COUNT];
        });
        return bounds;
      },
    };
  }

  #row(version: number, position: number): Row {
    const name = `${version} ${position}`;
    const known = this.#rows.get(name);
    if (known) return known;
    const logits = normals(`toy ${position}`).map((z) => z * SPREAD);
    for (let v = 1; v <= version; v++) normals(`toy ${position} ${v}`).forEach((z, j) => (logits[j] += z * STEP));
    const off = normals(`adapter ${name}`);
    const masses = logits.map((logit, j) => Math.exp(logit) * (1 + this.#noise * Math.max(-1, Math.min(1, off[j]))));
    const sum = masses.reduce((a, b) => a + b, 0);
    const cdf = new Float32Array(COUNT + 1);
    masses.forEach((mass, j) => (cdf[j + 1] = cdf[j] + mass / sum));
    const row = { cdf, logProbs: Float32Array.from(masses, (mass) => Math.log(mass / sum)) };
    this.#rows.set(name, row);
    return row;
  }
}

/** Returns COUNT normal numbers. */
function normals(name: string): number[] {
  const rng = keyedRng(name);
  const normal = () => Math.sqrt(-2 * Math.log(1 - rng.uniform())) * Math.cos(2 * Math.PI * rng.uniform());
  return Array.from({ length: COUNT }, normal);
}

/** Samples turns with the toy policy, up to their limit. `versionOf` selects the version of the weights for each token. */
export class ToyTurns implements TurnEngine {
  readonly #policy: ToyPolicy;
  readonly #versionOf: (key: readonly [number, number], position: number) => number;

  constructor(policy: ToyPolicy, versionOf: (key: readonly [number, number], position: number) => number) {
    this.#policy = policy;
    this.#versionOf = versionOf;
  }

  generate({ contextIds, key, sampling }: GenerateRequest): Promise<Generation> {
    const positions = Array.from({ length: sampling.maxNewTokens }, (_, t) => contextIds.length + t);
    const versions = positions.map((position) => this.#versionOf(key, position));
    const drawn = positions.map((position, t) => this.#policy.draw(versions[t], key, position));
    return Promise.resolve({
      tokenIds: Uint32Array.from(drawn, ({ id }) => id),
      logProbs: Float32Array.from(drawn, ({ logProb }) => logProb),
      weightVersions: Uint32Array.from(versions),
      stopReason: 'length',
    });
  }

  release(): void {}
  abort(): void {}
}

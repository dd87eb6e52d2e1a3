/** The weights of a scripted engine, and their training. */

import type { Moment } from './gate.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type {
  DrawBounds,
  ModelEngine,
  OptimizerOptions,
  OptimizerStepResult,
  PackedBatch,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from '../../src/model/engine.ts';

/** The parts of a scripted engine that its model uses. */
interface ModelDevice {
  throwIfLost(): void;
  at(moment: Moment, number: number): Promise<void> | undefined;
  isSolved(batch: PackedBatch, s: number): boolean;
}

/** Sizes of a scripted engine that has no checkpoint. */
export const SCRIPTED_CONFIG: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 512,
  hiddenSize: 8,
  intermediateSize: 8,
  numHiddenLayers: 1,
  numAttentionHeads: 2,
  numKeyValueHeads: 1,
  headDim: 4,
  rmsNormEps: 1e-6,
  ropeTheta: 10000,
  ropeScaling: null,
  maxPositionEmbeddings: 256,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.3,
};

/**
 * Number of elements in each tensor that updates change. Only these affect the engine's state, so an update takes microseconds for any
 * model size.
 */
const MOVED = 16;
const SKILL = 'model.norm.weight';
/** Log-odds with which the initial weights solve a problem. A change of SKILL by 1 adds LOGIT_PER_UNIT. */
const START_LOGIT = -0.8;
const LOGIT_PER_UNIT = 400;

/** Mixes integers into one 32-bit integer, like murmur3. */
export function mix(...values: number[]): number {
  let h = 0x9e3779b9;
  for (const value of values) {
    h = Math.imul(h ^ Math.imul(value, 0xcc9e2d51), 0x85ebca6b);
    h ^= h >>> 13;
  }
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
/** Returns a pseudo-random number in [0, 1) for the integers. */
export const unit = (...values: number[]): number => mix(...values) / 2 ** 32;

export const copyOf = (tensors: TensorMap): TensorMap =>
  new Map([...tensors].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]));
const zerosLike = (tensors: TensorMap): TensorMap =>
  new Map([...tensors].map(([name, { shape, data }]) => [name, { shape, data: new Float32Array(data.length) }]));

/** Weights, and the log-probs that they predict. The policy and its frozen reference are instances. */
export class ScriptedWeights {
  tensors: TensorMap;
  /** Hash of all elements that updates can change. */
  state = 0;
  isFinite = true;
  readonly #start: number;

  constructor(tensors: TensorMap) {
    this.tensors = copyOf(tensors);
    this.#start = this.#skill;
    this.changed();
  }

  get #skill(): number {
    return this.tensors.get(SKILL)?.data[0] ?? 1;
  }

  /** Probability that the model solves a problem. */
  get chance(): number {
    return 1 / (1 + Math.exp(-START_LOGIT - LOGIT_PER_UNIT * (this.#skill - this.#start)));
  }

  /** Recomputes the hash. Must be called after every change of the tensors. */
  changed(): void {
    this.state = 0;
    this.isFinite = true;
    for (const { data } of this.tensors.values()) {
      const moved = data.slice(0, MOVED);
      this.isFinite &&= moved.every(Number.isFinite);
      this.state = mix(this.state, ...new Int32Array(moved.buffer));
    }
  }

  /** Returns the log-prob of `token` after `before` at `position`. */
  logProb(before: number, position: number, token: number): number {
    if (!this.isFinite) return NaN;
    return Math.fround(Math.log(0.05 + 0.9 * unit(this.state, before, position, token)));
  }

  entropy(before: number, position: number): number {
    return this.isFinite ? Math.fround(0.2 + unit(this.state, before, position, -1)) : NaN;
  }

  /** Returns the most likely tokens after `before`, largest first, with probabilities that sum to less than 1. */
  alternatives(before: number, position: number, count: number, vocabSize: number) {
    const most = 0.3 + 0.4 * unit(this.state, before, position, -2);
    return Array.from({ length: count }, (_, i) => ({
      tokenId: mix(this.state, before, position, -3, i) % vocabSize,
      logProb: Math.fround(Math.log(i === 0 ? most : (1 - most) * most * 0.5 ** i)),
    }));
  }
}

/** Trains the weights, or computes log-probs with them. */
export class ScriptedModel implements ModelEngine {
  readonly name = 'wgsl';
  readonly config: ModelConfig;
  readonly weights: ScriptedWeights;
  #moments: { exp_avg: TensorMap; exp_avg_sq: TensorMap };
  #gradient = new Float32Array(MOVED);
  #skillGradient = 0;
  #updates = 0;
  readonly #device: ModelDevice;

  constructor(config: ModelConfig, tensors: TensorMap, device: ModelDevice) {
    this.config = config;
    this.weights = new ScriptedWeights(tensors);
    this.#moments = { exp_avg: zerosLike(tensors), exp_avg_sq: zerosLike(tensors) };
    this.#device = device;
  }

  /** Number of optimizer steps that these weights have had. */
  get updates(): number {
    return this.#updates;
  }

  async logProbs(batch: PackedBatch): Promise<TokenOutputs> {
    this.#device.throwIfLost();
    const rows = batch.entryRow.length;
    const out = { logProbs: new Float32Array(rows), entropy: new Float32Array(rows) };
    for (let e = 0; e < rows; e++) {
      const row = batch.headRows[batch.entryRow[e]];
      const at = [batch.tokens[row], batch.positions[row]] as const;
      out.logProbs[e] = this.weights.logProb(...at, batch.targets[e]);
      out.entropy[e] = this.weights.entropy(...at);
    }
    return out;
  }

  /** Returns bounds with which every random number selects the token of the batch, so that verification accepts it. */
  async drawBounds(batch: PackedBatch): Promise<DrawBounds> {
    const { logProbs } = await this.logProbs(batch);
    const all = (value: number) => logProbs.map(() => value);
    return { logProbs, below: all(0), through: all(1), total: all(1) };
  }

  async forwardBackward(batch: PackedBatch, loss: TrainLoss): Promise<TokenOutputs> {
    const out = await this.logProbs(batch);
    const gradient = this.#gradient;
    for (let s = 0; s + 1 < batch.seqStart.length; s++) {
      const [from, to] = [batch.seqStart[s], batch.seqStart[s + 1]];
      const sense = from < to && this.#device.isSolved(batch, s) ? 1 : -1;
      for (let e = from; e < to; e++) {
        const d = dLogProb(loss, e);
        const slot = mix(batch.targets[e], e) % MOVED;
        gradient[slot] = gradient[slot] * 0.999 + d * (1 + (batch.targets[e] % 7) + out.logProbs[e]);
        this.#skillGradient += d * sense;
      }
    }
    return out;
  }

  /** Runs AdamW on the elements that updates change. */
  async optimizerStep({ lr, beta1, beta2, eps, weightDecay }: OptimizerOptions): Promise<OptimizerStepResult> {
    await this.#device.at('update', this.#updates + 1);
    const gradNorm = Math.hypot(this.#skillGradient, ...this.#gradient);
    const skipped = !Number.isFinite(gradNorm);
    let tensor = 0;
    for (const [name, { data }] of skipped ? [] : this.weights.tensors) {
      const [mean, square] = [this.#moments.exp_avg, this.#moments.exp_avg_sq].map((all) => dataOf(all, name));
      tensor++;
      for (let i = 0; i < Math.min(MOVED, data.length); i++) {
        const g = name === SKILL && i === 0 ? this.#skillGradient : this.#gradient[(i + tensor) % MOVED];
        mean[i] = beta1 * mean[i] + (1 - beta1) * g;
        square[i] = beta2 * square[i] + (1 - beta2) * g * g;
        const unbiased = mean[i] / (1 - beta1 ** (this.#updates + 1));
        const root = Math.sqrt(square[i] / (1 - beta2 ** (this.#updates + 1)));
        data[i] -= lr * (unbiased / (root + eps) + weightDecay * data[i]);
      }
    }
    if (!skipped) this.#updates++;
    await this.zeroGrad();
    this.weights.changed();
    return { gradNorm, skipped };
  }

  async zeroGrad(): Promise<void> {
    this.#gradient = new Float32Array(MOVED);
    this.#skillGradient = 0;
  }

  async exportWeights(): Promise<TensorMap> {
    this.#device.throwIfLost();
    return copyOf(this.weights.tensors);
  }

  async importWeights(tensors: TensorMap): Promise<void> {
    this.weights.tensors = new Map([...this.weights.tensors, ...copyOf(tensors)]);
    this.weights.changed();
  }

  async exportOptimizer(): Promise<TensorMap> {
    const suffixed = Object.entries(this.#moments).flatMap(([suffix, tensors]) =>
      [...copyOf(tensors)].map(([name, tensor]) => [`${name}.${suffix}`, tensor] as const),
    );
    return new Map([['step', { shape: [1], data: Float32Array.of(this.#updates) }], ...suffixed]);
  }

  async importOptimizer(tensors: TensorMap): Promise<void> {
    this.#updates = dataOf(tensors, 'step')[0];
    const part = (suffix: string): TensorMap =>
      new Map(
        [...this.weights.tensors].map(([name, { shape }]) => [
          name,
          { shape, data: dataOf(tensors, `${name}.${suffix}`).slice() },
        ]),
      );
    this.#moments = { exp_avg: part('exp_avg'), exp_avg_sq: part('exp_avg_sq') };
  }

  async exportGradients(): Promise<TensorMap> {
    const gradients = zerosLike(this.weights.tensors);
    for (const { data } of gradients.values()) data.set(this.#gradient.subarray(0, data.length));
    return gradients;
  }

  destroy(): void {}
}

function dataOf(tensors: TensorMap, name: string): Float32Array {
  const found = tensors.get(name);
  if (!found) throw new Error(`The scripted engine has no tensor ${name}.`);
  return found.data;
}

/** Returns d loss / d logp of an entry. Assumes a ratio of 1, as for a sample that was just generated. */
function dLogProb(loss: TrainLoss, e: number): number {
  if (loss.kind === 'nll') return -loss.weights[e];
  if (loss.kind === 'coefficients') return loss.dLogProbs[e];
  const { advantages, weights, klWeights, oldLogProbs, refLogProbs } = loss.inputs;
  const kl = refLogProbs ? loss.spec.klLossCoef * klWeights[e] * (oldLogProbs[e] - refLogProbs[e]) : 0;
  return kl - advantages[e] * weights[e];
}

/** The policy update of a step: epochs over mini-batches, each split into micro-batches whose gradients add up. */

import type { ModelEngine } from '../../model/engine.ts';
import { mulberry32 } from '../../model/random.ts';
import type { TrainConfig } from '../config/types.ts';
import type { AsyncCustomLoss } from '../losses/types.ts';
import type { PolicyLoss } from '../losses/index.ts';
import { givingWay } from '../pipeline/givingWay.ts';
import { meanTrained, type Metrics, reduceMetrics, rolloutProbsDiff } from '../metrics.ts';
import type { TrainerEngine, TrainerState } from '../types.ts';
import { gatherEntries, type MiniBatch, type Sample, trainedCount } from './batch.ts';
import { adaptEntropy, entropyCoeffOf } from './controllers.ts';
import { optimizerOptions, scheduledLr, withLr } from './learningRate.ts';
import {
  type AccumulatedMiniBatch,
  type PolicyData,
  PolicyGradient,
  type PreparedMiniBatch,
  type TokenLosses,
  tokenOutputs,
} from './policyGradient.ts';
import type { StepTokens } from './stepTokens.ts';
import { type UpdatedTokens, updatedTokens } from './tokenNumbers.ts';

export interface UpdateResult {
  metrics: Metrics;
  /** Number of optimizer steps. */
  updates: number;
  /** Number of entries that went through forward and backward. */
  trainedTokens: number;
  /** Adaptive entropy bonus after the last update. */
  entropy: TrainerState['entropy'];
}

/** An update whose gradient is computed, before its optimizer step. */
interface UpdateGradients extends TokenLosses {
  batch: MiniBatch;
  metrics: Metrics;
}

/** Data of a step that its updates (one per mini-batch and epoch) share. */
interface UpdateStep extends Omit<PolicyData, 'normalization'> {
  /** Sample indices of each mini-batch; every mini-batch has a trained token. */
  miniBatches: number[][];
}

/** Updates the policy on a step's samples, and computes the reference's and the old policy's log-probs for it. */
export class PolicyUpdater {
  readonly #config: TrainConfig;
  readonly #engine: TrainerEngine;
  readonly #gradient: PolicyGradient;
  readonly #isOwnSize: boolean;

  /**
   * @param isOwnSize true = each mini-batch is averaged over the samples that it has; false = over the size of a full
   * mini-batch
   */
  constructor(config: TrainConfig, engine: TrainerEngine, userLoss?: AsyncCustomLoss | PolicyLoss, isOwnSize = false) {
    this.#isOwnSize = isOwnSize;
    this.#config = withLr(config, engine.model.config);
    this.#engine = engine;
    this.#gradient = new PolicyGradient(config, givingWay(engine), userLoss);
  }

  /**
   * Updates the policy on the samples of the step after `state`, once for each mini-batch of each epoch. If it throws,
   * earlier updates have been made, and the caller must clear the gradients of the failed mini-batch.
   * @param done receives each finished mini-batch, for `updatedTokens`
   */
  async update(
    samples: Sample[],
    tokens: StepTokens,
    state: Pick<TrainerState, 'step' | 'entropy'>,
    done?: AccumulatedMiniBatch[],
  ): Promise<UpdateResult> {
    const adaptive = this.#config.actor.entropyTarget !== undefined;
    let { entropy } = state;
    const step = this.#stepOf(samples, tokens, state.step + 1);
    const all: Metrics[] = [];
    let trainedTokens = 0;
    const lr = scheduledLr(this.#config, state.step);
    let next = this.#prepare(step, 0);
    for (let index = 0; next; index++) {
      const { batch }: PreparedMiniBatch = next;
      trainedTokens += batch.entrySample.length;
      const entropyCoeff = entropyCoeffOf(this.#config, entropy);
      const updated = await this.#miniBatch(step, index, next, { lr, entropyCoeff });
      const { metrics, bonusEntropy, prepared } = updated;
      done?.push(updated.done);
      entropy = adaptEntropy(this.#config, entropy, bonusEntropy);
      all.push({ ...metrics, ...(adaptive && { 'actor/entropy_coeff': entropyCoeff }) });
      next = prepared;
    }
    const metrics = { ...reduceMetrics(all), ...(this.#gradient.skips && skippedShare(step, trainedTokens)) };
    return { metrics, updates: all.length, trainedTokens, entropy };
  }

  /**
   * Computes the first update of step `number` up to its gradient, which stays on the engine; undefined if the step has
   * no trained token.
   */
  async gradients(samples: Sample[], tokens: StepTokens, number: number): Promise<UpdateGradients | undefined> {
    const step = this.#stepOf(samples, tokens, number);
    const prepared = this.#prepare(step, 0);
    if (!prepared) return undefined;
    const done = await this.#gradient.accumulate(this.#dataOf(step, 0), prepared);
    return { batch: done.batch, metrics: this.#gradient.metrics(done), ...this.#gradient.tokenLosses(done) };
  }

  /** Per-token values of a step's updates. */
  updatedTokens(samples: readonly Sample[], updates: readonly AccumulatedMiniBatch[]): UpdatedTokens {
    return updatedTokens(this.#gradient, samples, updates);
  }

  #stepOf(samples: Sample[], tokens: StepTokens, number: number): UpdateStep {
    return { samples, tokens, miniBatches: this.#miniBatches(samples, tokens, number) };
  }

  /** Data of a mini-batch, with the sizes by which its means are divided. */
  #dataOf(step: UpdateStep, index: number): PolicyData {
    const { actor, data, rollout } = this.#config;
    const globalBatchSize = this.#isOwnSize ? step.miniBatches[index].length : actor.ppoMiniBatchSize * rollout.n;
    return { ...step, normalization: { maxResponseLength: data.maxResponseLength, globalBatchSize } };
  }

  /**
   * Runs one update: forward, loss and backward, optimizer step. The host prepares the next update while the device
   * computes. The optimizer steps even without entries: its moments decay and change the weights.
   */
  async #miniBatch(
    step: UpdateStep,
    index: number,
    next: PreparedMiniBatch,
    { lr, entropyCoeff }: { lr: number; entropyCoeff: number },
  ) {
    const computing = this.#gradient.accumulate(this.#dataOf(step, index), next, entropyCoeff);
    const [done, prepared] = await bothDone(computing, () => this.#prepare(step, index + 1));
    const stepping = this.#engine.model.optimizerStep(optimizerOptions(this.#config, lr));
    const { batch, inputs, outputs } = done;
    const [{ gradNorm, skipped }, { lossMetrics, probsDiff }] = await bothDone(stepping, () => ({
      lossMetrics: this.#gradient.metrics(done),
      // Only the first update's log-probs are of the policy that sampled, so only these are compared with the
      // sampler's.
      probsDiff: index === 0 ? rolloutProbsDiff(gatherEntries(batch, rolloutLogProbsOf(step)), outputs.logProbs) : {},
    }));
    const metrics = {
      ...lossMetrics,
      'actor/grad_norm': gradNorm,
      'actor/skipped_updates': skipped ? 1 : 0,
      'actor/lr': lr,
      ...probsDiff,
    };
    const bonusEntropy = meanTrained(outputs.entropy, inputs.entropyWeights ?? inputs.klWeights);
    return { metrics, bonusEntropy, prepared, done };
  }

  /** Prepares the mini-batch with a given number; undefined after the last one. */
  #prepare(step: UpdateStep, index: number): PreparedMiniBatch | undefined {
    const members = step.miniBatches[index];
    return members && this.#gradient.prepare(this.#dataOf(step, index), members);
  }

  /**
   * Log-probs of the sampled tokens under the frozen reference, one array per sample; undefined if no KL term is on.
   */
  async refLogProbs(samples: Sample[]): Promise<ArrayLike<number>[] | undefined> {
    const { actor, algorithm } = this.#config;
    if (!actor.useKlLoss && !algorithm.useKlInReward) return undefined;
    const { reference } = this.#engine;
    if (!reference) throw new Error('A KL term needs a reference model, but the engine was made without one.');
    return this.#sampleLogProbs(reference, samples);
  }

  /**
   * Log-probs under the policy before the step's first update: the "old" policy. Needed only if another policy sampled.
   */
  oldLogProbs(samples: Sample[]): Promise<ArrayLike<number>[]> {
    return this.#sampleLogProbs(this.#engine.model, samples);
  }

  async #sampleLogProbs(model: ModelEngine, samples: Sample[]): Promise<ArrayLike<number>[]> {
    const masks = samples.map(({ trajectory }) => trajectory.mask);
    return (await tokenOutputs(this.#config, model, samples, masks)).logProbs;
  }

  /**
   * Sample indices of each mini-batch with a trained token, epoch by epoch: whole groups, shuffled by seed, step and
   * epoch.
   */
  #miniBatches(samples: Sample[], { masks }: StepTokens, step: number): number[][] {
    const { ppoEpochs, ppoMiniBatchSize, shuffle } = this.#config.actor;
    const byGroup = new Map<number, number[]>();
    samples.forEach(({ group }, s) => byGroup.set(group, [...(byGroup.get(group) ?? []), s]));
    const batches: number[][] = [];
    for (let epoch = 0; epoch < ppoEpochs; epoch++) {
      const groups = [...byGroup.values()];
      if (shuffle) shuffleInPlace(groups, this.#config.seed * 7919 + step * 31 + epoch);
      for (let g = 0; g < groups.length; g += ppoMiniBatchSize)
        batches.push(groups.slice(g, g + ppoMiniBatchSize).flat());
    }
    return batches.filter((batch) => batch.some((s) => trainedCount(masks[s]) > 0));
  }
}

/**
 * `actor/skipped_tokens_share`: share of the mini-batches' trained tokens that did not go through forward and backward.
 */
function skippedShare({ miniBatches, tokens }: UpdateStep, trained: number): Metrics {
  const all = miniBatches.flat().reduce((count, s) => count + trainedCount(tokens.masks[s]), 0);
  return all > 0 ? { 'actor/skipped_tokens_share': 1 - trained / all } : {};
}

/**
 * Waits for the GPU's work even if the work on the CPU throws, so that no work is half submitted when the error is
 * reported.
 */
async function bothDone<T, U>(computing: Promise<T>, hostWork: () => U): Promise<[T, U]> {
  const settled = await Promise.allSettled([computing, Promise.resolve().then(hostWork)]);
  const failed = settled.find((result) => result.status === 'rejected');
  if (failed) throw failed.reason;
  return settled.map((result) => (result as PromiseFulfilledResult<T | U>).value) as [T, U];
}

/** Fisher-Yates, seeded. */
function shuffleInPlace<T>(items: T[], seed: number): void {
  const uniform = mulberry32(seed);
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(uniform() * (i + 1));
    [items[i], items[j]] = [items[j], items[i]];
  }
}

const rolloutLogProbsOf = ({ samples }: UpdateStep) => samples.map(({ trajectory }) => trajectory.logProbs);

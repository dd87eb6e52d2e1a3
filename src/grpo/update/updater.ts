/** The policy update of a step: epochs over mini-batches, each cut into micro-batches whose gradients add up. */

import type { ModelEngine, PolicyLossInputs, PolicyLossSpec, TokenOutputs } from '../../model/engine.ts';
import { mulberry32 } from '../../model/random.ts';
import { lossWeights, type LossWeights } from '../losses/aggregate.ts';
import { policyLossSpec } from '../config/resolve.ts';
import type { TrainConfig } from '../config/types.ts';
import { type CurrentPolicyResult, correctByCurrentPolicy, needsCurrentPolicy } from '../correction/currentPolicy.ts';
import {
  computePolicyLoss,
  isOwnLoss,
  type LossRows,
  type PolicyLoss,
  policyLossOf,
  selectTokens,
} from '../losses/index.ts';
import { type CustomLoss, type CustomLossResult, customMetrics, hostGradients, NO_LOSS } from '../losses/custom.ts';
import { meanTrained, type Metrics, reduceMetrics, rolloutProbsDiff } from '../metrics.ts';
import { adaptEntropy, entropyCoeffOf } from './controllers.ts';
import { lrFactor, warmupSteps } from './learningRate.ts';
import {
  gatherEntries,
  type MiniBatch,
  packMiniBatch,
  placeByStep,
  type Sample,
  scatterEntries,
  sliceInputs,
  trainedCount,
} from './batch.ts';
import type { StepTokens } from './stepTokens.ts';
import type { TrainerEngine, TrainerState } from '../types.ts';

export interface UpdateResult {
  metrics: Metrics;
  /** Optimizer steps. */
  updates: number;
  /** Entries that went through forward and backward. */
  trainedTokens: number;
  /** The adaptive entropy bonus after the last of them. */
  entropy: TrainerState['entropy'];
}

/** A step's data, which its updates share. */
interface UpdateStep {
  samples: Sample[];
  tokens: StepTokens;
  /** Samples of each mini-batch, by index; every one of them has something to train on. */
  miniBatches: number[][];
  /** Samples whose tokens all have advantage 0 are left out: they cannot move the policy. */
  skips: boolean;
}

/** What an update computes on; `batch` is empty where nothing in the mini-batch can move the policy. */
interface PreparedMiniBatch {
  batch: MiniBatch;
  /** undefined where they depend on the policy as it will then be */
  inputs: PolicyLossInputs | undefined;
}

/** Weights of a mini-batch's tokens, one array a sample of the step, empty for those outside it. */
interface StepWeights extends LossWeights {
  /** Only where the entropy bonus is confined to some tokens. */
  entropyWeights?: Float64Array[];
  /** Only where the current policy rejected tokens. */
  masks?: ArrayLike<number>[];
}

/** Of the entries of a mini-batch, before its optimizer step. */
interface UpdateOutputs extends TokenOutputs {
  /** What a loss that is a function returned, micro-batch by micro-batch. */
  own: CustomLossResult[];
}

interface CurrentPolicy {
  logProbs: Float32Array;
  result: CurrentPolicyResult;
}

/** Updates the policy on a step's samples, and computes the log-probs that a step needs of its models. */
export class PolicyUpdater {
  readonly #config: TrainConfig;
  readonly #engine: TrainerEngine;
  readonly #loss: PolicyLoss;
  /** What runs on this thread; undefined = the device runs the loss's WGSL. */
  readonly #host: CustomLoss | PolicyLoss | undefined;
  #spec: PolicyLossSpec;
  readonly #totalUpdates: number;

  constructor(config: TrainConfig, engine: TrainerEngine, userLoss?: CustomLoss | PolicyLoss) {
    this.#config = config;
    this.#engine = engine;
    const { lossMode } = config.actor.policyLoss;
    const given = typeof userLoss === 'function' ? NO_LOSS : userLoss;
    this.#loss = given ?? policyLossOf(lossMode);
    this.#spec = policyLossSpec(config, given);
    if (typeof userLoss === 'function') this.#host = userLoss;
    // Where nothing runs its WGSL, a user's loss runs by its float64 row on this thread.
    else if (this.#loss.wgsl === undefined || ((given || isOwnLoss(lossMode)) && engine.model.name !== 'wgsl'))
      this.#host = this.#loss;
    const perStep = Math.ceil(config.data.trainBatchSize / config.actor.ppoMiniBatchSize) * config.actor.ppoEpochs;
    this.#totalUpdates = perStep * config.trainer.totalTrainingSteps;
  }

  /** Updates the policy on the samples of the step after `state`, once for each mini-batch of each epoch. */
  async update(
    samples: Sample[],
    tokens: StepTokens,
    state: Pick<TrainerState, 'step' | 'updates' | 'entropy'>,
  ): Promise<UpdateResult> {
    const adaptive = this.#config.actor.entropyTarget !== undefined;
    let { entropy } = state;
    const miniBatches = this.#miniBatches(samples, tokens, state.step + 1);
    const step: UpdateStep = { samples, tokens, miniBatches, skips: this.#skipsZeroAdvantages() };
    const all: Metrics[] = [];
    let trainedTokens = 0;
    let next = this.#prepare(step, 0);
    for (let index = 0; next; index++) {
      const { batch }: PreparedMiniBatch = next;
      trainedTokens += batch.entrySample.length;
      const entropyCoeff = entropyCoeffOf(this.#config, entropy);
      this.#spec = { ...this.#spec, entropyCoeff };
      const lr = this.#lr(state.updates + index);
      const { metrics, bonusEntropy, prepared } = await this.#miniBatch(step, index, next, lr);
      entropy = adaptEntropy(this.#config, entropy, bonusEntropy);
      all.push({ ...metrics, ...(adaptive && { 'actor/entropy_coeff': entropyCoeff }) });
      next = prepared;
    }
    const metrics = { ...reduceMetrics(all), ...(step.skips && skippedShare(step, trainedTokens)) };
    return { metrics, updates: all.length, trainedTokens, entropy };
  }

  /**
   * One update: forward, loss and backward, optimizer step. The host prepares the next one while the device computes. Without
   * entries the optimizer steps all the same: its moments decay, and move the weights.
   */
  async #miniBatch(step: UpdateStep, index: number, { batch, inputs: known }: PreparedMiniBatch, lr: number) {
    const current = known ? undefined : await this.#currentPolicy(step, batch);
    const inputs = known ?? this.#inputs(step.tokens, batch, this.#weights(step, batch.samples, current), current);
    const computing = this.#forwardBackward(batch, inputs);
    const [outputs, prepared] = await bothDone(computing, () => this.#prepare(step, index + 1));
    const { optimizer, betas, eps, weightDecay } = this.#config.actor.optim;
    const { gradClip } = this.#config.actor;
    const options = { optimizer, lr, beta1: betas[0], beta2: betas[1], eps, weightDecay, gradClip };
    const stepping = this.#engine.model.optimizerStep(options);
    const [{ gradNorm, skipped }, { lossMetrics, probsDiff }] = await bothDone(stepping, () => ({
      lossMetrics: this.#lossMetrics(batch, inputs, outputs),
      // Only before the first update is the policy the one that sampled.
      probsDiff: index === 0 ? rolloutProbsDiff(gatherEntries(batch, rolloutLogProbsOf(step)), outputs.logProbs) : {},
    }));
    const metrics = {
      ...current?.result.metrics,
      ...lossMetrics,
      'actor/grad_norm': gradNorm,
      'actor/skipped_updates': skipped ? 1 : 0,
      'actor/lr': lr,
      ...probsDiff,
    };
    const bonusEntropy = meanTrained(outputs.entropy, inputs.entropyWeights ?? inputs.klWeights);
    return { metrics, bonusEntropy, prepared };
  }

  /** Of a mini-batch, what does not depend on the updates before it; undefined after the last. */
  #prepare(step: UpdateStep, index: number): PreparedMiniBatch | undefined {
    const { samples, tokens, miniBatches, skips } = step;
    if (index === miniBatches.length) return undefined;
    const { ppoMaxTokenLenPerGpu: maxTokenLen, ppoMicroBatchSizePerGpu } = this.#config.actor;
    const pack = (chosen: number[]) =>
      packMiniBatch(samples, chosen, tokens.masks, maxTokenLen, ppoMicroBatchSizePerGpu);
    const members = miniBatches[index];
    if (needsCurrentPolicy(this.#config, this.#loss)) return { batch: pack(members), inputs: undefined };
    // Weights count every token of the mini-batch, whoever is left out of the batch then.
    const weights = this.#weights(step, members);
    const batch = pack(skips ? members.filter((s) => canMove(tokens.advantages[s], weights.weights[s])) : members);
    return { batch, inputs: this.#inputs(tokens, batch, weights) };
  }

  /**
   * True where a sample whose advantages are all 0 adds exactly nothing: the loss is 0 there, no other term has a gradient,
   * and nothing is picked or adapted by a statistic of all tokens.
   */
  #skipsZeroAdvantages(): boolean {
    const { skipZeroAdvantages, entropyTarget } = this.#config.actor;
    // Nothing is known of a loss that does not say so, and of one that is a function.
    if (!skipZeroAdvantages || !this.#loss.zeroAtZeroAdvantage) return false;
    const { klLossCoef, entropyCoeff } = this.#spec;
    const otherTerms = klLossCoef !== 0 || entropyCoeff !== 0 || entropyTarget !== undefined;
    return !otherTerms && !needsCurrentPolicy(this.#config, this.#loss);
  }

  /** What the loss reads of each entry. */
  #inputs(tokens: StepTokens, batch: MiniBatch, weights: StepWeights, current?: CurrentPolicy): PolicyLossInputs {
    const { refLogProbs } = tokens;
    const { masks, entropyWeights } = weights;
    const inputs: PolicyLossInputs = {
      oldLogProbs: gatherEntries(batch, tokens.oldLogProbs),
      advantages: gatherEntries(batch, tokens.advantages),
      weights: gatherEntries(batch, weights.weights),
      klWeights: gatherEntries(batch, weights.klWeights),
      ...(entropyWeights && { entropyWeights: gatherEntries(batch, entropyWeights) }),
      ...(refLogProbs && { refLogProbs: gatherEntries(batch, refLogProbs) }),
      ...(masks && { mask: gatherEntries(batch, masks) }),
    };
    const rows = lossRows(current?.logProbs ?? inputs.oldLogProbs, inputs, batch);
    const selected = selectTokens(this.#spec, rows, this.#loss);
    if (selected) inputs.selected = Float32Array.from(selected);
    return inputs;
  }

  /** The policy before this update, and what follows from it. */
  async #currentPolicy({ samples, tokens }: UpdateStep, batch: MiniBatch): Promise<CurrentPolicy> {
    const { logProbs, entropy } = await this.#forward(this.#engine.model, batch);
    const masks = batch.samples.map((s) => tokens.masks[s]);
    const result = correctByCurrentPolicy(this.#config, {
      logp: scatterEntries(batch, logProbs, masks),
      entropy: scatterEntries(batch, entropy, masks),
      rolloutLogp: batch.samples.map((s) => samples[s].trajectory.logProbs),
      advantages: batch.samples.map((s) => tokens.advantages[s]),
      masks,
    });
    return { logProbs, result };
  }

  /** Weights of the tokens of these samples, which are a whole mini-batch, at their step index. */
  #weights({ samples, tokens }: UpdateStep, chosen: number[], current?: CurrentPolicy): StepWeights {
    const { actor, data, rollout } = this.#config;
    const corrected = current?.result;
    const masks = corrected?.masks ?? chosen.map((s) => tokens.masks[s]);
    const isWeights = corrected?.isWeights ?? (tokens.isWeights && chosen.map((s) => tokens.isWeights![s]));
    const globalBatchSize = actor.ppoMiniBatchSize * rollout.n;
    const options = { ...data, globalBatchSize, ...(isWeights && { isWeights }) };
    const { weights, klWeights } = lossWeights(this.#loss, actor.lossAggMode, masks, options);
    corrected?.keep.forEach((keep, i) => keep.forEach((k, t) => (weights[i][t] *= k)));
    const place = <T extends ArrayLike<number>>(values: T[]) => placeByStep(samples.length, chosen, values);
    const entropyWeights = corrected?.entropyKeep?.map((keep, i) => keep.map((k, t) => k * klWeights[i][t]));
    return {
      weights: place(weights),
      klWeights: place(klWeights),
      ...(entropyWeights && { entropyWeights: place(entropyWeights) }),
      ...(corrected && { masks: place(masks) }),
    };
  }

  /** Log-probs and entropies of a mini-batch under one model; changes nothing. */
  async #forward(model: ModelEngine, batch: MiniBatch) {
    const { temperature } = this.#config.rollout;
    const count = batch.entrySample.length;
    const [logProbs, entropy] = [new Float32Array(count), new Float32Array(count)];
    for (const [m, micro] of batch.microBatches.entries()) {
      const out = await model.logProbs(micro.batch, { temperature });
      logProbs.set(out.logProbs, batch.offsets[m]);
      entropy.set(out.entropy, batch.offsets[m]);
    }
    return { logProbs, entropy };
  }

  async #forwardBackward(batch: MiniBatch, inputs: PolicyLossInputs) {
    const { model } = this.#engine;
    const temperature = { temperature: this.#config.rollout.temperature };
    const count = batch.entrySample.length;
    const [logProbs, entropy] = [new Float32Array(count), new Float32Array(count)];
    const own: CustomLossResult[] = [];
    for (const [m, { batch: micro }] of batch.microBatches.entries()) {
      const part = sliceInputs(batch, m, inputs);
      let out;
      if (this.#host) {
        const forward = await model.logProbs(micro, temperature);
        const loss = hostGradients(this.#spec, this.#host, { ...part, ...forward, seqStart: micro.seqStart });
        own.push(loss);
        const { dLogProbs, dEntropy } = loss;
        out = await model.forwardBackward(
          micro,
          { kind: 'coefficients', dLogProbs, ...(dEntropy && { dEntropy }) },
          temperature,
        );
      } else {
        out = await model.forwardBackward(micro, { kind: 'policy', spec: this.#spec, inputs: part }, temperature);
      }
      logProbs.set(out.logProbs, batch.offsets[m]);
      entropy.set(out.entropy, batch.offsets[m]);
    }
    return { logProbs, entropy, own };
  }

  /** verl's actor/* metrics of the entries, from the log-probs of the forward pass in float64; a function's own are what it returned. */
  #lossMetrics(batch: MiniBatch, inputs: PolicyLossInputs, { logProbs, entropy, own }: UpdateOutputs): Metrics {
    if (entropy.length === 0) return { 'actor/pg_loss': 0 };
    const { metrics } = computePolicyLoss(this.#spec, lossRows(logProbs, inputs, batch), this.#loss);
    if (typeof this.#host === 'function') {
      delete metrics['actor/pg_loss'];
      Object.assign(metrics, customMetrics(own));
    }
    return { ...metrics, 'actor/entropy': entropy.reduce((a, b) => a + b, 0) / entropy.length };
  }

  /** Log-probs of the sampled tokens under the frozen reference, one array a sample; undefined when no KL is on. */
  async refLogProbs(samples: Sample[]): Promise<ArrayLike<number>[] | undefined> {
    const { actor, algorithm } = this.#config;
    if (!actor.useKlLoss && !algorithm.useKlInReward) return undefined;
    const { reference } = this.#engine;
    if (!reference) throw new Error('A KL term needs a reference model, but the engine was made without one.');
    return this.#sampleLogProbs(reference, samples);
  }

  /** The same under the policy before the step's first update: the "old" policy where it is not the one that sampled. */
  oldLogProbs(samples: Sample[]): Promise<ArrayLike<number>[]> {
    return this.#sampleLogProbs(this.#engine.model, samples);
  }

  async #sampleLogProbs(model: ModelEngine, samples: Sample[]): Promise<ArrayLike<number>[]> {
    const masks = samples.map(({ trajectory }) => trajectory.mask);
    const chosen = samples.map((_, s) => s);
    const batch = packMiniBatch(samples, chosen, masks, this.#config.actor.ppoMaxTokenLenPerGpu);
    return scatterEntries(batch, (await this.#forward(model, batch)).logProbs, masks);
  }

  /** The learning rate of optimizer step 0, 1, 2, ... of the run. */
  #lr(update: number): number {
    const { lr, lrSchedulerType, minLrRatio, numCycles, ...warmup } = this.#config.actor.optim;
    const totalTrainingSteps = this.#totalUpdates;
    const lrWarmupSteps = warmupSteps(warmup, totalTrainingSteps);
    return lr * lrFactor({ lrSchedulerType, lrWarmupSteps, minLrRatio, numCycles, totalTrainingSteps }, update);
  }

  /** Samples of every mini-batch of every epoch that has a trained token: whole groups, shuffled by seed, step and epoch. */
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

/** True where a token has both an advantage and a weight. */
function canMove(advantages: ArrayLike<number>, weights: ArrayLike<number>): boolean {
  return Array.from(weights).some((weight, t) => weight !== 0 && advantages[t] !== 0);
}

/** `actor/skipped_tokens_share`: of the trained tokens of all mini-batches, those that were in none of the batches. */
function skippedShare({ miniBatches, tokens }: UpdateStep, trained: number): Metrics {
  const all = miniBatches.flat().reduce((count, s) => count + trainedCount(tokens.masks[s]), 0);
  return all > 0 ? { 'actor/skipped_tokens_share': 1 - trained / all } : {};
}

/** Waits for the device even where the host's work throws, so that nothing is half submitted when the error is reported. */
async function bothDone<T, U>(computing: Promise<T>, hostWork: () => U): Promise<[T, U]> {
  const settled = await Promise.allSettled([computing, Promise.resolve().then(hostWork)]);
  const failed = settled.find((result) => result.status === 'rejected');
  if (failed) throw failed.reason;
  return settled.map((result) => (result as PromiseFulfilledResult<T | U>).value) as [T, U];
}

/** A mini-batch's entries as the float64 losses take them. */
function lossRows(logp: Float32Array, inputs: PolicyLossInputs, { seqStart }: MiniBatch): LossRows {
  const { oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest } = inputs;
  return { ...rest, logp, oldLogp, seqStart, ...(refLogp && { refLogp }) };
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

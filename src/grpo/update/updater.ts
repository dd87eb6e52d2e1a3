/** The policy update of a step: epochs over mini-batches, each cut into micro-batches whose gradients add up. */

import type { ModelEngine, PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';
import { mulberry32 } from '../../model/random.ts';
import { lossWeights } from '../losses/aggregate.ts';
import { policyLossSpec } from '../config/resolve.ts';
import type { TrainConfig } from '../config/types.ts';
import { type CurrentPolicyResult, correctByCurrentPolicy, needsCurrentPolicy } from '../correction/currentPolicy.ts';
import { computePolicyLoss, type LossRows, type PolicyLoss, policyLossOf, selectTokens } from '../losses/index.ts';
import { rowGradients } from '../losses/rowGradients.ts';
import { type Metrics, reduceMetrics, rolloutProbsDiff } from '../metrics.ts';
import { entropyCoeffOf } from './controllers.ts';
import { lrFactor, warmupSteps } from './learningRate.ts';
import {
  gatherEntries,
  type MiniBatch,
  packMiniBatch,
  type Sample,
  scatterEntries,
  sliceInputs,
  weightsByStep,
} from './batch.ts';
import type { StepTokens } from './stepTokens.ts';
import type { TrainerEngine, TrainerState } from '../types.ts';

/** One micro-batch as a user's own loss sees it; all [E], samples one after the other. */
export interface CustomLossRows extends PolicyLossInputs {
  logProbs: Float32Array;
  entropy: Float32Array;
  seqStart: Uint32Array;
}

/** Returns d loss / d logp (and d loss / d entropy) of every token, weights included. */
export type CustomLoss = (rows: CustomLossRows) => { dLogProbs: Float32Array; dEntropy?: Float32Array };

export interface UpdateResult {
  metrics: Metrics;
  /** Optimizer steps. */
  updates: number;
  /** Entries that went through forward and backward. */
  trainedTokens: number;
}

/** A step's data, which its updates share. */
interface UpdateStep {
  samples: Sample[];
  tokens: StepTokens;
  /** Samples of each mini-batch, by index; every one of them has something to train on. */
  miniBatches: number[][];
  /** Optimizer steps before the first of them. */
  updates: number;
}

interface PreparedMiniBatch {
  index: number;
  batch: MiniBatch;
  /** undefined where they depend on the policy as it will then be */
  inputs: PolicyLossInputs | undefined;
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
  readonly #custom: CustomLoss | undefined;
  #spec: PolicyLossSpec;
  readonly #totalUpdates: number;

  constructor(config: TrainConfig, engine: TrainerEngine, userLoss?: CustomLoss | PolicyLoss) {
    this.#config = config;
    this.#engine = engine;
    const fused = typeof userLoss === 'object' ? userLoss : undefined;
    this.#loss = fused ?? policyLossOf(config.actor.lossMode);
    this.#spec = policyLossSpec(config, fused);
    if (typeof userLoss === 'function') this.#custom = userLoss;
    // Where nothing runs its WGSL, a user's loss runs by its float64 row on this thread.
    else if (fused && engine.model.name !== 'wgsl') this.#custom = (rows) => rowGradients(this.#spec, rows, fused);
    const perStep = Math.ceil(config.data.trainBatchSize / config.actor.ppoMiniBatchSize) * config.actor.ppoEpochs;
    this.#totalUpdates = perStep * config.trainer.totalTrainingSteps;
  }

  /** Updates the policy on the samples of the step after `state`, once for each mini-batch of each epoch. */
  async update(
    samples: Sample[],
    tokens: StepTokens,
    state: Pick<TrainerState, 'step' | 'updates' | 'entropy'>,
  ): Promise<UpdateResult> {
    const { entropyTarget } = this.#config.actor;
    const entropyCoeff = entropyCoeffOf(this.#config, state);
    this.#spec = { ...this.#spec, entropyCoeff };
    const miniBatches = this.#miniBatches(samples, tokens, state.step + 1);
    const step: UpdateStep = { samples, tokens, miniBatches, updates: state.updates };
    const all: Metrics[] = [];
    let [trainedTokens, firstDiff]: [number, Metrics] = [0, {}];
    let next = this.#prepare(step, 0);
    while (next) {
      const { batch, index }: PreparedMiniBatch = next;
      const result = await this.#miniBatch(step, next);
      if (index === 0) firstDiff = result.probsDiff;
      all.push(result.metrics);
      trainedTokens += batch.entrySample.length;
      next = result.next;
    }
    const metrics = { ...reduceMetrics(all), ...firstDiff };
    if (entropyTarget !== undefined) metrics['actor/entropy_coeff'] = entropyCoeff;
    return { metrics, updates: all.length, trainedTokens };
  }

  /** One update: forward, loss and backward, optimizer step. The host prepares the next one while the device computes. */
  async #miniBatch(step: UpdateStep, { index, batch, inputs: prepared }: PreparedMiniBatch) {
    const { actor } = this.#config;
    const { samples, tokens, updates } = step;
    const current = needsCurrentPolicy(this.#config, this.#loss)
      ? await this.#currentPolicy(samples, tokens, batch)
      : undefined;
    const inputs = prepared ?? this.#inputs(samples.length, tokens, batch, current);
    const computing = this.#forwardBackward(batch, inputs);
    const [{ logProbs, entropy }, next] = await bothDone(computing, () => this.#prepare(step, index + 1));
    const lr = actor.optim.lr * this.#lrFactor(updates + index);
    const { betas, eps, weightDecay } = actor.optim;
    const options = { lr, beta1: betas[0], beta2: betas[1], eps, weightDecay, gradClip: actor.gradClip };
    const stepping = this.#engine.model.optimizerStep(options);
    const [{ gradNorm, skipped }, { lossMetrics, probsDiff }] = await bothDone(stepping, () => ({
      lossMetrics: this.#lossMetrics(batch, inputs, logProbs, entropy),
      probsDiff: rolloutProbsDiff(gatherEntries(batch, samples.map(rolloutLogProbsOf)), logProbs),
    }));
    const metrics = {
      ...current?.result.metrics,
      ...lossMetrics,
      'actor/grad_norm': gradNorm,
      'actor/skipped_updates': skipped ? 1 : 0,
      'actor/lr': lr,
    };
    return { metrics, probsDiff, next };
  }

  /** Of a mini-batch, what does not depend on the updates before it; undefined after the last. */
  #prepare({ samples, tokens, miniBatches }: UpdateStep, index: number): PreparedMiniBatch | undefined {
    if (index === miniBatches.length) return undefined;
    const { maxTokenLen, ppoMicroBatchSize } = this.#config.actor;
    const batch = packMiniBatch(samples, miniBatches[index], tokens.masks, maxTokenLen, ppoMicroBatchSize);
    const later = needsCurrentPolicy(this.#config, this.#loss);
    return { index, batch, inputs: later ? undefined : this.#inputs(samples.length, tokens, batch, undefined) };
  }

  #inputs(count: number, tokens: StepTokens, batch: MiniBatch, current: CurrentPolicy | undefined): PolicyLossInputs {
    const { refLogProbs } = tokens;
    const { masks, weights, klWeights } = this.#weights(count, tokens, batch, current?.result);
    const inputs: PolicyLossInputs = {
      oldLogProbs: gatherEntries(batch, tokens.oldLogProbs),
      advantages: gatherEntries(batch, tokens.advantages),
      weights: gatherEntries(batch, weights),
      klWeights: gatherEntries(batch, klWeights),
      ...(refLogProbs && { refLogProbs: gatherEntries(batch, refLogProbs) }),
      ...(masks && { mask: gatherEntries(batch, masks) }),
    };
    const rows = lossRows(current?.logProbs ?? inputs.oldLogProbs, inputs, batch);
    const selected = selectTokens(this.#spec, rows, this.#loss);
    if (selected) inputs.selected = Float32Array.from(selected);
    return inputs;
  }

  /** The policy before this update, and what follows from it. */
  async #currentPolicy(samples: Sample[], tokens: StepTokens, batch: MiniBatch): Promise<CurrentPolicy> {
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

  /** Token weights of a mini-batch at their step index; `masks` only where the current policy rejected tokens. */
  #weights(count: number, tokens: StepTokens, batch: MiniBatch, current: CurrentPolicyResult | undefined) {
    const { actor, data } = this.#config;
    const masks = current?.masks ?? batch.samples.map((s) => tokens.masks[s]);
    const isWeights = current?.isWeights ?? (tokens.isWeights && batch.samples.map((s) => tokens.isWeights![s]));
    const options = { ...data, ...(isWeights && { isWeights }) };
    const byMode = lossWeights(this.#loss, actor.lossAggMode, masks, options);
    current?.keep.forEach((keep, i) => keep.forEach((k, t) => (byMode.weights[i][t] *= k)));
    const placed = weightsByStep(count, batch.samples, byMode);
    if (!current) return { ...placed, masks: undefined };
    const byStep: ArrayLike<number>[] = Array.from({ length: count }, () => []);
    batch.samples.forEach((s, i) => (byStep[s] = current.masks[i]));
    return { ...placed, masks: byStep };
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
    for (const [m, { batch: micro }] of batch.microBatches.entries()) {
      const part = sliceInputs(batch, m, inputs);
      let out;
      if (this.#custom) {
        const forward = await model.logProbs(micro, temperature);
        const loss = this.#custom({ ...part, ...forward, seqStart: micro.seqStart });
        out = await model.forwardBackward(micro, { kind: 'coefficients', ...loss }, temperature);
      } else {
        out = await model.forwardBackward(micro, { kind: 'policy', spec: this.#spec, inputs: part }, temperature);
      }
      logProbs.set(out.logProbs, batch.offsets[m]);
      entropy.set(out.entropy, batch.offsets[m]);
    }
    return { logProbs, entropy };
  }

  /** verl's actor/* metrics, from the log-probs of the forward pass in float64. */
  #lossMetrics(batch: MiniBatch, inputs: PolicyLossInputs, logp: Float32Array, entropy: Float32Array): Metrics {
    const { metrics } = computePolicyLoss(this.#spec, lossRows(logp, inputs, batch), this.#loss);
    const mean = entropy.reduce((a, b) => a + b, 0) / entropy.length;
    return { ...metrics, 'actor/entropy': mean };
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
    const batch = packMiniBatch(samples, chosen, masks, this.#config.actor.maxTokenLen);
    return scatterEntries(batch, (await this.#forward(model, batch)).logProbs, masks);
  }

  #lrFactor(update: number): number {
    const { lrScheduler: lrSchedulerType, minLrRatio, numCycles, ...warmup } = this.#config.actor.optim;
    const totalTrainingSteps = this.#totalUpdates;
    const lrWarmupSteps = warmupSteps(warmup, totalTrainingSteps);
    return lrFactor({ lrSchedulerType, lrWarmupSteps, minLrRatio, numCycles, totalTrainingSteps }, update);
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
    return batches.filter((batch) => batch.some((s) => Array.from(masks[s]).some((m) => m !== 0)));
  }
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

const rolloutLogProbsOf = ({ trajectory }: Sample): Float32Array => trajectory.logProbs;

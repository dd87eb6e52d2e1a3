/** The policy update of a step: epochs over mini-batches, each cut into micro-batches whose gradients add up. */

import type { ModelEngine, PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';
import { mulberry32 } from '../../model/random.ts';
import { lossWeights } from '../losses/aggregate.ts';
import { policyLossSpec } from '../config/resolve.ts';
import type { TrainConfig } from '../config/types.ts';
import { type CurrentPolicyResult, lookAtCurrentPolicy, needsCurrentPolicy } from '../correction/currentPolicy.ts';
import { type LossRows, type PolicyLoss, policyLoss, policyLossOf, selectTokens } from '../losses/index.ts';
import { rowGradients } from '../losses/rowGradients.ts';
import { type Metrics, reduceMetrics, rolloutProbsDiff } from '../metrics.ts';
import { lrFactor } from './learningRate.ts';
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
import type { TrainerEngine } from '../types.ts';

/** What a user's own loss sees of one micro-batch; all [E], samples one after the other. */
export interface CustomLossRows extends PolicyLossInputs {
  logProbs: Float32Array;
  entropy: Float32Array;
  seqStart: Uint32Array;
}

/** Returns d loss / d logp (and d loss / d entropy) of every token, weights included. */
export type CustomLoss = (rows: CustomLossRows) => { dLogProbs: Float32Array; dEntropy?: Float32Array };

export interface UpdateResult {
  metrics: Metrics;
  updates: number;
  /** Entries that went through forward and backward. */
  trainedTokens: number;
  seconds: { old_log_prob: number; update_actor: number };
}

interface Prepared {
  batch: MiniBatch;
  /** undefined where they depend on the policy as it will then be, and where there is nothing to train on */
  inputs: PolicyLossInputs | undefined;
}

interface CurrentPolicy {
  logProbs: Float32Array;
  result: CurrentPolicyResult;
}

export class PolicyUpdater {
  readonly #config: TrainConfig;
  readonly #engine: TrainerEngine;
  readonly #loss: PolicyLoss;
  readonly #custom: CustomLoss | undefined;
  #spec: PolicyLossSpec;
  readonly #totalUpdates: number;

  constructor(config: TrainConfig, engine: TrainerEngine, own?: CustomLoss | PolicyLoss) {
    this.#config = config;
    this.#engine = engine;
    const fused = typeof own === 'object' ? own : undefined;
    this.#loss = fused ?? policyLossOf(config.actor.lossMode);
    this.#spec = policyLossSpec(config, fused);
    if (typeof own === 'function') this.#custom = own;
    // Where nothing runs its WGSL, a user's loss runs by its float64 row on this thread.
    else if (fused && engine.model.name !== 'wgsl') this.#custom = (rows) => rowGradients(this.#spec, rows, fused);
    const perStep = Math.ceil(config.data.trainBatchSize / config.actor.ppoMiniBatchSize) * config.actor.ppoEpochs;
    this.#totalUpdates = perStep * config.trainer.totalTrainingSteps;
  }

  /** Weight of the entropy bonus from now on. */
  setEntropyCoeff(entropyCoeff: number): void {
    this.#spec = { ...this.#spec, entropyCoeff };
  }

  /**
   * Updates the policy on the samples of a step. `updates` counts optimizer steps before it; `whileBusy` runs once, while the
   * device computes the last mini-batch, and must not throw.
   */
  async update(
    samples: Sample[],
    tokens: StepTokens,
    step: number,
    updates: number,
    whileBusy = () => {},
  ): Promise<UpdateResult> {
    const { actor } = this.#config;
    const started = performance.now();
    const all: Metrics[] = [];
    let [done, trainedTokens] = [0, 0];
    let firstDiff: Metrics = {};
    const chosen = Array.from({ length: actor.ppoEpochs }, (_, epoch) =>
      this.#miniBatches(samples, step, epoch),
    ).flat();
    const prepare = (i: number) => (i < chosen.length ? this.#prepare(samples, tokens, chosen[i]) : undefined);
    let next = prepare(0);
    for (let i = 1; next; i++) {
      const current = next;
      if (current.batch.entrySample.length === 0) {
        next = prepare(i);
        continue;
      }
      const meanwhile = () => {
        next = prepare(i);
        if (!next) whileBusy();
      };
      const result = await this.#miniBatch(samples, tokens, current, updates + done, meanwhile);
      if (done === 0) firstDiff = rolloutProbsDiff(result.rolloutLogProbs, result.logProbs);
      all.push(result.metrics);
      trainedTokens += current.batch.entrySample.length;
      done++;
    }
    const ended = performance.now();
    const seconds = { old_log_prob: 0, update_actor: (ended - started) / 1000 };
    return { metrics: { ...reduceMetrics(all), ...firstDiff }, updates: done, trainedTokens, seconds };
  }

  /** What an update needs that does not depend on the updates before it. */
  #prepare(samples: Sample[], tokens: StepTokens, chosen: number[]): Prepared {
    const { maxTokenLen, ppoMicroBatchSize } = this.#config.actor;
    const batch = packMiniBatch(samples, chosen, tokens.masks, maxTokenLen, ppoMicroBatchSize);
    const later = needsCurrentPolicy(this.#config, this.#loss) || batch.entrySample.length === 0;
    return { batch, inputs: later ? undefined : this.#inputs(samples.length, tokens, batch, undefined) };
  }

  #inputs(count: number, tokens: StepTokens, batch: MiniBatch, look: CurrentPolicy | undefined): PolicyLossInputs {
    const { refLogProbs } = tokens;
    const { masks, weights, klWeights } = this.#weights(count, tokens, batch, look?.result);
    const inputs: PolicyLossInputs = {
      oldLogProbs: gatherEntries(batch, tokens.oldLogProbs),
      advantages: gatherEntries(batch, tokens.advantages),
      weights: gatherEntries(batch, weights),
      klWeights: gatherEntries(batch, klWeights),
      ...(refLogProbs && { refLogProbs: gatherEntries(batch, refLogProbs) }),
      ...(masks && { mask: gatherEntries(batch, masks) }),
    };
    const selected = selectTokens(
      this.#spec,
      lossRows(look?.logProbs ?? inputs.oldLogProbs, inputs, batch),
      this.#loss,
    );
    if (selected) inputs.selected = Float32Array.from(selected);
    return inputs;
  }

  /** One update. `meanwhile` runs while the device computes, and so do the metrics: it is not kept waiting for them. */
  async #miniBatch(
    samples: Sample[],
    tokens: StepTokens,
    { batch, inputs: prepared }: Prepared,
    update: number,
    meanwhile: () => void,
  ) {
    const { actor } = this.#config;
    const look = needsCurrentPolicy(this.#config, this.#loss) ? await this.#look(samples, tokens, batch) : undefined;
    const inputs = prepared ?? this.#inputs(samples.length, tokens, batch, look);
    const computing = this.#forwardBackward(batch, inputs);
    const [{ logProbs, entropy }] = await bothDone(computing, meanwhile);
    const lr = actor.optim.lr * this.#lrFactor(update);
    const { betas, eps, weightDecay } = actor.optim;
    const stepping = this.#engine.model.optimizerStep({
      ...{ lr, eps, weightDecay, gradClip: actor.gradClip },
      ...{ beta1: betas[0], beta2: betas[1] },
    });
    const [step, [lossMetrics, rolloutLogProbs]] = await bothDone(stepping, (): [Metrics, Float32Array] => [
      this.#lossMetrics(batch, inputs, logProbs, entropy),
      gatherEntries(batch, samples.map(rolloutLogProbsOf)),
    ]);
    const metrics = {
      ...look?.result.metrics,
      ...lossMetrics,
      'actor/grad_norm': step.gradNorm,
      'actor/skipped_updates': step.skipped ? 1 : 0,
      'actor/lr': lr,
    };
    return { metrics, logProbs, rolloutLogProbs };
  }

  /** The policy before this update, and what follows from it. */
  async #look(samples: Sample[], tokens: StepTokens, batch: MiniBatch): Promise<CurrentPolicy> {
    const { logProbs, entropy } = await this.#forward(this.#engine.model, batch);
    const masks = batch.samples.map((s) => tokens.masks[s]);
    const result = lookAtCurrentPolicy(this.#config, {
      logp: scatterEntries(batch, logProbs, masks),
      entropy: scatterEntries(batch, entropy, masks),
      rolloutLogp: batch.samples.map((s) => samples[s].trajectory.logProbs),
      advantages: batch.samples.map((s) => tokens.advantages[s]),
      masks,
    });
    return { logProbs, result };
  }

  /** Token weights of a mini-batch at their step index; `masks` only where the current policy rejected tokens. */
  #weights(count: number, tokens: StepTokens, batch: MiniBatch, look: CurrentPolicyResult | undefined) {
    const { actor, data } = this.#config;
    const masks = look?.masks ?? batch.samples.map((s) => tokens.masks[s]);
    const isWeights = look?.isWeights ?? (tokens.isWeights && batch.samples.map((s) => tokens.isWeights![s]));
    const options = { ...data, ...(isWeights && { isWeights }) };
    const byMode = lossWeights(this.#loss, actor.lossAggMode, masks, options);
    look?.keep.forEach((keep, i) => keep.forEach((k, t) => (byMode.weights[i][t] *= k)));
    const placed = weightsByStep(count, batch.samples, byMode);
    if (!look) return { ...placed, masks: undefined };
    const byStep: ArrayLike<number>[] = Array.from({ length: count }, () => []);
    batch.samples.forEach((s, i) => (byStep[s] = look.masks[i]));
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
    const { metrics } = policyLoss(this.#spec, lossRows(logp, inputs, batch), this.#loss);
    const mean = entropy.reduce((a, b) => a + b, 0) / entropy.length;
    return { ...metrics, 'actor/entropy': mean };
  }

  /** Log-probs of the sampled tokens under the frozen reference, one array a sample; undefined when no KL is on. */
  async reference(samples: Sample[]): Promise<ArrayLike<number>[] | undefined> {
    const { actor, algorithm } = this.#config;
    if (!actor.useKlLoss && !algorithm.useKlInReward) return undefined;
    const { reference } = this.#engine;
    if (!reference) throw new Error('A KL term needs a reference model, but the engine was made without one.');
    return this.#sampleLogProbs(reference, samples);
  }

  /** The same under the policy before the step's first update: the "old" policy where it is not the one that sampled. */
  proximal(samples: Sample[]): Promise<ArrayLike<number>[]> {
    return this.#sampleLogProbs(this.#engine.model, samples);
  }

  async #sampleLogProbs(model: ModelEngine, samples: Sample[]): Promise<ArrayLike<number>[]> {
    const masks = samples.map(({ trajectory }) => trajectory.mask);
    const chosen = samples.map((_, s) => s);
    const batch = packMiniBatch(samples, chosen, masks, this.#config.actor.maxTokenLen);
    return scatterEntries(batch, (await this.#forward(model, batch)).logProbs, masks);
  }

  #lrFactor(update: number): number {
    const { lrScheduler, lrWarmupSteps, minLrRatio, numCycles } = this.#config.actor.optim;
    const shape = { lrSchedulerType: lrScheduler, lrWarmupSteps, minLrRatio, numCycles };
    return lrFactor({ ...shape, totalTrainingSteps: this.#totalUpdates }, update);
  }

  /** Sample indices of every mini-batch: whole groups, shuffled by seed, step and epoch. */
  #miniBatches(samples: Sample[], step: number, epoch: number): number[][] {
    const { ppoMiniBatchSize, shuffle } = this.#config.actor;
    const byGroup = new Map<number, number[]>();
    samples.forEach(({ group }, s) => byGroup.set(group, [...(byGroup.get(group) ?? []), s]));
    const groups = [...byGroup.values()];
    if (shuffle) shuffleInPlace(groups, this.#config.seed * 7919 + step * 31 + epoch);
    const batches: number[][] = [];
    for (let g = 0; g < groups.length; g += ppoMiniBatchSize)
      batches.push(groups.slice(g, g + ppoMiniBatchSize).flat());
    return batches;
  }
}

/** Waits for the device even where `meanwhile` throws: whoever hears of the error finds nothing half submitted. */
async function bothDone<T, U>(computing: Promise<T>, meanwhile: () => U): Promise<[T, U]> {
  const settled = await Promise.allSettled([computing, Promise.resolve().then(meanwhile)]);
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

/**
 * Computes the gradient of a policy loss over a mini-batch: packing, weights, forward and backward, metrics. The
 * trainer's updates and `Learner` share it.
 */

import type { ModelEngine, PackedBatch, PolicyLossInputs, PolicyLossSpec, TokenOutputs } from '../../model/engine.ts';
import { entropyGradient } from '../../model/policyStage.ts';
import type { Trajectory } from '../../rollout/types.ts';
import { policyLossSpec } from './lossSpec.ts';
import type { TrainConfig } from '../config/types.ts';
import { type CurrentPolicyResult, correctByCurrentPolicy, needsCurrentPolicy } from '../correction/currentPolicy.ts';
import { type AggregateOptions, lossWeights, type LossWeights } from '../losses/aggregate.ts';
import { customMetrics, hostGradients } from '../losses/custom.ts';
import {
  computePolicyLoss,
  isOwnLoss,
  type LossRows,
  type PolicyLoss,
  policyLossOf,
  type PolicyLossResult,
  selectTokens,
} from '../losses/index.ts';
import { type AsyncCustomLoss, type CustomLossResult, NO_LOSS } from '../losses/types.ts';
import type { Metrics } from '../metrics.ts';
import {
  gatherEntries,
  type MiniBatch,
  packMiniBatch,
  type PackedSample,
  placeByStep,
  type SampleTokens,
  scatterEntries,
  sliceEntries,
  sliceInputs,
} from './batch.ts';

/** Inputs of a policy loss for some samples. Mini-batches are subsets of these samples. */
export interface PolicyData {
  samples: readonly (PackedSample & { trajectory: Pick<Trajectory, 'logProbs'> })[];
  /** Per-token inputs; `isWeights` = importance weights for `lossWeights`, undefined without rollout correction. */
  tokens: SampleTokens & { isWeights?: Float64Array[] };
  /** Sizes by which `lossWeights` divides the sums of a mini-batch. */
  normalization: AggregateOptions;
}

/** A mini-batch whose gradient can be computed; `batch` is empty if no entry can change the policy. */
export interface PreparedMiniBatch {
  batch: MiniBatch;
  /** Loss inputs. Undefined if they depend on the policy just before this mini-batch's update. */
  inputs: PolicyLossInputs | undefined;
}

/** A mini-batch whose gradient has been added to the model's. */
export interface AccumulatedMiniBatch {
  batch: MiniBatch;
  inputs: PolicyLossInputs;
  /** Loss settings, with the weight of the entropy bonus that was used. */
  spec: PolicyLossSpec;
  /** Log-probs and entropies of the entries under the policy at which the gradient was computed. */
  outputs: TokenOutputs;
  /** Result of a custom loss function. */
  own: CustomLossResult | undefined;
  /** Metrics of corrections that compare with the policy just before the update. */
  correction: Metrics | undefined;
}

/** Policy loss of a mini-batch's entries, token by token. */
export interface TokenLosses {
  rows: LossRows;
  loss: PolicyLossResult;
}

/**
 * Loss weights of a mini-batch's tokens: one array per sample of the data, empty for samples outside the mini-batch.
 */
interface DataWeights extends LossWeights {
  /** Weights of the entropy bonus; only if it is limited to some tokens. */
  entropyWeights?: Float64Array[];
  /** Masks after rejection; only if tokens were rejected by comparison with the current policy. */
  masks?: ArrayLike<number>[];
}

interface CurrentPolicy {
  logProbs: Float32Array;
  result: CurrentPolicyResult;
}

/** Model with which the gradient is computed. */
export type GradientModel = Pick<ModelEngine, 'name' | 'logProbs' | 'forwardBackward'>;

/** Computes gradients of a policy loss, with its parameters and its KL and entropy terms, for a model. */
export class PolicyGradient {
  readonly #config: TrainConfig;
  readonly #model: GradientModel;
  readonly #loss: PolicyLoss;
  /** Loss that runs on this thread; undefined if the GPU runs the loss's WGSL. */
  readonly #host: AsyncCustomLoss | PolicyLoss | undefined;
  readonly #spec: PolicyLossSpec;
  /** True if samples whose tokens all have advantage 0 are skipped, because they cannot change the policy. */
  readonly skips: boolean;

  /** @param config its parts `actor`, `algorithm` and its keys `rollout.temperature` and `reward.timeoutS` are read */
  constructor(config: TrainConfig, model: GradientModel, userLoss?: AsyncCustomLoss | PolicyLoss) {
    this.#config = config;
    this.#model = model;
    const { lossMode } = config.actor.policyLoss;
    const given = typeof userLoss === 'function' ? NO_LOSS : userLoss;
    this.#loss = given ?? policyLossOf(lossMode);
    this.#spec = policyLossSpec(config, given);
    const ofBatch = typeof userLoss === 'function' ? userLoss : this.#loss.ofBatch;
    if (ofBatch) this.#host = ofBatch;
    // If the engine does not run the WGSL of a custom loss, the loss runs as its float64 row on this thread.
    else if (this.#loss.wgsl === undefined || ((given || isOwnLoss(lossMode)) && model.name !== 'wgsl'))
      this.#host = this.#loss;
    this.skips = this.#skipsZeroAdvantages();
  }

  /**
   * Computes the part of a mini-batch that does not depend on earlier updates.
   * @param members indices of the mini-batch's samples
   */
  prepare(data: PolicyData, members: number[]): PreparedMiniBatch {
    const { samples, tokens } = data;
    const { ppoMaxTokenLenPerGpu: maxTokenLen, ppoMicroBatchSizePerGpu } = this.#config.actor;
    const pack = (chosen: number[]) =>
      packMiniBatch(samples, chosen, tokens.masks, maxTokenLen, ppoMicroBatchSizePerGpu);
    if (needsCurrentPolicy(this.#config, this.#loss)) return { batch: pack(members), inputs: undefined };
    // The loss weights count every token of the mini-batch, also of samples that are skipped for their zero advantages.
    const weights = this.#weights(data, members);
    const batch = pack(this.skips ? members.filter((s) => canMove(tokens.advantages[s], weights.weights[s])) : members);
    return { batch, inputs: this.#inputs(tokens, batch, weights) };
  }

  /**
   * Runs forward, loss and backward, and adds to the model's gradient. If a loss on this thread throws, the gradient is
   * unchanged.
   */
  async accumulate(
    data: PolicyData,
    { batch, inputs: known }: PreparedMiniBatch,
    entropyCoeff = this.#spec.entropyCoeff,
  ): Promise<AccumulatedMiniBatch> {
    const spec = { ...this.#spec, entropyCoeff };
    const current = known ? undefined : await this.#currentPolicy(data, batch);
    const inputs = known ?? this.#inputs(data.tokens, batch, this.#weights(data, batch.samples, current), current);
    const own = this.#host && (await this.#hostLoss(spec, this.#host, batch, inputs));
    const outputs = await this.#forwardBackward(spec, batch, inputs, own);
    return { batch, inputs, spec, outputs, own, correction: current?.result.metrics };
  }

  /**
   * verl's actor/* metrics of the entries, computed in float64 from the log-probs of the forward pass. A custom loss
   * function reports its own metrics.
   */
  metrics(done: AccumulatedMiniBatch): Metrics {
    const { outputs, own, correction } = done;
    const { entropy } = outputs;
    if (entropy.length === 0) return { ...correction, 'actor/pg_loss': 0 };
    const { metrics } = this.tokenLosses(done).loss;
    if (own && typeof this.#host === 'function') {
      delete metrics['actor/pg_loss'];
      Object.assign(metrics, customMetrics(own));
    }
    return { ...correction, ...metrics, 'actor/entropy': entropy.reduce((a, b) => a + b, 0) / entropy.length };
  }

  /** Inputs and results of the loss for each entry, in float64. */
  tokenLosses({ batch, inputs, spec, outputs }: AccumulatedMiniBatch): TokenLosses {
    const rows = lossRows(outputs.logProbs, inputs, batch);
    return { rows, loss: computePolicyLoss(spec, rows, this.#loss) };
  }

  /**
   * True if a sample whose advantages are all 0 cannot affect the update: its loss is 0, no other loss term is on, and
   * no setting selects or adapts by a statistic over all tokens.
   */
  #skipsZeroAdvantages(): boolean {
    const { skipZeroAdvantages, entropyTarget } = this.#config.actor;
    // A row without `zeroAtZeroAdvantage`, or a loss function, can have a gradient at advantage 0.
    if (!skipZeroAdvantages || !this.#loss.zeroAtZeroAdvantage) return false;
    const { klLossCoef, entropyCoeff } = this.#spec;
    const otherTerms = klLossCoef !== 0 || entropyCoeff !== 0 || entropyTarget !== undefined;
    return !otherTerms && !needsCurrentPolicy(this.#config, this.#loss);
  }

  /** Returns the loss inputs of each entry. */
  #inputs(tokens: SampleTokens, batch: MiniBatch, weights: DataWeights, current?: CurrentPolicy): PolicyLossInputs {
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

  /** Computes log-probs and entropies under the policy just before this update, and the corrections that need them. */
  async #currentPolicy({ samples, tokens }: PolicyData, batch: MiniBatch): Promise<CurrentPolicy> {
    const { logProbs, entropy } = await forwardEntries(this.#model, batch, this.#temperature);
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

  /**
   * Returns the loss weights of the full mini-batch `chosen`, each sample's at its index among all samples of the data.
   */
  #weights({ samples, tokens, normalization }: PolicyData, chosen: number[], current?: CurrentPolicy): DataWeights {
    const corrected = current?.result;
    const masks = corrected?.masks ?? chosen.map((s) => tokens.masks[s]);
    const isWeights = corrected?.isWeights ?? (tokens.isWeights && chosen.map((s) => tokens.isWeights![s]));
    const { lossAggMode } = this.#config.actor;
    const options = { ...normalization, ...(isWeights && { isWeights }) };
    const { weights, klWeights } = lossWeights(this.#loss, lossAggMode, masks, options);
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

  /** Computes a loss that runs on this thread for the full mini-batch, before any of its backward passes. */
  async #hostLoss(
    spec: PolicyLossSpec,
    host: AsyncCustomLoss | PolicyLoss,
    batch: MiniBatch,
    inputs: PolicyLossInputs,
  ): Promise<CustomLossResult> {
    const { seqStart } = batch;
    const forward = await forwardEntries(this.#model, batch, this.#temperature);
    return hostGradients(spec, host, { ...inputs, ...forward, seqStart }, this.#config.reward.timeoutS);
  }

  async #forwardBackward(
    spec: PolicyLossSpec,
    batch: MiniBatch,
    inputs: PolicyLossInputs,
    own: CustomLossResult | undefined,
  ): Promise<TokenOutputs> {
    return eachMicroBatch(batch, (m, micro) => {
      if (!own) {
        const loss = { kind: 'policy', spec, inputs: sliceInputs(batch, m, inputs) } as const;
        return this.#model.forwardBackward(micro, loss, this.#temperature);
      }
      const { dLogProbs, dEntropy } = own;
      const loss = {
        kind: 'coefficients',
        dLogProbs: sliceEntries(batch, m, dLogProbs),
        ...(dEntropy && { dEntropy: sliceEntries(batch, m, dEntropy) }),
      } as const;
      return this.#model.forwardBackward(micro, loss, this.#temperature);
    });
  }

  get #temperature(): { temperature: number } {
    return { temperature: this.#config.rollout.temperature };
  }
}

/**
 * Returns log-probs and entropies under one model: one array per sample, as long as its response; 0 where the sample's
 * mask is 0.
 */
export async function tokenOutputs(
  { actor, rollout: { temperature } }: TrainConfig,
  model: ModelEngine,
  samples: readonly PackedSample[],
  masks: ArrayLike<number>[],
): Promise<{ logProbs: Float64Array[]; entropies: Float64Array[] }> {
  const chosen = samples.map((_, s) => s);
  const batch = packMiniBatch(samples, chosen, masks, actor.ppoMaxTokenLenPerGpu);
  const { logProbs, entropy } = await forwardEntries(model, batch, { temperature });
  return { logProbs: scatterEntries(batch, logProbs, masks), entropies: scatterEntries(batch, entropy, masks) };
}

/** Returns log-probs and entropies of all entries under one model; changes no state. */
function forwardEntries(
  model: Pick<ModelEngine, 'logProbs'>,
  batch: MiniBatch,
  temperature: { temperature: number },
): Promise<TokenOutputs> {
  return eachMicroBatch(batch, (_, micro) => model.logProbs(micro, temperature));
}

/**
 * Value of the loss whose gradient is computed: policy loss, KL and entropy terms. NaN if a custom loss function does
 * not return its value.
 */
export function lossValue({ inputs, spec, outputs }: AccumulatedMiniBatch, metrics: Metrics): number {
  const bonus = entropyGradient(spec, inputs).reduce((sum, d, e) => sum + d * outputs.entropy[e], 0);
  return (metrics['actor/pg_loss'] ?? NaN) + spec.klLossCoef * (metrics['actor/kl_loss'] ?? 0) + bonus;
}

/** Runs the micro-batches one after another and concatenates their results. */
async function eachMicroBatch(
  { microBatches, offsets, entrySample }: MiniBatch,
  run: (m: number, micro: PackedBatch) => Promise<TokenOutputs>,
): Promise<TokenOutputs> {
  const count = entrySample.length;
  const [logProbs, entropy] = [new Float32Array(count), new Float32Array(count)];
  for (const [m, { batch }] of microBatches.entries()) {
    const out = await run(m, batch);
    logProbs.set(out.logProbs, offsets[m]);
    entropy.set(out.entropy, offsets[m]);
  }
  return { logProbs, entropy };
}

/** True if some token has a nonzero advantage and a nonzero weight. */
function canMove(advantages: ArrayLike<number>, weights: ArrayLike<number>): boolean {
  return Array.from(weights).some((weight, t) => weight !== 0 && advantages[t] !== 0);
}

/** Entries of a mini-batch as inputs of the float64 losses. */
function lossRows(logp: Float32Array, inputs: PolicyLossInputs, { seqStart }: MiniBatch): LossRows {
  const { oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest } = inputs;
  return { ...rest, logp, oldLogp, seqStart, ...(refLogp && { refLogp }) };
}

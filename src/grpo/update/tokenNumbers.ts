/** Per-token values of an update (ratio, weight, gradient, ...), at the token's position in its sample. */

import type { MiniBatch, Sample } from './batch.ts';
import type { AccumulatedMiniBatch, PolicyGradient, TokenLosses } from './policyGradient.ts';

/** Per-token values: one array per sample, as long as its response; 0 for a token that was not trained. */
export interface TokenNumbers {
  /** pi(token) at the weights at which its gradient was computed, divided by the policy in the ratio's denominator. */
  ratio: Float64Array[];
  /** Advantage that the loss reads. */
  advantage: Float64Array[];
  /** Weight in the loss: aggregation x mask x importance weight. */
  weight: Float64Array[];
  /**
   * d loss / d logp: the weight times the slope of the token's loss. Includes the KL term, but not the entropy bonus.
   */
  grad: Float64Array[];
  /** Bits: 1 = the upper (or only) clip bound was active, 2 = the lower or dual one. */
  clipped: Float64Array[];
}

/** Values of every token in the update that trained on it: each sample in its own mini-batch, in the last epoch. */
export interface UpdatedTokens extends TokenNumbers {
  /** 1 = went through forward and backward; 0 also for samples that were skipped because all their advantages are 0. */
  trained: Float64Array[];
  /** Log-prob of the token at the weights at which its gradient was computed, natural log. */
  logProb: Float64Array[];
  /** Entropy in nats of the distribution at the token's position, at the weights at which its gradient was computed. */
  entropy: Float64Array[];
}

/** Values by entry, in the fields that `TokenNumbers` has by sample. */
type EntryNumbers<N> = { [K in keyof N]: ArrayLike<number> };

/** Values of a mini-batch's entries in its loss. */
export const entryNumbers = ({ rows, loss }: TokenLosses): EntryNumbers<TokenNumbers> => ({
  ratio: Float64Array.from(rows.logp).map((logp, e) => Math.exp(logp - rows.oldLogp[e])),
  advantage: rows.advantages,
  weight: rows.weights,
  grad: loss.grad,
  clipped: loss.clipped,
});

/**
 * Collects the values of each token.
 * @param updates mini-batches of a step, in the order of its updates
 */
export function updatedTokens(
  gradient: PolicyGradient,
  samples: readonly Sample[],
  updates: readonly AccumulatedMiniBatch[],
): UpdatedTokens {
  return numbersBySample(
    samples,
    updates.map((done) => {
      const { own, outputs, batch } = done;
      const entries = entryNumbers(gradient.tokenLosses(done));
      const more = { trained: outputs.logProbs.map(() => 1), logProb: outputs.logProbs, entropy: outputs.entropy };
      return { batch, entries: { ...entries, ...more, ...(own && { grad: own.dLogProbs }) } };
    }),
    ['ratio', 'advantage', 'weight', 'grad', 'clipped', 'trained', 'logProb', 'entropy'],
  );
}

/** Moves values of entries to their samples' positions. For a sample in several mini-batches, the last one wins. */
export function numbersBySample<K extends string>(
  samples: readonly Pick<Sample, 'trajectory'>[],
  updates: readonly { batch: MiniBatch; entries: Record<K, ArrayLike<number>> }[],
  names: readonly K[],
): Record<K, Float64Array[]> {
  const like = samples.map(({ trajectory }) => trajectory.mask);
  const all = (name: K) => {
    const out = like.map(({ length }) => new Float64Array(length));
    for (const { batch, entries } of updates) {
      const { samples: chosen, entrySample, entryPosition } = batch;
      const values = entries[name];
      for (let e = 0; e < entrySample.length; e++) out[chosen[entrySample[e]]][entryPosition[e]] = values[e];
    }
    return out;
  };
  return Object.fromEntries(names.map((name) => [name, all(name)])) as Record<K, Float64Array[]>;
}

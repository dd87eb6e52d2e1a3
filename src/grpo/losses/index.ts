/**
 * Policy losses in float64: value, gradient and verl's metrics. The reference of `kernels/policy_loss.wgsl`.
 *
 * A loss plugs in as a row function (one short file each in `losses/`) and an aggregation (`aggregate.ts`):
 *   total = sum_e weights[e] * l_e + klLossCoef * sum_e klWeights[e] * kl_e
 * The weights come from the whole mini-batch, so micro-batches add up to the same total and the same gradient.
 */

import type { PolicyLossSpec } from '../../model/engine.ts';
import { klPenalty } from './kl.ts';
import { cispo } from './cispo.ts';
import { clipCov, klCov } from './cov.ts';
import { dppoKl, dppoTv } from './dppo.ts';
import { dro } from './dro.ts';
import { geoMean } from './geoMean.ts';
import { gpg } from './gpg.ts';
import { gspo, luspo } from './gspo.ts';
import { reinforce } from './reinforce.ts';
import { sapo } from './sapo.ts';
import type { LossRows, PolicyLoss, SequenceStats, TokenLoss, TokenRow } from './types.ts';
import { vanilla } from './vanilla.ts';
import { vespo } from './vespo.ts';

export type { LossAggMode, LossRows, PolicyLoss, SequenceStats, TokenLoss, TokenRow } from './types.ts';

/** By `lossMode`; names are verl's, then TRL's. */
export const POLICY_LOSSES: Readonly<Record<string, PolicyLoss>> = {
  vanilla,
  dppo_tv: dppoTv,
  dppo_kl: dppoKl,
  gspo,
  sapo,
  gpg,
  clip_cov: clipCov,
  kl_cov: klCov,
  geo_mean: geoMean,
  dro,
  cispo,
  reinforce,
  luspo,
  vespo,
};

export interface PolicyLossResult {
  /** [E] the row's loss before its weight; 0 where masked. */
  perToken: Float64Array;
  /** [E] d loss / d logp, weights included. */
  grad: Float64Array;
  loss: number;
  /** verl's names: actor/pg_loss, actor/ppo_kl, actor/pg_clipfrac, actor/pg_clipfrac_lower, actor/kl_loss. */
  metrics: Record<string, number>;
}

/** Throws a RangeError that lists the known modes. */
export function policyLossOf(lossMode: string): PolicyLoss {
  const loss = POLICY_LOSSES[lossMode];
  if (loss) return loss;
  throw new RangeError(`Unknown policy loss "${lossMode}"; known are ${Object.keys(POLICY_LOSSES).join(', ')}.`);
}

/**
 * The tokens clip-cov or kl-cov acts on, 1 = selected; undefined for every other loss. Called once on the whole mini-batch
 * with the log-probs from before the update as `logp`, so that micro-batches do not change the choice.
 */
export function selectTokens(spec: PolicyLossSpec, rows: LossRows): Uint8Array | undefined {
  return policyLossOf(spec.lossMode).select?.(spec, rows);
}

/** Loss, gradient and metrics of one micro-batch (or of the whole mini-batch: the sums are the same). */
export function policyLoss(spec: PolicyLossSpec, rows: LossRows): PolicyLossResult {
  const loss = policyLossOf(spec.lossMode);
  const count = rows.logp.length;
  const selected = rows.selected ?? loss.select?.(spec, rows);
  const perToken = new Float64Array(count);
  const grad = new Float64Array(count);
  const sums = { pgLoss: 0, mask: 0, clipped: 0, clippedLower: 0, kl: 0 };
  for (let s = 0; s + 1 < rows.seqStart.length; s++) {
    const sequence = sequenceStats(loss, spec, rows, s);
    for (let e = rows.seqStart[s]; e < rows.seqStart[s + 1]; e++) {
      const mask = rows.mask ? rows.mask[e] : 1;
      if (mask === 0) continue;
      const row = loss.row(spec, tokenAt(rows, e, selected), sequence);
      perToken[e] = row.loss;
      grad[e] = rows.weights[e] * row.grad;
      addRow(sums, row, rows.weights[e], mask);
    }
  }
  const metrics: Record<string, number> = { 'actor/pg_loss': sums.pgLoss };
  const means = {
    'actor/pg_clipfrac': sums.clipped,
    'actor/ppo_kl': sums.kl,
    'actor/pg_clipfrac_lower': sums.clippedLower,
  };
  for (const name of loss.reports) metrics[name] = means[name] / (sums.mask + 1e-8);
  const result = { perToken, grad, loss: sums.pgLoss, metrics };
  if (spec.klLossCoef !== 0) addKlLoss(spec, rows, result);
  return result;
}

interface Sums {
  pgLoss: number;
  mask: number;
  clipped: number;
  clippedLower: number;
  kl: number;
}

function addRow(sums: Sums, row: TokenLoss, weight: number, mask: number): void {
  sums.pgLoss += weight * row.loss;
  sums.mask += mask;
  if (row.clipped) sums.clipped += mask;
  if (row.clippedLower) sums.clippedLower += mask;
  sums.kl += mask * row.kl;
}

function tokenAt(rows: LossRows, e: number, selected: ArrayLike<number> | undefined): TokenRow {
  return {
    logp: rows.logp[e],
    oldLogp: rows.oldLogp[e],
    advantage: rows.advantages[e],
    selected: selected !== undefined && selected[e] !== 0,
  };
}

/** Sums over the trained tokens of sample s; zeros when the loss needs none. */
function sequenceStats(loss: PolicyLoss, spec: PolicyLossSpec, rows: LossRows, s: number): SequenceStats {
  const stats: SequenceStats = { length: 0, sum: 0, advantageSum: 0 };
  if (!loss.sequenceTerm) return stats;
  for (let e = rows.seqStart[s]; e < rows.seqStart[s + 1]; e++) {
    const mask = rows.mask ? rows.mask[e] : 1;
    if (mask === 0) continue;
    stats.length += mask;
    stats.sum += mask * loss.sequenceTerm(spec, tokenAt(rows, e, undefined));
    stats.advantageSum += mask * rows.advantages[e];
  }
  return stats;
}

/** Adds klLossCoef * sum_e klWeights[e] * kl_e to loss and gradient; `actor/kl_loss` is reported without the factor. */
function addKlLoss(spec: PolicyLossSpec, rows: LossRows, result: PolicyLossResult): void {
  const { refLogp } = rows;
  if (!refLogp) {
    throw new RangeError(
      `klLossCoef is ${spec.klLossCoef} but there are no reference log-probs; pass refLogp or set klLossCoef to 0.`,
    );
  }
  const weights = rows.klWeights ?? rows.weights;
  const valueClamp = typeof spec.klClamp === 'number' ? spec.klClamp : Infinity;
  let sum = 0;
  for (let e = 0; e < rows.logp.length; e++) {
    if (rows.mask && rows.mask[e] === 0) continue;
    const kl = klPenalty(spec.klLossType, rows.logp[e], refLogp[e], { oldLogp: rows.oldLogp[e], valueClamp });
    sum += weights[e] * kl.value;
    result.grad[e] += spec.klLossCoef * weights[e] * kl.grad;
  }
  result.loss += spec.klLossCoef * sum;
  result.metrics['actor/kl_loss'] = sum;
  result.metrics['actor/kl_coef'] = spec.klLossCoef;
}

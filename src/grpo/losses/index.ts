/**
 * Policy losses in float64: value, gradient and verl's metrics. They are the reference for the GPU's loss, which is
 * `kernels/policy_loss.wgsl` with the WGSL row of the configured loss.
 *
 * Each loss is one short file of this folder. An aggregation (`aggregate.ts`) reduces its tokens to one number:
 *   total = sum_e weights[e] * l_e + klLossCoef * sum_e klWeights[e] * kl_e
 * The weights come from the whole mini-batch, so micro-batches add up to the same total and the same gradient.
 */

import { InputError, UserCodeError } from '../../errors.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';
import { shareEntries } from '../../shared.ts';
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
import {
  type CustomLoss,
  type CustomLossResult,
  LOSS_METRICS,
  type LossMetric,
  type LossRows,
  NO_LOSS,
  type PolicyLoss,
  type SequenceStats,
  type TokenLoss,
  type TokenRow,
} from './types.ts';
import { vanilla } from './vanilla.ts';
import { vespo } from './vespo.ts';

export { defineLoss } from './types.ts';
export type {
  AsyncCustomLoss,
  LossAggMode,
  LossRows,
  PolicyLoss,
  SequenceStats,
  TokenLoss,
  TokenRow,
} from './types.ts';

/** Losses by `lossMode`; names are verl's, or TRL's if verl has none. */
const losses: Record<string, PolicyLoss> = {
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

/** Built-in and registered losses by `lossMode`. */
export const POLICY_LOSSES: Readonly<Record<string, PolicyLoss>> = losses;

const own = new Set<string>();
const share = shareEntries<PolicyLoss>('policy loss', (name, loss) => {
  own.add(name);
  losses[name] = loss;
});

/** True if a user registered the loss of this mode. */
export const isOwnLoss = (lossMode: string): boolean => own.has(lossMode);

/** Registers a custom loss; see `registerPolicyLoss`. Throws InputError. */
export function addPolicyLoss(name: string, loss: PolicyLoss | CustomLoss): void {
  if (!/^[A-Za-z]\w*$/.test(name))
    throw new InputError(
      `A policy loss cannot be called "${name}". Use letters, digits and _, starting with a letter.`,
    );
  if (Object.hasOwn(losses, name) && !own.has(name))
    throw new InputError(`Policy loss "${name}" is built in. Register yours under another name.`);
  if (typeof loss !== 'function' && typeof (loss as Partial<PolicyLoss> | undefined)?.row !== 'function')
    throw new InputError(
      `Policy loss "${name}" is neither a row nor a function. Register defineLoss({ row, wgsl }), or (rows) => ({ dLogProbs, loss }).`,
    );
  share(name, typeof loss === 'function' ? { ...NO_LOSS, name, ofBatch: directLoss(loss, name) } : { ...loss, name });
}

const NOT_ASYNC = 'A loss returns its gradients directly: remove "async" and "await"';

/**
 * Returns the loss, whose result must not be a promise. Throws InputError for an async function; the loss throws
 * UserCodeError if it returns a promise.
 */
export function directLoss(loss: CustomLoss, name: string): CustomLoss {
  const what = `Policy loss "${name}"`;
  if (Object.prototype.toString.call(loss) === '[object AsyncFunction]')
    throw new InputError(`${what} is an async function. ${NOT_ASYNC}.`);
  return (rows) => {
    const result: unknown = loss(rows);
    if (typeof (result as PromiseLike<unknown> | undefined)?.then !== 'function') return result as CustomLossResult;
    void Promise.resolve(result).catch(() => undefined); // would be reported as unhandled otherwise
    throw new UserCodeError('loss returned', `${what} returned a promise. ${NOT_ASYNC}.`);
  };
}

export interface PolicyLossResult {
  /** [E] loss of each token before it is multiplied by its weight; 0 where the mask is 0. */
  perToken: Float64Array;
  /** [E] d loss / d logp, weights included. */
  grad: Float64Array;
  /** [E] bits: 1 = the upper (or only) clip acted, 2 = the lower or dual one. */
  clipped: Uint8Array;
  loss: number;
  /** verl's names: actor/pg_loss, actor/ppo_kl, actor/pg_clipfrac, actor/pg_clipfrac_lower, actor/kl_loss. */
  metrics: Record<string, number>;
}

/** Returns the loss of a mode. Throws a RangeError that lists the known modes. */
export function policyLossOf(lossMode: string): PolicyLoss {
  const loss = POLICY_LOSSES[lossMode];
  if (loss) return loss;
  throw new RangeError(`Unknown policy loss "${lossMode}"; known: ${Object.keys(POLICY_LOSSES).join(', ')}.`);
}

/**
 * Selects the tokens that clip-cov or kl-cov acts on (1 = selected); undefined for every other loss. Called once on the
 * whole mini-batch with the log-probs from before the update as `logp`, so that micro-batches do not change the choice.
 */
export function selectTokens(
  spec: PolicyLossSpec,
  rows: LossRows,
  loss = policyLossOf(spec.lossMode),
): Uint8Array | undefined {
  return loss.select?.(spec.numbers, rows);
}

/**
 * Computes loss, gradient and metrics of one micro-batch, or of the whole mini-batch; the sums are the same.
 * @param loss a custom loss; default: the loss that `spec` names
 */
export function computePolicyLoss(
  spec: PolicyLossSpec,
  rows: LossRows,
  loss: PolicyLoss = policyLossOf(spec.lossMode),
): PolicyLossResult {
  const count = rows.logp.length;
  const selected = rows.selected ?? selectTokens(spec, rows, loss);
  const perToken = new Float64Array(count);
  const grad = new Float64Array(count);
  const clipped = new Uint8Array(count);
  const sums: Sums = { pgLoss: 0, mask: 0, clipped: 0, clippedLower: 0, kl: 0, own: {} };
  for (let s = 0; s + 1 < rows.seqStart.length; s++) {
    const sequence = sequenceStats(loss, spec, rows, s);
    for (let e = rows.seqStart[s]; e < rows.seqStart[s + 1]; e++) {
      const mask = rows.mask ? rows.mask[e] : 1;
      if (mask === 0) continue;
      const token = tokenAt(rows, e, selected);
      const row = loss.row(spec.numbers, token, sequence);
      perToken[e] = row.loss;
      grad[e] = rows.weights[e] * row.grad;
      clipped[e] = (row.clipped ? 1 : 0) | (row.clippedLower ? 2 : 0);
      addRow(sums, row, rows.weights[e], mask, token);
    }
  }
  const metrics: Record<string, number> = { 'actor/pg_loss': sums.pgLoss };
  const means: Record<LossMetric, number> = {
    'actor/pg_clipfrac': sums.clipped,
    'actor/ppo_kl': sums.kl,
    'actor/pg_clipfrac_lower': sums.clippedLower,
  };
  for (const name of loss.reports ?? LOSS_METRICS) metrics[name] = means[name] / (sums.mask + 1e-8);
  for (const [name, sum] of Object.entries(sums.own)) metrics[name] = sum / (sums.mask + 1e-8);
  const result = { perToken, grad, clipped, loss: sums.pgLoss, metrics };
  if (spec.klLossCoef !== 0) addKlLoss(spec, rows, result);
  return result;
}

interface Sums {
  pgLoss: number;
  mask: number;
  clipped: number;
  clippedLower: number;
  kl: number;
  own: Record<string, number>;
}

function addRow(sums: Sums, row: TokenLoss, weight: number, mask: number, { logp, oldLogp }: TokenRow): void {
  sums.pgLoss += weight * row.loss;
  sums.mask += mask;
  if (row.clipped) sums.clipped += mask;
  if (row.clippedLower) sums.clippedLower += mask;
  sums.kl += mask * (row.kl ?? oldLogp - logp);
  for (const name in row.metrics) sums.own[name] = (sums.own[name] ?? 0) + mask * row.metrics[name];
}

function tokenAt(rows: LossRows, e: number, selected: ArrayLike<number> | undefined): TokenRow {
  return {
    logp: rows.logp[e],
    oldLogp: rows.oldLogp[e],
    advantage: rows.advantages[e],
    selected: selected !== undefined && selected[e] !== 0,
  };
}

/** Sums over the trained tokens of sample s, for sequence-level losses; zeros for other losses. */
function sequenceStats(loss: PolicyLoss, spec: PolicyLossSpec, rows: LossRows, s: number): SequenceStats {
  const stats: SequenceStats = { length: 0, sum: 0, advantageSum: 0 };
  if (!loss.sequenceTerm) return stats;
  for (let e = rows.seqStart[s]; e < rows.seqStart[s + 1]; e++) {
    const mask = rows.mask ? rows.mask[e] : 1;
    if (mask === 0) continue;
    stats.length += mask;
    stats.sum += mask * loss.sequenceTerm.of(spec.numbers, tokenAt(rows, e, undefined));
    stats.advantageSum += mask * rows.advantages[e];
  }
  return stats;
}

/** Adds klLossCoef * sum_e klWeights[e] * kl_e to loss and gradient; `actor/kl_loss` is reported without the factor. */
function addKlLoss(spec: PolicyLossSpec, rows: LossRows, result: PolicyLossResult): void {
  const { refLogp } = rows;
  if (!refLogp) {
    throw new RangeError(
      `klLossCoef is ${spec.klLossCoef} but there are no reference log-probs. Pass refLogp or set klLossCoef to 0.`,
    );
  }
  const weights = rows.klWeights ?? rows.weights;
  const valueClamp = spec.klClamp ?? Infinity;
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

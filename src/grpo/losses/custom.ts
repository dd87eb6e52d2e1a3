/**
 * Policy losses that run on this thread, between forward and backward: a user's function, or a float64 row without
 * WGSL.
 */

import { blame, UserCodeError } from '../../errors.ts';
import type { PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';
import { rowGradients } from './rowGradients.ts';
import { defineLoss, type PolicyLoss } from './types.ts';

/**
 * A mini-batch as a custom loss sees it, independent of micro-batches. All arrays are [E]: the entries of samples with
 * a trained token, sample by sample.
 */
export interface CustomLossRows extends PolicyLossInputs {
  /** log-prob of the token under the policy being trained, natural log. */
  logProbs: Float32Array;
  /** Nats. */
  entropy: Float32Array;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1]. */
  seqStart: Uint32Array;
}

/** Result of a custom loss for E tokens. */
export interface CustomLossResult {
  /** [E] d loss / d logProbs, including `weights`. The KL and entropy terms of the config are added to it. */
  dLogProbs: Float32Array;
  /** [E] d loss / d entropy. Default: 0. */
  dEntropy?: Float32Array;
  /** Value of the loss, reported as actor/pg_loss. */
  loss?: number;
  /** Additional metrics by name. */
  metrics?: Readonly<Record<string, number>>;
}

/** A policy loss as a function of a mini-batch. The KL and entropy terms of the config are still added. */
export type CustomLoss = (rows: CustomLossRows) => CustomLossResult;

/** Like CustomLoss, but can return a promise, e.g. if it runs in a sandbox. */
export type AsyncCustomLoss = (rows: CustomLossRows) => CustomLossResult | Promise<CustomLossResult>;

/** Placeholder for the policy loss if a function replaces it. Only the KL and entropy terms remain. */
export const NO_LOSS = defineLoss({ name: 'custom', reports: [], row: () => ({ loss: 0, grad: 0 }) });

/**
 * Returns the gradients of a mini-batch, including KL and entropy terms. Throws UserCodeError if the function throws or
 * returns an invalid result.
 */
export async function hostGradients(
  spec: PolicyLossSpec,
  loss: AsyncCustomLoss | PolicyLoss,
  rows: CustomLossRows,
): Promise<CustomLossResult> {
  if (typeof loss === 'object') return rowGradients(spec, rows, loss);
  const own = await ownGradients(loss, rows);
  const terms = rowGradients(spec, rows, NO_LOSS);
  for (const name of ['dLogProbs', 'dEntropy'] as const) own[name]?.forEach((value, e) => (terms[name][e] += value));
  return { ...own, ...terms };
}

const EXPECTED = 'Return { dLogProbs, dEntropy?, loss?, metrics? } with one value a token in the first two';

async function ownGradients(loss: AsyncCustomLoss, rows: CustomLossRows): Promise<CustomLossResult> {
  try {
    const own: CustomLossResult = { ...(await loss(rows)) };
    const wrong = (what: string) => new UserCodeError('loss returned', `The loss returned ${what}. ${EXPECTED}.`);
    for (const name of ['dLogProbs', 'dEntropy'] as const) {
      const given = own[name];
      if (given === undefined && name === 'dEntropy') continue;
      if (!ArrayBuffer.isView(given) && !Array.isArray(given)) throw wrong(`no array as ${name}`);
      if (given.length !== rows.logProbs.length)
        throw wrong(`${given.length} values of ${name} for ${rows.logProbs.length} tokens`);
    }
    for (const [name, value] of Object.entries({ loss: own.loss, ...own.metrics }))
      if (value !== undefined && typeof value !== 'number') throw wrong(`${name} as a ${typeof value}, not a number`);
    return own;
  } catch (error) {
    throw blame('loss', 'The loss', error, EXPECTED);
  }
}

/** Metrics that a function reported for an update. */
export function customMetrics({ loss, metrics }: CustomLossResult): Record<string, number> {
  return { ...(loss !== undefined && { 'actor/pg_loss': loss }), ...metrics };
}

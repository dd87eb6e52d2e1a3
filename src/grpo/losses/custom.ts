/** A policy loss that runs on this thread, between forward and backward: a user's function, or a float64 row without WGSL. */

import { blame, UserCodeError } from '../../errors.ts';
import type { PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';
import { rowGradients } from './rowGradients.ts';
import { defineLoss, type PolicyLoss } from './types.ts';

/** One mini-batch as a user's own loss sees it, however it is cut; all [E], samples with a trained token one after the other. */
export interface CustomLossRows extends PolicyLossInputs {
  /** log-prob of the token under the policy being trained, natural log. */
  logProbs: Float32Array;
  /** Nats. */
  entropy: Float32Array;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1]. */
  seqStart: Uint32Array;
}

/** What a loss of one's own returns of a micro-batch of E tokens. */
export interface CustomLossResult {
  /** [E] d loss / d logProbs, `weights` included; KL and entropy terms of the config are added to it. */
  dLogProbs: Float32Array;
  /** [E] d loss / d entropy; absent = 0. */
  dEntropy?: Float32Array;
  /** The value on these rows, reported as actor/pg_loss. */
  loss?: number;
  /** Numbers to report by these names. */
  metrics?: Readonly<Record<string, number>>;
}

/** A policy loss as a function of a mini-batch. The config's KL and entropy terms stay, beside it. */
export type CustomLoss = (rows: CustomLossRows) => CustomLossResult;

/** The same, where it may answer later: one that runs in a sandbox. */
export type AsyncCustomLoss = (rows: CustomLossRows) => CustomLossResult | Promise<CustomLossResult>;

/** Stands for the policy loss where a function is that: what is left are the terms beside it. */
export const NO_LOSS = defineLoss({ name: 'custom', reports: [], row: () => ({ loss: 0, grad: 0 }) });

/** Gradients of a mini-batch, KL and entropy terms included. Throws UserCodeError for a function that throws, or returns what is no loss. */
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

/** What a function reported of an update. */
export function customMetrics({ loss, metrics }: CustomLossResult): Record<string, number> {
  return { ...(loss !== undefined && { 'actor/pg_loss': loss }), ...metrics };
}

/**
 * Policy losses that run on the controller's thread, between forward and backward: a user's function, or a float64 row
 * without WGSL.
 */

import { blame, isA, UserCodeError } from '../../errors.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';
import { rowGradients } from './rowGradients.ts';
import { TimeLimitError, withTimeLimit } from '../../rollout/tools/run.ts';
import { type AsyncCustomLoss, type CustomLossResult, type CustomLossRows, NO_LOSS, type PolicyLoss } from './types.ts';

/**
 * Returns the gradients of a mini-batch, including KL and entropy terms. Throws UserCodeError if the function throws,
 * returns an invalid result, or returns a promise that does not settle in `timeoutS`.
 */
export async function hostGradients(
  spec: PolicyLossSpec,
  loss: AsyncCustomLoss | PolicyLoss,
  rows: CustomLossRows,
  timeoutS: number,
): Promise<CustomLossResult> {
  if (typeof loss === 'object') return rowGradients(spec, rows, loss);
  const own = await ownGradients(loss, rows, timeoutS);
  const terms = rowGradients(spec, rows, NO_LOSS);
  for (const name of ['dLogProbs', 'dEntropy'] as const) own[name]?.forEach((value, e) => (terms[name][e] += value));
  return { ...own, ...terms };
}

const EXPECTED = 'Return { dLogProbs, dEntropy?, loss?, metrics? } with one value a token in the first two';

async function ownGradients(loss: AsyncCustomLoss, rows: CustomLossRows, timeoutS: number): Promise<CustomLossResult> {
  try {
    const { signal } = new AbortController();
    const own: CustomLossResult = { ...(await withTimeLimit('loss', () => loss(rows), timeoutS * 1000, signal)) };
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
    if (!isA(error, TimeLimitError)) throw blame('loss', 'The loss', error, EXPECTED);
    const tooLong = `The loss did not resolve in ${timeoutS} s (reward.timeoutS)`;
    throw new UserCodeError('loss took too long', `${tooLong}. ${EXPECTED}.`);
  }
}

/** Metrics that a custom loss function reported for an update. */
export function customMetrics({ loss, metrics }: CustomLossResult): Record<string, number> {
  return { ...(loss !== undefined && { 'actor/pg_loss': loss }), ...metrics };
}

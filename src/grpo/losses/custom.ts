/** A policy loss that runs on this thread, between forward and backward: a user's function, or a float64 row without WGSL. */

import { InputError } from '../../errors.ts';
import type { PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';
import { rowGradients } from './rowGradients.ts';
import { defineLoss, type PolicyLoss } from './types.ts';

/** One micro-batch as a user's own loss sees it; all [E], samples one after the other. */
export interface CustomLossRows extends PolicyLossInputs {
  /** log-prob of the token under the policy being trained, natural log. */
  logProbs: Float32Array;
  /** Nats. */
  entropy: Float32Array;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1]. */
  seqStart: Uint32Array;
}

export interface CustomLossResult {
  /** [E] d loss / d logProbs, `weights` included; KL and entropy terms of the config are added to it. */
  dLogProbs: Float32Array;
  /** [E] d loss / d entropy; absent = 0. */
  dEntropy?: Float32Array;
  /** The value on these rows; its sum over micro-batches is reported as actor/pg_loss. */
  loss?: number;
  /** Numbers to report by these names, averaged over micro-batches by their tokens. */
  metrics?: Readonly<Record<string, number>>;
}

/** A policy loss as a function of a micro-batch. The config's KL and entropy terms stay, beside it. */
export type CustomLoss = (rows: CustomLossRows) => CustomLossResult;

/** Stands for the policy loss where a function is that: what is left are the terms beside it. */
export const NO_LOSS = defineLoss({ name: 'custom', reports: [], row: () => ({ loss: 0, grad: 0 }) });

/** Gradients of a micro-batch, KL and entropy terms included. Throws InputError for a function that returns another length. */
export function hostGradients(
  spec: PolicyLossSpec,
  loss: CustomLoss | PolicyLoss,
  rows: CustomLossRows,
): CustomLossResult {
  if (typeof loss === 'object') return rowGradients(spec, rows, loss);
  const own = loss(rows);
  const terms = rowGradients(spec, rows, NO_LOSS);
  for (const name of ['dLogProbs', 'dEntropy'] as const) {
    const given = own[name];
    if (given && given.length !== rows.logProbs.length)
      throw new InputError(
        `The loss returned ${given.length} values of ${name} for ${rows.logProbs.length} tokens; return one a token.`,
      );
    given?.forEach((value, e) => (terms[name][e] += value));
  }
  return { ...own, ...terms };
}

/** What a function reported of the micro-batches of an update. */
export function customMetrics(results: readonly CustomLossResult[]): Record<string, number> {
  const metrics: Record<string, number> = {};
  const add = (name: string, value: number) => (metrics[name] = (metrics[name] ?? 0) + value);
  const tokens = results.reduce((sum, { dLogProbs }) => sum + dLogProbs.length, 0);
  for (const { loss, metrics: own = {}, dLogProbs } of results) {
    if (loss !== undefined) add('actor/pg_loss', loss);
    for (const [name, value] of Object.entries(own)) add(name, (value * dLogProbs.length) / tokens);
  }
  return metrics;
}

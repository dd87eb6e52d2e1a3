/** Penalties, biases and minimum length in float64, from the description in kernels/adjust_logits.wgsl. */

export interface Adjustments {
  repetitionPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  minNewTokens?: number;
  logitBias?: readonly (readonly [number, number])[];
}

const FORBIDDEN = -1e30;

/**
 * @param promptIds tokens of the context before this turn
 * @param drawnIds tokens sampled in this turn
 */
export function adjustedLogits(
  logits: ArrayLike<number>,
  settings: Adjustments,
  promptIds: number[],
  drawnIds: number[],
  stopIds: number[] = [],
): Float64Array {
  const {
    repetitionPenalty = 1,
    presencePenalty = 0,
    frequencyPenalty = 0,
    minNewTokens = 0,
    logitBias = [],
  } = settings;
  const z = Float64Array.from(logits);
  for (const [token, bias] of logitBias) z[token] += bias;
  for (const token of new Set([...promptIds, ...drawnIds]))
    z[token] = z[token] > 0 ? z[token] / repetitionPenalty : z[token] * repetitionPenalty;
  for (const token of drawnIds) z[token] -= frequencyPenalty;
  for (const token of new Set(drawnIds)) z[token] -= presencePenalty;
  if (drawnIds.length < minNewTokens) for (const stop of stopIds) if (stop < z.length) z[stop] = FORBIDDEN;
  return z;
}

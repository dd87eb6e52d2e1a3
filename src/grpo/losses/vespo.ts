import { clamp, defineLoss, LOG_RATIO_CLAMP } from './types.ts';

/** Log of the smallest sequence weight, 1e-8. */
const MIN_LOG_WEIGHT = Math.log(1e-8);

/**
 * VESPO (variational sequence-level soft policy optimization, arXiv:2602.10693), as TRL computes it: l = -phi A logp,
 * phi held constant, with
 *
 *   phi(w) = w^k exp(lambda (1 - w)),   log w = clip(sum_t clip(logp_t - oldLogp_t, -20, 20), log 1e-8, 20)
 *
 * over the trained tokens of the sequence; phi(1) = 1 and falls off on both sides. k, lambda are vespoKPos,
 * vespoLambdaPos where A >= 0 and vespoKNeg, vespoLambdaNeg elsewhere. Importance weights of rollout correction are
 * part of w, so they do not also multiply the loss: `foldImportanceWeights` adds their logs to oldLogp.
 */
export const vespo = defineLoss({
  paper: 'arXiv:2602.10693',
  zeroAtZeroAdvantage: true,
  reports: ['actor/ppo_kl'],
  numbers: { vespoKPos: 2, vespoLambdaPos: 3, vespoKNeg: 3, vespoLambdaNeg: 2 },
  sequenceTerm: {
    of: (_numbers, token) => clamp(token.logp - token.oldLogp, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP),
    wgsl: 'fn sequenceTerm(logRatio: f32, advantage: f32) -> f32 { return clamp(logRatio, -20.0, 20.0); }',
  },
  row({ vespoKPos, vespoLambdaPos, vespoKNeg, vespoLambdaNeg }, token, sequence) {
    const good = token.advantage >= 0;
    const k = good ? vespoKPos : vespoKNeg;
    const lambda = Math.max(good ? vespoLambdaPos : vespoLambdaNeg, 1e-4);
    const logWeight = clamp(sequence.sum, MIN_LOG_WEIGHT, LOG_RATIO_CLAMP);
    const phi = Math.exp(lambda + k * logWeight - lambda * Math.exp(logWeight));
    const grad = -phi * token.advantage;
    return { loss: grad * token.logp, grad };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let good = t.advantage >= 0.0;
  let k = select(params.vespoKNeg, params.vespoKPos, good);
  let lambda = max(select(params.vespoLambdaNeg, params.vespoLambdaPos, good), 1e-4);
  let logWeight = clamp(t.sum, -18.420681, 20.0);
  return -t.advantage * exp(max(lambda + k * logWeight - lambda * exp(logWeight), -80.0));
}`,
});

/**
 * Returns "old" log-probs that include the importance weights of trainer against sampler, so that w is the ratio of the
 * current policy to the sampler: log w = sum_t (logp_t - oldLogp_t) + sum_t clip(log isWeight_t, log 1e-8, 20), as TRL
 * adds them up. One array per sample. A weight of 0 (IcePop) removes the whole sequence.
 */
export function foldImportanceWeights(
  oldLogp: readonly ArrayLike<number>[],
  isWeights: readonly ArrayLike<number>[],
  masks: readonly ArrayLike<number>[],
): Float64Array[] {
  return oldLogp.map((values, s) =>
    Float64Array.from(values, (old, t) =>
      masks[s][t] === 0 ? old : old - clamp(Math.log(isWeights[s][t]), MIN_LOG_WEIGHT, LOG_RATIO_CLAMP),
    ),
  );
}

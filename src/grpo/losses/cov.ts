import { clamp, setting, type LossRows, type PolicyLoss } from './types.ts';

/** Means over the masked entries; `epsilon` is added to the count. */
function means(rows: LossRows, epsilon: number): { advantage: number; logp: number; count: number } {
  let [advantage, logp, count] = [0, 0, 0];
  for (let e = 0; e < rows.logp.length; e++) {
    if (rows.mask && !rows.mask[e]) continue;
    advantage += rows.advantages[e];
    logp += rows.logp[e];
    count++;
  }
  return { advantage: advantage / (count + epsilon), logp: logp / (count + epsilon), count };
}

/** Which `count` of `candidates` to take: a fixed pseudo-random order (verl draws one anew each time). */
function draw(candidates: number[], count: number): number[] {
  if (candidates.length <= count) return candidates;
  const order = candidates.map((e) => ({ e, rank: Math.imul(e + 1, 0x9e3779b1) >>> 0 }));
  order.sort((a, b) => a.rank - b.rank);
  return order.slice(0, count).map(({ e }) => e);
}

/**
 * Clip-Cov (arXiv:2505.22617): the clipped objective (no dual clip, no clamp of the ratio), without the gradient of a few
 * tokens whose covariance (A - mean A)(logp - mean logp) is high, as those collapse the entropy:
 * max(1, floor(clipCovRatio * tokens)) of those with clipCovLb < cov < clipCovUb that the clip left alone.
 * Defaults: clipCovRatio 2e-4, clipCovLb 1, clipCovUb 5.
 */
export const clipCov: PolicyLoss = {
  reports: ['actor/pg_clipfrac', 'actor/ppo_kl'],
  select(spec, rows) {
    const mean = means(rows, 1e-8);
    const candidates: number[] = [];
    for (let e = 0; e < rows.logp.length; e++) {
      if (rows.mask && !rows.mask[e]) continue;
      const ratio = Math.exp(rows.logp[e] - rows.oldLogp[e]);
      const bounded = clamp(ratio, 1 - spec.clipRatioLow, 1 + spec.clipRatioHigh);
      const cov = (rows.advantages[e] - mean.advantage) * (rows.logp[e] - mean.logp);
      const clipped = -rows.advantages[e] * bounded > -rows.advantages[e] * ratio;
      if (!clipped && cov > setting(spec, 'clipCovLb', 1) && cov < setting(spec, 'clipCovUb', 5)) candidates.push(e);
    }
    const count = Math.max(Math.floor(setting(spec, 'clipCovRatio', 2e-4) * mean.count), 1);
    return flags(rows.logp.length, draw(candidates, count));
  },
  row(spec, token) {
    const logRatio = token.logp - token.oldLogp;
    const ratio = Math.exp(logRatio);
    const free = -token.advantage * ratio;
    const bounded = -token.advantage * clamp(ratio, 1 - spec.clipRatioLow, 1 + spec.clipRatioHigh);
    return {
      loss: token.selected ? 0 : Math.max(free, bounded),
      grad: token.selected || bounded > free ? 0 : free,
      clipped: token.selected,
      clippedLower: false,
      kl: -logRatio,
    };
  },
};

/**
 * KL-Cov (arXiv:2505.22617): l = -A r, plus ppoKlCoef |logp - oldLogp| on the max(1, floor(klCovRatio * tokens)) tokens of
 * highest covariance (A - mean A)(logp - mean logp). Defaults: klCovRatio 2e-4, ppoKlCoef 0.1 (verl's config; 1 in its
 * code). `actor/ppo_kl` is the mean |log ratio| here.
 */
export const klCov: PolicyLoss = {
  reports: ['actor/ppo_kl'],
  select(spec, rows) {
    const mean = means(rows, 0);
    if (mean.count === 0) return new Uint8Array(rows.logp.length);
    const order: { e: number; cov: number }[] = [];
    for (let e = 0; e < rows.logp.length; e++) {
      if (rows.mask && !rows.mask[e]) continue;
      order.push({ e, cov: (rows.advantages[e] - mean.advantage) * (rows.logp[e] - mean.logp) });
    }
    order.sort((a, b) => b.cov - a.cov);
    const count = Math.max(1, Math.floor(mean.count * setting(spec, 'klCovRatio', 2e-4)));
    return flags(
      rows.logp.length,
      order.slice(0, count).map(({ e }) => e),
    );
  },
  row(spec, token) {
    const logRatio = token.logp - token.oldLogp;
    const free = -token.advantage * Math.exp(logRatio);
    const coef = token.selected ? setting(spec, 'ppoKlCoef', 0.1) : 0;
    return {
      loss: free + coef * Math.abs(logRatio),
      grad: free + coef * Math.sign(logRatio),
      clipped: false,
      clippedLower: false,
      kl: Math.abs(logRatio),
    };
  },
};

function flags(length: number, chosen: number[]): Uint8Array {
  const selected = new Uint8Array(length);
  for (const e of chosen) selected[e] = 1;
  return selected;
}

import { clamp, defineLoss, type LossRows } from './types.ts';

/** Mean of values over the tokens whose mask is 1; `epsilon` is added to their number. */
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

/** Picks `count` of `candidates` in a fixed pseudo-random order (verl's order differs in each run). */
function draw(candidates: number[], count: number): number[] {
  if (candidates.length <= count) return candidates;
  const order = candidates.map((e) => ({ e, rank: Math.imul(e + 1, 0x9e3779b1) >>> 0 }));
  order.sort((a, b) => a.rank - b.rank);
  return order.slice(0, count).map(({ e }) => e);
}

/**
 * Clip-Cov: the clipped objective (no dual clip, no clamp of the ratio), but a few tokens with high covariance (A -
 * mean A)(logp - mean logp) have no gradient, because such tokens collapse the entropy. Selects max(1,
 * floor(clipCovRatio * tokens)) of the unclipped tokens with clipCovLb < cov < clipCovUb.
 */
export const clipCov = defineLoss({
  paper: 'arXiv:2505.22617',
  zeroAtZeroAdvantage: true,
  reports: ['actor/pg_clipfrac', 'actor/ppo_kl'],
  numbers: { clipCovRatio: 2e-4, clipCovLb: 1, clipCovUb: 5 },
  select({ clipRatioLow, clipRatioHigh, clipCovRatio, clipCovLb, clipCovUb }, rows) {
    const mean = means(rows, 1e-8);
    const candidates: number[] = [];
    for (let e = 0; e < rows.logp.length; e++) {
      if (rows.mask && !rows.mask[e]) continue;
      const ratio = Math.exp(rows.logp[e] - rows.oldLogp[e]);
      const bounded = clamp(ratio, 1 - clipRatioLow, 1 + clipRatioHigh);
      const cov = (rows.advantages[e] - mean.advantage) * (rows.logp[e] - mean.logp);
      const clipped = -rows.advantages[e] * bounded > -rows.advantages[e] * ratio;
      if (!clipped && cov > clipCovLb && cov < clipCovUb) candidates.push(e);
    }
    const count = Math.max(Math.floor(clipCovRatio * mean.count), 1);
    return flags(rows.logp.length, draw(candidates, count));
  },
  row({ clipRatioLow, clipRatioHigh }, token) {
    const ratio = Math.exp(token.logp - token.oldLogp);
    const free = -token.advantage * ratio;
    const bounded = -token.advantage * clamp(ratio, 1 - clipRatioLow, 1 + clipRatioHigh);
    return {
      loss: token.selected ? 0 : Math.max(free, bounded),
      grad: token.selected || bounded > free ? 0 : free,
      clipped: token.selected,
    };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let ratio = exp(min(t.logRatio, 80.0));
  let free = -t.advantage * ratio;
  let bounded = -t.advantage * clamp(ratio, 1.0 - params.clipRatioLow, 1.0 + params.clipRatioHigh);
  return select(free, 0.0, bounded > free || t.selected);
}`,
});

/**
 * KL-Cov: l = -A r, plus ppoKlCoef |logp - oldLogp| on the max(1, floor(klCovRatio * tokens)) tokens with the highest
 * covariance (A - mean A)(logp - mean logp). ppoKlCoef is 0.1 in verl's config file, 1 in verl's code. `actor/ppo_kl`
 * is the mean |log ratio| here.
 */
export const klCov = defineLoss({
  paper: 'arXiv:2505.22617',
  reports: ['actor/ppo_kl'],
  numbers: { klCovRatio: 2e-4, ppoKlCoef: 0.1 },
  select({ klCovRatio }, rows) {
    const mean = means(rows, 0);
    if (mean.count === 0) return new Uint8Array(rows.logp.length);
    const order: { e: number; cov: number }[] = [];
    for (let e = 0; e < rows.logp.length; e++) {
      if (rows.mask && !rows.mask[e]) continue;
      order.push({ e, cov: (rows.advantages[e] - mean.advantage) * (rows.logp[e] - mean.logp) });
    }
    order.sort((a, b) => b.cov - a.cov);
    const count = Math.max(1, Math.floor(mean.count * klCovRatio));
    return flags(
      rows.logp.length,
      order.slice(0, count).map(({ e }) => e),
    );
  },
  row({ ppoKlCoef }, token) {
    const logRatio = token.logp - token.oldLogp;
    const free = -token.advantage * Math.exp(logRatio);
    const coef = token.selected ? ppoKlCoef : 0;
    return {
      loss: free + coef * Math.abs(logRatio),
      grad: free + coef * Math.sign(logRatio),
      kl: Math.abs(logRatio),
    };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let ratio = exp(min(t.logRatio, 80.0));
  return -t.advantage * ratio + select(0.0, params.ppoKlCoef * sign(t.logRatio), t.selected);
}`,
});

function flags(length: number, chosen: number[]): Uint8Array {
  const selected = new Uint8Array(length);
  for (const e of chosen) selected[e] = 1;
  return selected;
}

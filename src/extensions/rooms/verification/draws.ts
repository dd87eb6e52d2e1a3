/**
 * Checks that each sampled token is the one that its random key selects. For this, computes the logits of many samples in one
 * teacher-forced pass per batch, separately for each version of the weights.
 */

import type { DrawBounds, ModelEngine } from '../../../model/engine.ts';
import { uniformAt } from '../../../model/random.ts';
import type { Trajectory } from '../../../rollout/types.ts';
import { packMiniBatch } from '../../../grpo/update/batch.ts';
import { type DrawCheck, Rejection, type Tolerance } from './types.ts';

/** A sample whose tokens are checked. */
export interface DrawnSample {
  group: number;
  key: readonly [number, number];
  /** Version of the weights that must have sampled all tokens. */
  version: number;
  trajectory: Trajectory;
}

/** The method of a ModelEngine that this check uses. */
export type CheckingModel = Required<Pick<ModelEngine, 'drawBounds'>>;

/**
 * For each of T response tokens: its log-prob and its interval in the cumulative distribution under the weights. NaN for tokens that are
 * not checked.
 */
type TokenBounds = { [K in keyof DrawBounds]: Float32Array };

/**
 * Computes, for all sampled tokens, their bounds in the cumulative distribution and their log-probs; returns one entry per sample. Samples
 * of the same version are computed together, in batches of at most `maxTokenLen` tokens. If `weightsOf` returns undefined for a version,
 * the values of its samples stay NaN.
 */
export async function drawBounds(
  samples: readonly DrawnSample[],
  weightsOf: (version: number) => CheckingModel | undefined | Promise<CheckingModel | undefined>,
  { temperature, maxTokenLen }: { temperature: number; maxTokenLen: number },
): Promise<TokenBounds[]> {
  const bounds = samples.map(({ trajectory: { responseIds } }): TokenBounds => {
    const none = () => new Float32Array(responseIds.length).fill(NaN);
    return { logProbs: none(), below: none(), through: none(), total: none() };
  });
  const masks = samples.map(({ trajectory: { mask } }) => mask);
  for (const wanted of new Set(samples.map(({ version }) => version))) {
    const model = await weightsOf(wanted);
    if (!model) continue;
    const chosen = [...samples.keys()].filter((s) => samples[s].version === wanted && masks[s].includes(1));
    const packed = packMiniBatch(samples, chosen, masks, maxTokenLen);
    for (const [m, { batch }] of packed.microBatches.entries()) {
      const out = await model.drawBounds(batch, { temperature });
      for (let e = 0; e < batch.targets.length; e++) {
        const at = packed.offsets[m] + e;
        const own = bounds[packed.samples[packed.entrySample[at]]];
        const t = packed.entryPosition[at];
        for (const name of ['logProbs', 'below', 'through', 'total'] as const) own[name][t] = out[name][e];
      }
    }
  }
  return bounds;
}

/**
 * Compares the tokens and log-probs of a sample with the bounds. `rejection` says why the sample is rejected; undefined if it is accepted.
 */
export function checkDraws(
  { key, trajectory, version }: DrawnSample,
  bounds: TokenBounds,
  tolerance: Tolerance,
): { check: DrawCheck; rejection?: Rejection } {
  const { promptIds, mask, logProbs, logMass } = trajectory;
  const check = {
    tokens: 0,
    nearTokens: 0,
    looseTokens: 0,
    wrongDraws: 0,
    wrongLogProbs: 0,
    drawDistance: 0,
    logProbDistance: 0,
  };
  const count = mask.reduce((sum, m) => sum + m, 0);
  const [mostLoose, mostNear] = [Math.max(1, tolerance.loose * count), Math.max(2, tolerance.near * count)];
  let [firstDraw, firstLogProb] = [Infinity, Infinity];
  for (let t = 0; t < mask.length; t++) {
    if (mask[t] !== 1) continue;
    check.tokens++;
    if (Number.isNaN(bounds.total[t]))
      return { check, rejection: new Rejection('wrong weights', `version ${version} is not available`) };
    const distance = drawDistance(uniformAt(key, promptIds.length + t), bounds, t);
    const difference = Math.abs(logProbs[t] - bounds.logProbs[t]);
    const isNear = distance <= tolerance.draw;
    const isLoose = isNear && distance > (tolerance.share * (bounds.through[t] - bounds.below[t])) / bounds.total[t];
    if (isNear && distance > 0) check.nearTokens++;
    if (isLoose) check.looseTokens++;
    const isTooMany = (isLoose && check.looseTokens > mostLoose) || (distance > 0 && check.nearTokens > mostNear);
    if (!isNear || isTooMany) [check.wrongDraws, firstDraw] = [check.wrongDraws + 1, Math.min(firstDraw, t)];
    if (!(difference <= tolerance.logProb) || logMass[t] !== 0)
      [check.wrongLogProbs, firstLogProb] = [check.wrongLogProbs + 1, Math.min(firstLogProb, t)];
    check.drawDistance = Math.max(check.drawDistance, distance);
    check.logProbDistance = Math.max(check.logProbDistance, difference);
  }
  const reason = reasonOf(check, firstDraw, firstLogProb);
  if (!reason) return { check };
  const { tokens, wrongDraws, wrongLogProbs } = check;
  const detail =
    `of ${tokens} tokens ${wrongDraws} are not the draw of their key` +
    `${wrongDraws > 0 ? `, the first at ${firstDraw}` : ''}, ${wrongLogProbs} have another log-prob` +
    `${wrongLogProbs > 0 ? `, the first at ${firstLogProb}` : ''}`;
  return { check, rejection: new Rejection(reason, detail) };
}

/**
 * Returns the distance between the random number u and the interval that selects the token, in probability mass: 0 if u is inside,
 * otherwise at least 2^-24.
 */
function drawDistance(u: number, { below, through, total }: TokenBounds, t: number): number {
  const goal = Math.fround(u * total[t]);
  if (below[t] <= goal && goal < through[t]) return 0;
  return Math.max(below[t] - goal, goal - through[t], 2 ** -24) / total[t];
}

/**
 * Returns the reason for a rejection; undefined if nothing is wrong. Wrong weights are assumed if most tokens and log-probs are wrong, or
 * if a log-prob is wrong before the first wrong token.
 */
function reasonOf({ tokens, wrongDraws, wrongLogProbs }: DrawCheck, firstDraw: number, firstLogProb: number) {
  if (wrongDraws === 0) return wrongLogProbs > 0 ? ('forged log-probs' as const) : undefined;
  const most = Math.min(wrongDraws, wrongLogProbs) > tokens / 2;
  return most || firstLogProb < firstDraw ? ('wrong weights' as const) : ('forged token' as const);
}

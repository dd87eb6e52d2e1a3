/** Checks whether each drawn token is the draw of its key: teacher-forced logits of many samples at once, by version of the weights. */

import type { DrawBounds, ModelEngine } from '../../../model/engine.ts';
import { uniformAt } from '../../../model/random.ts';
import type { Trajectory } from '../../../rollout/types.ts';
import { packMiniBatch } from '../../../grpo/update/batch.ts';
import { type DrawCheck, Rejection, type Tolerance } from './types.ts';

/** A sample whose draws are to be checked. */
export interface DrawnSample {
  group: number;
  key: readonly [number, number];
  trajectory: Trajectory & Required<Pick<Trajectory, 'weightVersions'>>;
}

/** The part of an engine that is asked. */
export type CheckingModel = Required<Pick<ModelEngine, 'drawBounds'>>;

/** [T] what the weights say of each token; NaN where none was asked. */
type TokenBounds = { [K in keyof DrawBounds]: Float32Array };

/**
 * The bounds of all drawn tokens, one entry a sample: each version's tokens in batches of at most `maxTokenLen` rows. A version
 * that `weightsOf` does not have leaves NaN.
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
  for (const version of new Set(samples.flatMap(({ trajectory }) => versionsOf(trajectory)))) {
    const model = await weightsOf(version);
    if (!model) continue;
    const masks = samples.map(({ trajectory: { mask, weightVersions } }) =>
      mask.map((m, t) => (m === 1 && weightVersions[t] === version ? 1 : 0)),
    );
    const chosen = [...samples.keys()].filter((s) => masks[s].includes(1));
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

/** Versions that drew tokens of a sample. */
const versionsOf = ({ mask, weightVersions }: DrawnSample['trajectory']): number[] => [
  ...new Set(weightVersions.filter((_, t) => mask[t] === 1)),
];

/** Compares what is claimed with the bounds. `rejection` = the first thing that is wrong, undefined = nothing is. */
export function checkDraws(
  { key, trajectory }: DrawnSample,
  bounds: TokenBounds,
  tolerance: Tolerance,
): { check: DrawCheck; rejection?: Rejection } {
  const { promptIds, mask, logProbs, logMass, weightVersions } = trajectory;
  const check = { tokens: 0, nearTokens: 0, wrongDraws: 0, wrongLogProbs: 0, drawDistance: 0, logProbDistance: 0 };
  let [firstDraw, firstLogProb] = [Infinity, Infinity];
  for (let t = 0; t < mask.length; t++) {
    if (mask[t] !== 1) continue;
    check.tokens++;
    if (Number.isNaN(bounds.total[t]))
      return { check, rejection: new Rejection('wrong weights', `version ${weightVersions[t]} is not available`) };
    const distance = drawDistance(uniformAt(key, promptIds.length + t), bounds, t);
    const difference = Math.abs(logProbs[t] - bounds.logProbs[t]);
    if (distance > 0 && distance <= tolerance.draw) check.nearTokens++;
    if (!(distance <= tolerance.draw)) [check.wrongDraws, firstDraw] = [check.wrongDraws + 1, Math.min(firstDraw, t)];
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

/** Mass between u and the interval that draws the token, at least 2^-24 outside of it; 0 = it is the sampler's very draw. */
function drawDistance(u: number, { below, through, total }: TokenBounds, t: number): number {
  const goal = Math.fround(u * total[t]);
  if (below[t] <= goal && goal < through[t]) return 0;
  return Math.max(below[t] - goal, goal - through[t], 2 ** -24) / total[t];
}

/** Other weights show in the log-probs before they show in a draw, or in most of both. */
function reasonOf({ tokens, wrongDraws, wrongLogProbs }: DrawCheck, firstDraw: number, firstLogProb: number) {
  if (wrongDraws === 0) return wrongLogProbs > 0 ? ('forged log-probs' as const) : undefined;
  const most = Math.min(wrongDraws, wrongLogProbs) > tokens / 2;
  return most || firstLogProb < firstDraw ? ('wrong weights' as const) : ('forged token' as const);
}

/** Computes curves of a loss over the ratio, and the pull of a loss on recorded tokens, with the library's own functions. */

import type { RuleLosses, RuleTokens } from '../../../src/extensions/modules/index.ts';
import { RECIPES, VERL_DEFAULTS } from '../../../src/grpo/config/recipes.ts';
import type { Recipe } from '../../../src/grpo/config/types.ts';
import { lossWeights } from '../../../src/grpo/losses/aggregate.ts';
import { computePolicyLoss, type LossAggMode, type PolicyLoss, policyLossOf } from '../../../src/grpo/losses/index.ts';
import { type ClipRange, lossSpec } from '../../../src/grpo/losses/types.ts';
import type { TokenNumbers } from '../../../src/grpo/update/tokenNumbers.ts';
import type { PolicyLossSpec } from '../../../src/model/engine.ts';

interface LossSetting {
  loss: PolicyLoss;
  spec: PolicyLossSpec;
  aggregation: LossAggMode;
}

/** Log-prob of a curve's token when it was sampled. At a probability of 0.1 a ratio can be up to 10. */
export const OLD_LOG_PROB = Math.log(0.1);

/**
 * Returns a loss with the settings that its paper published.
 * @param name a recipe (`grpo`, `dapo`, ...) or a `lossMode`
 */
export function settingOf(
  name: string,
  clip: Partial<ClipRange> = {},
  numbers: Record<string, number> = {},
): LossSetting {
  const recipes: Readonly<Record<string, Recipe | undefined>> = RECIPES;
  const recipe = recipes[name]?.actor ?? { policyLoss: { lossMode: name } };
  const { policyLoss = VERL_DEFAULTS.actor.policyLoss, ...actor } = { ...VERL_DEFAULTS.actor, ...recipe };
  const loss = policyLossOf(String(policyLoss.lossMode ?? 'vanilla'));
  const published = Object.entries(policyLoss).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number',
  );
  const spec = lossSpec(
    loss,
    name,
    { ...(actor as ClipRange), ...clip },
    { ...Object.fromEntries(published), ...numbers },
  );
  return { loss, spec, aggregation: actor.lossAggMode as LossAggMode };
}

/** Values of a loss over the ratio. Each array has one entry per ratio. */
export interface Curve {
  loss: Float64Array;
  /** -d loss / d logp: above 0, the update makes the token more likely. */
  pull: Float64Array;
  /** 1 = the loss holds the token: the pull is 0, although the advantage is not 0. */
  held: Uint8Array;
}

interface CurveOptions {
  ratios: ArrayLike<number>;
  advantage: number;
  clip?: Partial<ClipRange> | undefined;
  numbers?: Record<string, number> | undefined;
  oldLogProb?: number;
}

/** Computes a loss over the ratio. Each ratio is treated as a separate try of one token. */
export function ratioCurve(
  name: string,
  { ratios, advantage, clip, numbers, oldLogProb = OLD_LOG_PROB }: CurveOptions,
): Curve {
  const { loss, spec } = settingOf(name, clip, numbers);
  const count = ratios.length;
  const { perToken, grad } = computePolicyLoss(
    spec,
    {
      logp: Float64Array.from(ratios, (ratio) => oldLogProb + Math.log(ratio)),
      oldLogp: new Float64Array(count).fill(oldLogProb),
      advantages: new Float64Array(count).fill(advantage),
      weights: new Float64Array(count).fill(1),
      seqStart: Uint32Array.from({ length: count + 1 }, (_, s) => s),
    },
    loss,
  );
  return curveOf(perToken, grad, advantage);
}

/** Slopes below this count as 0, because the slope of a reader's loss is computed by differences. */
const NO_SLOPE = 1e-6;

function curveOf(losses: ArrayLike<number>, grads: ArrayLike<number>, advantage: number): Curve {
  const pull = Float64Array.from(grads, (grad) => (Math.abs(grad) < NO_SLOPE ? 0 : -grad));
  return {
    loss: Float64Array.from(losses),
    pull,
    held: Uint8Array.from(pull, (value) => (value === 0 && advantage !== 0 ? 1 : 0)),
  };
}

/** Returns one token per ratio, in the form in which a custom loss of the reader receives tokens. */
export function curveTokens(
  ratios: ArrayLike<number>,
  advantage: number,
  { clipRatioLow, clipRatioHigh }: Pick<ClipRange, 'clipRatioLow' | 'clipRatioHigh'>,
): RuleTokens {
  const of = (value: (ratio: number) => number) => Array.from(ratios, value);
  return {
    advantages: of(() => advantage),
    logProbs: of((ratio) => OLD_LOG_PROB + Math.log(ratio)),
    oldLogProbs: of(() => OLD_LOG_PROB),
    entropies: of(() => 1),
    clipLow: clipRatioLow,
    clipHigh: clipRatioHigh,
  };
}

/** Returns the curve of a reader's loss, from the results of a sandbox for `curveTokens`. */
export const ownCurve = ({ losses, grads }: RuleLosses, advantage: number): Curve => curveOf(losses, grads, advantage);

/** A try as a loss receives it. Each array has one entry per token. */
export interface LossRow {
  /** 1 = trained. */
  mask: ArrayLike<number>;
  /** Log-probs of sampling. */
  logProbs: ArrayLike<number>;
  advantage: number;
}

/** Pull of one loss on all tokens of a batch, and summaries of it. */
export interface LossOnTokens {
  name: string;
  tokens: TokenNumbers;
  /** Share of the trained tokens that the loss holds. */
  heldShare: number;
  /**
   * Effective sample size of the pulls divided by the number of tokens: 1 if all tokens are pulled alike, 1 / tokens if only one token is
   * pulled.
   */
  effectiveShare: number;
  /** Share of the pull that is on tries with an advantage above 0. */
  rightShare: number;
}

/**
 * Returns the pull of several losses on the same tokens. Each loss has the aggregation and the clip of its paper.
 * @param o.logProbs current log-probs, in the shape of the rows
 */
export function tokenGradients(
  rows: readonly LossRow[],
  names: readonly string[],
  o: { logProbs: readonly ArrayLike<number>[]; maxResponseLength: number },
): LossOnTokens[] {
  return names.map((name) => ({ name, ...onTokens(rows, settingOf(name), o) }));
}

function onTokens(
  rows: readonly LossRow[],
  { loss, spec, aggregation }: LossSetting,
  { logProbs, maxResponseLength }: { logProbs: readonly ArrayLike<number>[]; maxResponseLength: number },
): Omit<LossOnTokens, 'name'> {
  const masks = rows.map(({ mask }) => mask);
  const { weights } = lossWeights(loss, aggregation, masks, { maxResponseLength, globalBatchSize: rows.length });
  const entries = entriesOf(rows, logProbs, weights);
  return pullsOf(rows, entries, computePolicyLoss(spec, entries, loss));
}

/**
 * Returns the tokens of a batch in the form in which a custom loss of the reader receives tokens. Recorded tokens have no entropy, so the
 * entropy is 1 for all.
 */
export function batchTokens(
  rows: readonly LossRow[],
  logProbs: readonly ArrayLike<number>[],
  [clipLow, clipHigh]: readonly [number, number],
): RuleTokens {
  const { logp, oldLogp, advantages } = entriesOf(rows, logProbs, []);
  return { advantages, logProbs: logp, oldLogProbs: oldLogp, entropies: advantages.map(() => 1), clipLow, clipHigh };
}

/** Returns the pull of a reader's loss, from the results of a sandbox for `batchTokens`, as a mean over tokens. */
export function ownOnTokens(
  rows: readonly LossRow[],
  { grads }: RuleLosses,
  { logProbs, maxResponseLength }: { logProbs: readonly ArrayLike<number>[]; maxResponseLength: number },
): LossOnTokens {
  const masks = rows.map(({ mask }) => mask);
  const { weights } = lossWeights({}, 'token-mean', masks, { maxResponseLength, globalBatchSize: rows.length });
  const entries = entriesOf(rows, logProbs, weights);
  const grad = grads.map((own, e) => (entries.mask[e] && Math.abs(own) >= NO_SLOPE ? own * entries.weights[e] : 0));
  return { name: 'own', ...pullsOf(rows, entries, { grad, clipped: grad.map(() => 0) }) };
}

/** Returns all tokens of a batch in one row, with the index of each try's first token. */
function entriesOf(
  rows: readonly LossRow[],
  logProbs: readonly ArrayLike<number>[],
  weights: readonly ArrayLike<number>[],
) {
  const ends: number[] = [0];
  for (const { mask } of rows) ends.push(ends.at(-1)! + mask.length);
  const all = (values: readonly ArrayLike<number>[]) => values.flatMap((one) => Array.from(one));
  return {
    logp: all(logProbs),
    oldLogp: all(rows.map((row) => row.logProbs)),
    advantages: rows.flatMap(({ mask, advantage }) => Array.from(mask, () => advantage)),
    weights: all(weights),
    mask: all(rows.map(({ mask }) => mask)),
    seqStart: ends,
  };
}

function pullsOf(
  rows: readonly LossRow[],
  entries: ReturnType<typeof entriesOf>,
  { grad, clipped }: { grad: ArrayLike<number>; clipped: ArrayLike<number> },
): Omit<LossOnTokens, 'name'> {
  const perRow = (values: ArrayLike<number>) =>
    rows.map((_, s) => Float64Array.from(Array.from(values).slice(entries.seqStart[s], entries.seqStart[s + 1])));
  const trained = entries.mask.flatMap((mask, e) => (mask ? [e] : []));
  const sum = (of: (e: number) => number) => trained.reduce((total, e) => total + of(e), 0);
  const size = sum((e) => Math.abs(grad[e]));
  return {
    tokens: {
      ratio: perRow(entries.logp.map((logp, e) => (entries.mask[e] ? Math.exp(logp - entries.oldLogp[e]) : 0))),
      advantage: perRow(entries.advantages),
      weight: perRow(entries.weights),
      grad: perRow(grad),
      clipped: perRow(clipped),
    },
    heldShare: sum((e) => (grad[e] === 0 && entries.advantages[e] !== 0 ? 1 : 0)) / trained.length,
    effectiveShare: size ** 2 / (sum((e) => grad[e] ** 2) * trained.length),
    rightShare: sum((e) => (entries.advantages[e] > 0 ? Math.abs(grad[e]) : 0)) / size,
  };
}

/**
 * Returns each try's share of the pull on fresh samples, with the sign of its advantage. The modes of aggregation differ only in the
 * tokens' weights.
 */
export function pullShares(
  mode: LossAggMode,
  lengths: readonly number[],
  advantages: readonly number[],
  maxResponseLength: number,
): number[] {
  const masks = lengths.map((length) => new Uint8Array(length).fill(1));
  const { weights } = lossWeights({}, mode, masks, { maxResponseLength, globalBatchSize: lengths.length });
  const pulls = weights.map((weight, s) => advantages[s] * weight.reduce((total, one) => total + one, 0));
  const size = pulls.reduce((total, pull) => total + Math.abs(pull), 0);
  return pulls.map((pull) => (size === 0 ? 0 : pull / size));
}

/**
 * Compares per-turn credit to outcome-only credit, on a task in which only the first of three turns matters. The policy is one softmax over
 * actions, the same for every turn, because one model serves every turn. Updates have a fixed length, as is nearly true of AdamW. Measured:
 * 201 samples against 285 until the right action has probability 0.9, means of 40 seeds.
 */
import { expect, test } from 'vitest';
import { type AdvantageEstimator, computeAdvantages } from '../../src/grpo/advantages/index.ts';
import { lossWeights } from '../../src/grpo/losses/aggregate.ts';
import { computePolicyLoss, POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import { mulberry32 } from '../../src/model/random.ts';
import { recipeSpec } from '../recipeSpec.ts';

const ACTIONS = 8;
const TURNS = 3;
const GROUP = 4;
const STEP_LENGTH = 0.15;
/** Masks of samples with one token per turn, and a tool's answer between two turns. */
const MASK = [1, 0, 1, 0, 1];
const SPEC = recipeSpec('reinforce', { rolloutIs: 'none' });

function softmax(logits: readonly number[]): number[] {
  const weights = logits.map(Math.exp);
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / total);
}

function draw(probabilities: readonly number[], uniform: number): number {
  let sum = 0;
  const found = probabilities.findIndex((p) => (sum += p) > uniform);
  return found < 0 ? probabilities.length - 1 : found;
}

/** Applies one update on a group of samples. Only action 0 in the first turn has reward 1. */
function update(logits: number[], estimator: AdvantageEstimator, uniform: () => number): number[] {
  const p = softmax(logits);
  const actions = Array.from({ length: GROUP }, () => Array.from({ length: TURNS }, () => draw(p, uniform())));
  const rewards = actions.map(([first]) => (first === 0 ? 1 : 0));
  const masks = actions.map(() => MASK);
  const turnRewards = rewards.map((r) => [r, 0, 0]);
  const advantages = computeAdvantages(estimator, { rewards, groups: rewards.map(() => 0), masks, turnRewards });
  const { weights } = lossWeights(POLICY_LOSSES.reinforce, 'token-mean', masks, { maxResponseLength: MASK.length });
  const logp = actions.flatMap((turns) => MASK.map((m, t) => (m ? Math.log(p[turns[t / 2]]) : 0)));
  const { grad } = computePolicyLoss(SPEC, {
    logp,
    oldLogp: logp,
    advantages: advantages.flatMap((a) => Array.from(a)),
    weights: weights.flatMap((w) => Array.from(w)),
    seqStart: Array.from({ length: GROUP + 1 }, (_, s) => s * MASK.length),
  });
  const slope = new Array<number>(ACTIONS).fill(0); // d logp(action) / d logit_k = [k = action] - p_k
  actions.forEach((turns, s) =>
    turns.forEach((action, j) => {
      const g = grad[s * MASK.length + 2 * j];
      slope.forEach((_, k) => (slope[k] += g * ((k === action ? 1 : 0) - p[k])));
    }),
  );
  const norm = Math.hypot(...slope);
  return norm === 0 ? logits : logits.map((x, k) => x - (STEP_LENGTH * slope[k]) / norm);
}

/** Returns the number of samples that it takes until the right action has probability 0.9. */
function samplesToLearn(estimator: AdvantageEstimator, seed: number): number {
  const uniform = mulberry32(seed);
  let logits = new Array<number>(ACTIONS).fill(0);
  for (let updates = 0; updates < 5000; updates++) {
    if (softmax(logits)[0] >= 0.9) return updates * GROUP;
    logits = update(logits, estimator, uniform);
  }
  throw new Error(`${estimator} with seed ${seed} has not learned after 5000 updates.`);
}

test('credit per turn learns in fewer samples than the outcome alone', () => {
  const seeds = Array.from({ length: 40 }, (_, i) => i + 1);
  const mean = (estimator: AdvantageEstimator) =>
    seeds.reduce((sum, seed) => sum + samplesToLearn(estimator, seed), 0) / seeds.length;
  const [perTurn, outcome] = [mean('turn_loo'), mean('rloo')];
  expect(perTurn).toBeLessThan(0.8 * outcome);
});

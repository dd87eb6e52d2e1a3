/**
 * Checks our losses, KL terms and advantages against stored cases computed by verl (`webgrpo verify losses FILE`).
 *
 * A case has arrays of B * T numbers (row-major) as inputs, and the numbers that verl computed from them (after the arrow):
 *   policy_loss  mode, config, agg, B, T, old, new, adv, mask, is_weights | null -> loss, dlogp, metrics
 *   kl           mode, B, T, logp, ref, mask -> value (every position), dlogp of the masked token-mean
 *   advantage    mode, config, groups, rewards (on the first token of each row), mask, N, T -> advantages
 */

import type { PolicyLossSpec } from '../../model/engine.ts';
import {
  broadcast,
  gdpo,
  gpg,
  grpo,
  grpoPassk,
  indicesByGroup,
  opo,
  reinforcePlusPlus,
  reinforcePlusPlusBaseline,
  remax,
  rloo,
} from '../../grpo/advantages/index.ts';
import { LOSS_AGG_MODES, lossWeights } from '../../grpo/losses/aggregate.ts';
import { klPenalty } from '../../grpo/losses/kl.ts';
import { computePolicyLoss, POLICY_LOSSES, policyLossOf, type LossAggMode } from '../../grpo/losses/index.ts';
import { lossSpec } from '../../grpo/losses/types.ts';
import { rolloutCorrection, type RolloutCorrection } from '../../grpo/correction/correct.ts';

type Json = Record<string, unknown>;

interface VerifyReport {
  /** Number of cases in the file. */
  cases: number;
  /** Number of cases that were checked; the others have a kind or mode that is unknown here. */
  checked: number;
  /** Largest |got - expected| / max(1, |expected|) over all compared values. */
  maxError: number;
  /** Case and value with the largest error; null if nothing was compared. */
  worst: { case: number; kind: string; mode: string; what: string; got: number; expected: number } | null;
}

/** Parses a file of cases. NaN and Infinity, which Python writes although JSON does not have them, become null and are not compared. */
export function parseCases(text: string): unknown {
  return JSON.parse(text.replace(/(?<=[\s:[,])-?(?:NaN|Infinity)(?=[\s,\]}])/g, 'null'));
}

/** Evaluates all cases of a parsed file. Throws TypeError if the file has no array `cases`. */
export function verifyCases(json: unknown): VerifyReport {
  const cases = isObject(json) ? json.cases : undefined;
  if (!Array.isArray(cases)) throw new TypeError('The file of loss cases has no array "cases". Add one.');
  const report: VerifyReport = { cases: cases.length, checked: 0, maxError: 0, worst: null };
  cases.forEach((entry: unknown, index) => {
    if (!isObject(entry)) throw new TypeError(`Case ${index} is not an object.`);
    const got = evaluate(entry);
    if (got === null) return;
    report.checked++;
    for (const [what, value] of Object.entries(got)) compare(report, index, entry, what, value);
  });
  return report;
}

type Outcome = Record<string, number | ArrayLike<number> | Record<string, number>>;

function evaluate(entry: Json): Outcome | null {
  switch (entry.kind) {
    case 'policy_loss':
      return evaluatePolicyLoss(entry);
    case 'kl':
      return evaluateKl(entry);
    case 'advantage':
      return evaluateAdvantage(entry);
    default:
      return null;
  }
}

/**
 * Compares our result `what` with the values that the case expects, and records the largest error. Metrics that only we compute are
 * ignored.
 */
function compare(report: VerifyReport, index: number, entry: Json, what: string, got: Outcome[string]): void {
  const expected = entry[what];
  if (expected === undefined || expected === null) return;
  if (typeof expected === 'number') return record(report, index, entry, what, got as number, expected);
  for (const [key, value] of Object.entries(expected as Record<string, unknown>)) {
    if (typeof value !== 'number') continue;
    const ours = (got as Record<string, number>)[key];
    record(report, index, entry, `${what}[${key}]`, ours, value);
  }
}

/** Records the error of one value. If our value is missing or NaN, the error is the largest possible number. */
function record(report: VerifyReport, index: number, entry: Json, what: string, got: number, expected: number): void {
  const difference = Math.abs(got - expected) / Math.max(1, Math.abs(expected));
  const error = Number.isFinite(difference) ? difference : Number.MAX_VALUE; // Infinity would be null in JSON
  if (report.worst !== null && error <= report.maxError) return;
  report.maxError = error;
  report.worst = { case: index, kind: String(entry.kind), mode: String(entry.mode), what, got, expected };
}

/** Splits an array of B * T values into B rows. */
const rowsOf = (flat: readonly number[], width: number): number[][] =>
  Array.from({ length: width === 0 ? 0 : flat.length / width }, (_, b) => flat.slice(b * width, (b + 1) * width));

const flatten = (rows: readonly Float64Array[]): number[] => rows.flatMap((row) => Array.from(row));

function evaluatePolicyLoss(entry: Json): Outcome | null {
  const mode = String(entry.mode);
  if (mode === 'bypass_mode') return evaluateBypass(entry);
  if (!Object.hasOwn(POLICY_LOSSES, mode) || !LOSS_AGG_MODES.includes(entry.agg as LossAggMode)) return null;
  const width = entry.T as number;
  const config = (entry.config ?? {}) as Json;
  const mask = entry.mask as number[];
  const isWeights = entry.is_weights as number[] | null | undefined;
  const { weights } = lossWeights(POLICY_LOSSES[mode], entry.agg as LossAggMode, rowsOf(mask, width), {
    maxResponseLength: typeof config.loss_scale_factor === 'number' ? config.loss_scale_factor : width,
    ...(isWeights ? { isWeights: rowsOf(isWeights, width) } : {}),
  });
  const { loss, grad, metrics } = computePolicyLoss(specOf(mode, config), {
    logp: entry.new as number[],
    oldLogp: entry.old as number[],
    advantages: entry.adv as number[],
    weights: flatten(weights),
    mask,
    seqStart: Array.from({ length: (entry.B as number) + 1 }, (_, b) => b * width),
  });
  return { loss, dlogp: grad, metrics };
}

/**
 * Evaluates a case of verl's bypass mode, in which "old" are the log-probs of the rollout engine, and importance weights and rejections are
 * computed against the current policy. PPO-clip uses only the rejections, because its ratio already is the weight. REINFORCE uses both.
 */
function evaluateBypass(entry: Json): Outcome | null {
  const width = entry.T as number;
  const config = (entry.config ?? {}) as Json;
  const nested = isObject(config.policy_loss) ? config.policy_loss : config;
  const correction = isObject(nested.rollout_correction) ? nested.rollout_correction : nested;
  const { masks, isWeights, metrics } = rolloutCorrection(correctionOf(correction), {
    oldLogp: rowsOf(entry.new as number[], width),
    rolloutLogp: rowsOf(entry.old as number[], width),
    masks: rowsOf(entry.mask as number[], width),
  });
  const reinforce = correction.loss_type === 'reinforce';
  const result = evaluatePolicyLoss({
    ...entry,
    mode: reinforce ? 'reinforce' : 'vanilla',
    mask: flatten(masks),
    is_weights: reinforce && isWeights ? flatten(isWeights) : null,
  });
  return result && { ...result, metrics: { ...(result.metrics as Record<string, number>), ...metrics } };
}

/** Converts verl's rollout_correction config. Missing keys get the defaults of verl's RolloutCorrectionConfig. */
function correctionOf(config: Json): RolloutCorrection {
  const level = config.rollout_is === undefined ? 'sequence' : (config.rollout_is ?? 'none');
  return {
    rolloutIs: level as RolloutCorrection['rolloutIs'],
    rolloutIsThreshold: (config.rollout_is_threshold ?? 2) as number | string,
    rolloutIsBatchNormalize: config.rollout_is_batch_normalize === true,
    rolloutRs: (config.rollout_rs ?? '') as string,
    rolloutRsThreshold: (config.rollout_rs_threshold ?? '') as number | string,
  };
}

/** Converts verl's actor config to the spec of a policy loss. Missing clip ratios get the defaults of verl's ActorConfig. */
function specOf(lossMode: string, config: Json): PolicyLossSpec {
  const nested = isObject(config.policy_loss) ? config.policy_loss : {};
  const read = (name: string): number | undefined => {
    const value = config[name] ?? nested[name];
    return typeof value === 'number' ? value : undefined;
  };
  const bound = (name: string): number => (config[name] === null ? read('clip_ratio') : read(name)) ?? 0.2;
  const clip = {
    clipRatioLow: bound('clip_ratio_low'),
    clipRatioHigh: bound('clip_ratio_high'),
    clipRatioC: read('clip_ratio_c') ?? 3,
  };
  const loss = policyLossOf(lossMode);
  const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const given: Record<string, number | undefined> = {};
  for (const name of Object.keys(loss.numbers ?? {})) given[name] = read(snake(name));
  return lossSpec(loss, lossMode, clip, given);
}

const VERL_KL_CLAMP = 10;

function evaluateKl(entry: Json): Outcome | null {
  const mode = String(entry.mode);
  if (!/^(kl|k1|abs|mse|k2|low_var_kl|k3)\+?$/.test(mode)) return null;
  const [logp, ref, mask] = [entry.logp, entry.ref, entry.mask] as number[][];
  const count = mask.reduce((a, b) => a + b, 0);
  const terms = logp.map((l, i) => klPenalty(mode, l, ref[i], { valueClamp: VERL_KL_CLAMP }));
  return {
    value: terms.map((term) => term.value),
    dlogp: terms.map((term, i) => (mask[i] === 0 ? 0 : (term.grad * mask[i]) / count)),
  };
}

function evaluateAdvantage(entry: Json): Outcome | null {
  const width = entry.T as number;
  const masks = rowsOf(entry.mask as number[], width);
  const advantages = advantagesOf(entry, masks);
  return advantages === null ? null : { advantages: flatten(advantages) };
}

function advantagesOf(entry: Json, masks: number[][]): Float64Array[] | null {
  const config = (entry.config ?? {}) as Json;
  const groups = entry.groups as string[];
  const rewards = entry.rewards as number[];
  const scale = config.norm_adv_by_std_in_grpo === false ? 'none' : 'group';
  const gamma = typeof config.gamma === 'number' ? config.gamma : 1;
  const onFirstToken = rewards.map((r, i) => Float64Array.from(masks[i], (_, t) => (t === 0 ? r : 0)));
  const lengths = masks.map((mask) => mask.reduce((a, b) => a + b, 0));
  switch (entry.mode) {
    case 'grpo_vectorized':
      return broadcast(vectorizedGrpo(rewards, groups, scale === 'group'), masks);
    case 'rloo_vectorized':
      return broadcast(
        rloo(rewards, groups).map((a, i) => (groups.filter((g) => g === groups[i]).length > 1 ? a : 0)),
        masks,
      );
    case 'grpo':
      return broadcast(grpo(rewards, groups, scale), masks);
    case 'rloo':
      return broadcast(rloo(rewards, groups), masks);
    case 'opo':
      return broadcast(opo(rewards, groups, lengths), masks);
    case 'grpo_passk':
      return broadcast(grpoPassk(rewards, groups, scale), masks);
    case 'gpg':
      return broadcast(gpg(rewards, groups), masks);
    case 'reinforce_plus_plus_baseline':
      return reinforcePlusPlusBaseline(rewards, groups, masks);
    case 'reinforce_plus_plus':
      return reinforcePlusPlus(onFirstToken, masks, gamma);
    case 'remax': {
      const baselines = (entry.reward_baselines ?? entry.baselines) as number[] | undefined;
      return baselines ? remax(onFirstToken, masks, baselines) : null;
    }
    case 'gdpo':
      return gdpo([rewards], groups, masks, undefined, scale);
    default:
      return null;
  }
}

/** Computes GRPO advantages as verl's vectorised version does: mean and standard deviation of a group are rounded to float32. */
function vectorizedGrpo(rewards: readonly number[], groups: readonly string[], normByStd: boolean): Float64Array {
  const f32 = Math.fround;
  const out = new Float64Array(rewards.length);
  for (const members of indicesByGroup(rewards, groups)) {
    const scores = members.map((i) => f32(rewards[i]));
    const center = f32(scores.reduce((a, b) => f32(a + b), 0) / scores.length);
    const squares = scores.map((r) => f32(f32(r - center) * f32(r - center)));
    const spread = f32(Math.sqrt(f32(squares.reduce((a, b) => f32(a + b), 0) / (scores.length - 1))));
    const [low, divisor] = scores.length === 1 ? [0, f32(1 + 1e-6)] : [center, f32(spread + 1e-6)];
    for (const i of members) out[i] = (rewards[i] - low) / (normByStd ? divisor : 1);
  }
  return out;
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

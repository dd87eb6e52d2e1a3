/**
 * Tests that an exported run has the same loss. The other library's formula, implemented here, is computed on one batch with the exported
 * settings.
 */

import { expect, test } from 'vitest';
import { trlRun } from '../../src/cli/export/trl.ts';
import { verlRun } from '../../src/cli/export/verl.ts';
import { computePolicyLoss, policyLossOf } from '../../src/grpo/losses/index.ts';
import { lossWeights } from '../../src/grpo/losses/aggregate.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { rng } from '../random.ts';

const FILE = 'name: t\nmodel: m\ndata: { maxResponseLength: 16 }\nrollout: { n: 4 }\n';
const config = (...overrides: string[]) => parseTrainConfig(FILE, { source: 't.yaml', overrides });
/** Three sequences, with ratios on both sides of every clip. */
const draw = rng(7);
const SEQUENCES = [5, 3, 7].map((length, s) => {
  const old = Array.from(draw.normals(length, 0.4), (x) => -1.5 - Math.abs(x));
  const noise = draw.normals(length, s === 1 ? 1.5 : 0.5);
  return {
    old,
    logp: old.map((x, t) => Math.min(x + noise[t], -1e-3)),
    ref: old.map((x, t) => x - 0.3 * noise[t]),
    advantage: [1.2, -0.7, 0.4][s],
  };
});
const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
const mean = (values: number[]) => sum(values) / values.length;
const within = (x: number, low: number, high: number) => Math.min(Math.max(x, low), high);

/** Returns webgrpo's loss in float64, from rows, weights and KL. */
function ours(run: ReturnType<typeof config>): number {
  const masks = SEQUENCES.map(({ logp }) => logp.map(() => 1));
  const spec = policyLossSpec(run);
  const { weights, klWeights } = lossWeights(policyLossOf(spec.lossMode), run.actor.lossAggMode, masks, {
    maxResponseLength: run.data.maxResponseLength,
  });
  const seqStart = [0, 5, 8, 15];
  return computePolicyLoss(spec, {
    logp: SEQUENCES.flatMap(({ logp }) => logp),
    oldLogp: SEQUENCES.flatMap(({ old }) => old),
    refLogp: SEQUENCES.flatMap(({ ref }) => ref),
    advantages: SEQUENCES.flatMap(({ logp, advantage }) => logp.map(() => advantage)),
    weights: weights.flatMap((w) => [...w]),
    klWeights: klWeights.flatMap((w) => [...w]),
    seqStart,
  }).loss;
}

/** Returns TRL's loss with the settings in the exported train.py. */
function trls(run: ReturnType<typeof config>): number {
  const { settings } = trlRun(run);
  const s = settings as Record<string, number>;
  const is = (key: string, value: string) => settings[key] === value;
  const losses = SEQUENCES.map(({ logp, old, ref, advantage: a }) => {
    const d = logp.map((x, t) => x - old[t]);
    const level = is('importance_sampling_level', 'sequence') ? d.map(() => mean(d)) : d;
    const phi = (() => {
      const logW = within(sum(d.map((x) => within(x, -20, 20))), Math.log(1e-8), 20);
      const [k, l] =
        a >= 0
          ? [s['vespo_k_pos'] ?? 2, s['vespo_lambda_pos'] ?? 3]
          : [s['vespo_k_neg'] ?? 3, s['vespo_lambda_neg'] ?? 2];
      return Math.exp(l + k * logW - l * Math.exp(logW));
    })();
    return level.map((x, t) => {
      const r = Math.exp(x);
      const e = ref[t] - logp[t];
      const kl = (Math.exp(e) - e - 1) * (s['use_bias_correction_kl'] ? Math.exp(d[t]) : 1);
      const policy = (() => {
        if (is('loss_type', 'cispo')) return -Math.min(r, s['epsilon_high']) * a * logp[t];
        if (is('loss_type', 'vespo')) return -phi * a * logp[t];
        if (is('loss_type', 'sapo')) {
          const tau = a > 0 ? (s['sapo_temperature_pos'] ?? 1) : (s['sapo_temperature_neg'] ?? 1.05);
          return (-a * 4) / tau / (1 + Math.exp(-tau * (r - 1)));
        }
        const bounded = s['delta'] === undefined ? r : Math.min(r, s['delta']);
        return -Math.min(bounded * a, within(r, 1 - s['epsilon'], 1 + s['epsilon_high']) * a);
      })();
      return policy + s['beta'] * kl;
    });
  });
  if (['dapo', 'cispo', 'vespo'].some((loss) => is('loss_type', loss))) return mean(losses.flat());
  if (is('loss_type', 'dr_grpo')) return sum(losses.flat()) / (losses.length * s['max_completion_length']);
  if (is('loss_type', 'luspo')) return mean(losses.map((l) => l[0] * l.length));
  return mean(losses.map(mean));
}

test.each([
  ['algorithm.name=grpo'],
  ['algorithm.name=dapo', 'actor.clipRatioC=1.5'],
  ['algorithm.name=dr_grpo', 'actor.clipRatioC=1.3'],
  ['algorithm.name=grpo', 'actor.klLossCoef=0.2'],
  ['algorithm.name=dapo', 'actor.klLossCoef=0.2', 'actor.klLossType=r*k3'],
  ['algorithm.name=gspo'],
  ['algorithm.name=gspo', 'actor.lossAggMode=token-mean'],
  ['algorithm.name=cispo'],
  ['algorithm.name=cispo', 'actor.policyLoss.wMax=1.4'],
  ['algorithm.name=sapo', 'actor.policyLoss.tauPos=2'],
  ['algorithm.name=luspo'],
  ['algorithm.name=vespo', 'actor.policyLoss.vespoKNeg=1.5'],
])("TRL's formula with what is written for %s %s is our loss", (...overrides) => {
  const run = config(...overrides);
  // webgrpo adds 1e-8 to a length, as verl does; TRL does not.
  expect(trls(run)).toBeCloseTo(ours(run), 7);
});

/** Returns verl's loss with the settings in the exported run.sh. */
function verls(run: ReturnType<typeof config>): number {
  const all = Object.fromEntries(verlRun(run, '.').overrides.map(([key, value]) => [key.replace('++', ''), value]));
  const s = (key: string) => all[`actor_rollout_ref.actor.${key}`] as number;
  const is = (key: string, value: string) => all[`actor_rollout_ref.actor.${key}`] === value;
  const [low, high] = [s('clip_ratio_low'), s('clip_ratio_high')];
  const losses = SEQUENCES.map(({ logp, old, advantage: a }) =>
    logp.map((x, t) => {
      const r = Math.exp(x - old[t]);
      if (is('policy_loss.loss_mode', 'cispo')) return -within(r, 1 - low, 1 + high) * a * x;
      if (is('policy_loss.loss_mode', 'dro')) return -(x * a - 0.5 * s('policy_loss.dro_beta') * (x - old[t]) ** 2);
      if (is('policy_loss.loss_mode', 'dppo_tv')) {
        const moved = Math.exp(x) - Math.exp(old[t]);
        const kept = a > 0 ? moved <= high : moved >= -low;
        return kept ? -a * Math.min(r, s('clip_ratio_c')) * x : 0;
      }
      const once = Math.max(-a * r, -a * within(r, 1 - low, 1 + high));
      return a < 0 ? Math.min(once, -a * s('clip_ratio_c')) : once;
    }),
  );
  if (is('loss_agg_mode', 'token-mean')) return mean(losses.flat());
  if (is('loss_agg_mode', 'token-sum')) return sum(losses.flat());
  if (is('loss_agg_mode', 'seq-mean-token-sum-norm')) return mean(losses.map(sum)) / s('loss_scale_factor');
  return is('loss_agg_mode', 'seq-mean-token-sum') ? mean(losses.map(sum)) : mean(losses.map(mean));
}

test.each([
  ['algorithm.name=grpo'],
  ['algorithm.name=dapo', 'actor.clipRatioC=1.3'],
  ['algorithm.name=dr_grpo'],
  ['algorithm.name=rloo'],
  ['algorithm.name=dapo', 'actor.lossAggMode=token-sum'],
  ['algorithm.name=cispo'],
  ['algorithm.name=cispo', 'actor.policyLoss.wMax=1.4'],
  ['algorithm.name=dro', 'actor.policyLoss.droBeta=0.3'],
  ['algorithm.name=dppo_tv'],
])("verl's formula with what is written for %s %s is our loss", (...overrides) => {
  const run = config(...overrides);
  expect(verls(run)).toBeCloseTo(ours(run), 7);
});

test('settings that TRL lacks are listed, not dropped', () => {
  const lost = (...overrides: string[]) => trlRun(config(...overrides)).notCarried.join('\n');
  expect(lost('actor.klLossCoef=0.1', 'actor.klLossType=k2')).toContain('actor.klLossType k2');
  for (const name of ['dapo', 'cispo', 'vespo']) {
    const divisor = `loss_type ${name} averages in its own way; TRL before 1.10 also divides by the tokens of all updates of a step`;
    expect(lost(`algorithm.name=${name}`, 'data.trainBatchSize=16', 'actor.ppoMiniBatchSize=8')).toContain(divisor);
    expect(lost(`algorithm.name=${name}`, 'data.trainBatchSize=8', 'actor.ppoMiniBatchSize=8')).not.toContain(divisor);
  }
  expect(lost('rollout.presencePenalty=0.5')).toContain('rollout.presencePenalty 0.5: TRL has no such setting.');
  expect(
    trlRun(config('actor.entropyCoeff=0.01', 'actor.entropyTarget=0.3', 'actor.topEntropyQuantile=0.2')).settings,
  ).toMatchObject({
    entropy_coef: 0.01,
    use_adaptive_entropy: true,
    entropy_target: 0.3,
    top_entropy_quantile: 0.2,
  });
  const synced = config('actor.klLossCoef=0.1', 'trainer.refUpdateFreq=3');
  expect(trlRun(synced).settings).toMatchObject({
    sync_ref_model: true,
    ref_model_sync_steps: 6,
    ref_model_mixup_alpha: 1,
  });
});

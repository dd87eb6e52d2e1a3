import codeLoss from '../../../kernels/policy_loss.wgsl?raw';
import codeStats from '../../../kernels/policy_stats.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';
import { groupsOf } from './grid.ts';

export const policyStatsKernel = defineKernel({
  name: 'policy_stats',
  code: codeStats,
  read: ['logp', 'inputs', 'seqStart'],
  write: ['stats'],
  params: { S: 'u32', mode: 'u32', clipLow: 'f32', clipHigh: 'f32' },
});

export const policyLossKernel = defineKernel({
  name: 'policy_loss',
  code: codeLoss,
  read: ['logp', 'inputs', 'entrySample', 'stats'],
  write: ['dLogp'],
  params: {
    E: 'u32',
    mode: 'u32',
    klType: 'u32',
    clipLow: 'f32',
    clipHigh: 'f32',
    clipC: 'f32',
    klCoef: 'f32',
    klClamp: 'f32',
    p0: 'f32',
    p1: 'f32',
    p2: 'f32',
    p3: 'f32',
  },
});

/** The numbers of a policy loss by name (PolicyLossSpec of src/model/engine.ts). */
export type LossSettings = Readonly<Record<string, number | string>>;

interface Mode {
  id: number;
  /** True when the row needs policy_stats. */
  sequence: boolean;
  /** p0 .. p3 of the kernel. */
  numbers: (settings: LossSettings) => number[];
}

const none = (): number[] => [];
const num = (settings: LossSettings, name: string, fallback: number): number => Number(settings[name] ?? fallback);

/** Modes of policy_loss.wgsl; names and defaults as in src/grpo/losses/. */
const MODES: Readonly<Record<string, Mode>> = {
  vanilla: { id: 0, sequence: false, numbers: none },
  gspo: { id: 1, sequence: true, numbers: none },
  luspo: { id: 1, sequence: true, numbers: none },
  sapo: { id: 2, sequence: false, numbers: (s) => [num(s, 'tauPos', 1), num(s, 'tauNeg', 1.05)] },
  cispo: { id: 3, sequence: false, numbers: (s) => [num(s, 'wMax', 1 + num(s, 'clipRatioHigh', 0.2))] },
  geo_mean: { id: 4, sequence: true, numbers: none },
  gpg: { id: 5, sequence: false, numbers: none },
  dppo_tv: { id: 6, sequence: false, numbers: none },
  dppo_kl: { id: 7, sequence: false, numbers: none },
  dro: { id: 8, sequence: false, numbers: (s) => [num(s, 'droBeta', 0)] },
  clip_cov: { id: 9, sequence: false, numbers: none },
  kl_cov: { id: 10, sequence: false, numbers: (s) => [num(s, 'ppoKlCoef', 0.1)] },
  vespo: {
    id: 11,
    sequence: true,
    numbers: (s) => [
      num(s, 'vespoKPos', 2),
      num(s, 'vespoLambdaPos', 3),
      num(s, 'vespoKNeg', 3),
      num(s, 'vespoLambdaNeg', 2),
    ],
  },
  reinforce: {
    id: 12,
    sequence: true,
    numbers: (s) => [s.rolloutIs === 'token' ? 1 : s.rolloutIs === 'sequence' ? 2 : 0, num(s, 'rolloutIsThreshold', 2)],
  },
};

/** Modes whose weights come with a selection made on the host (flags 2 of the inputs). */
export const GPU_POLICY_LOSSES = Object.keys(MODES);

const KL_IDS: Readonly<Record<string, number>> = {
  k1: 0,
  kl: 0,
  k2: 1,
  mse: 1,
  k3: 2,
  low_var_kl: 2,
  abs: 3,
  'r*k3': 4,
};
const NO_CLAMP = 1e30;

/** k1+, k3+, abs+ have the gradient of k2. */
function klId(type: string): number {
  const id = type.endsWith('+') ? KL_IDS.k2 : KL_IDS[type];
  if (id === undefined)
    throw new RangeError(`Unknown KL type "${type}"; known are ${Object.keys(KL_IDS).join(', ')}, k1+, k3+.`);
  return id;
}

/** What the kernel reads of an entry beside its log-prob; all [E]. */
export interface PolicyRows {
  oldLogProbs: ArrayLike<number>;
  advantages: ArrayLike<number>;
  weights: ArrayLike<number>;
  refLogProbs?: ArrayLike<number> | undefined;
  /** Absent = weights. */
  klWeights?: ArrayLike<number> | undefined;
  /** 1 = trained; absent = all. */
  mask?: ArrayLike<number> | undefined;
  /** 1 = selected by clip-cov / kl-cov; absent = none. */
  selected?: ArrayLike<number> | undefined;
}

/** Numbers a row of `inputs` holds. */
export const POLICY_INPUTS = 6;

/** [E, 6] for the `inputs` view. */
export function packPolicyRows(rows: PolicyRows): Float32Array<ArrayBuffer> {
  const E = rows.oldLogProbs.length;
  const out = new Float32Array(E * POLICY_INPUTS);
  for (let e = 0; e < E; e++) {
    const flags = (rows.mask && rows.mask[e] === 0 ? 0 : 1) + (rows.selected && rows.selected[e] !== 0 ? 2 : 0);
    const row = [rows.oldLogProbs[e], rows.advantages[e], rows.weights[e], rows.refLogProbs?.[e] ?? 0];
    out.set([...row, (rows.klWeights ?? rows.weights)[e], flags], e * POLICY_INPUTS);
  }
  return out;
}

/** [E] the sample of each entry, from seqStart [S + 1]. */
export function entrySamples(seqStart: ArrayLike<number>): Uint32Array<ArrayBuffer> {
  const out = new Uint32Array(seqStart[seqStart.length - 1]);
  for (let s = 0; s + 1 < seqStart.length; s++) out.fill(s, seqStart[s], seqStart[s + 1]);
  return out;
}

export interface PolicyLossArgs {
  settings: LossSettings;
  /** [E] */
  logp: View;
  /** [E, 6] from packPolicyRows */
  inputs: View;
  /** [E] from entrySamples */
  entrySample: View;
  /** [S + 1] */
  seqStart: View;
  /** [S, 4] scratch */
  stats: View;
  /** [E] out */
  dLogp: View;
  E: number;
  S: number;
}

/** Records d loss / d logp of a micro-batch. Throws a RangeError that lists the known modes. */
export function policyLoss(gpu: Gpu, args: PolicyLossArgs): void {
  const { settings, logp, inputs, entrySample, seqStart, stats, dLogp, E, S } = args;
  const mode = MODES[String(settings.lossMode)];
  if (!mode)
    throw new RangeError(
      `No kernel for policy loss "${settings.lossMode}"; there are ${GPU_POLICY_LOSSES.join(', ')}.`,
    );
  expectElements('policy_loss logp [E]', logp, E);
  expectElements('policy_loss inputs [E, 6]', inputs, E * POLICY_INPUTS);
  expectElements('policy_loss dLogp [E]', dLogp, E);
  expectElements('policy_loss stats [S, 4]', stats, S * 4);
  const [clipLow, clipHigh] = [num(settings, 'clipRatioLow', 0.2), num(settings, 'clipRatioHigh', 0.2)];
  if (mode.sequence) {
    const params = { S, mode: mode.id, clipLow, clipHigh };
    gpu.dispatch(policyStatsKernel, { logp, inputs, seqStart, stats }, params, groupsOf(S));
  }
  const [p0 = 0, p1 = 0, p2 = 0, p3 = 0] = mode.numbers(settings);
  const params = {
    E,
    mode: mode.id,
    klType: klId(String(settings.klLossType ?? 'k3')),
    clipLow,
    clipHigh,
    clipC: num(settings, 'clipRatioC', 3),
    klCoef: num(settings, 'klLossCoef', 0),
    klClamp: num(settings, 'klClamp', NO_CLAMP),
    p0,
    p1,
    p2,
    p3,
  };
  gpu.dispatch(policyLossKernel, { logp, inputs, entrySample, stats, dLogp }, params, groupsOf(E));
}

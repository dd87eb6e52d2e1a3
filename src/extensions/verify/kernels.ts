/** Checks single kernels on the current adapter against float64: matmuls of every tile size, and every policy loss. */

import type { Gpu } from '../../gpu/device.ts';
import { matmulNn, matmulTn } from '../../gpu/ops/matmul.ts';
import { entrySamples, packPolicyRows, policyLoss, preparePolicyLoss } from '../../gpu/ops/policy_loss.ts';
import { resolveTrainConfig } from '../../grpo/config/resolve.ts';
import { policyLossSpec } from '../../grpo/update/lossSpec.ts';
import { computePolicyLoss, isOwnLoss, POLICY_LOSSES, type PolicyLoss } from '../../grpo/losses/index.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';
import { keyedRng } from '../../tasks/random.ts';

/** Result of one check. It passes if `error` is at most `limit`. */
export interface Check {
  name: string;
  /** Largest error found. For gradients, relative to the gradient. */
  error: number;
  limit: number;
}

/** Numbers of rows that together make `chooseMatmul` select every tile. On purpose, they do not fill whole tiles. */
const ROWS = [1, 3, 7, 13, 37, 70];
const [N, K] = [67, 61];

/** Checks the matmul kernels that this adapter selects, for all numbers of rows in ROWS. */
export async function verifyProducts(gpu: Gpu): Promise<Check> {
  const errors: number[] = [];
  for (const M of ROWS) {
    const [x, b] = [noise('x', M * K), noise('b', K * N)];
    const want = product(x, b, M);
    const views = { x: gpu.buffer('verify.x', x), b: gpu.buffer('verify.b', b), y: gpu.buffer('verify.y', M * N * 4) };
    matmulNn(gpu, { ...views, M, N, K });
    errors.push(relativeError(await gpu.readF32(views.y), want));
    gpu.clear(views.y);
    const a = Float32Array.from(x, (_, i) => x[(i % M) * K + Math.floor(i / M)]); // [K, M]
    gpu.write(views.x, a);
    matmulTn(gpu, { a: views.x, b: views.b, y: views.y, M, N, K });
    errors.push(relativeError(await gpu.readF32(views.y), want));
    for (const view of Object.values(views)) gpu.free(view);
  }
  return { name: `products of ${ROWS.join(', ')} rows, x W and x^T y`, error: worst(errors), limit: 1e-5 };
}

/** Lengths of the sequences in the checks of losses. One is empty on purpose. */
const LENGTHS = [1, 7, 0, 64, 130, 3];
const SEQ_START = LENGTHS.reduce((starts, n) => [...starts, starts[starts.length - 1] + n], [0]);
const E = SEQ_START[LENGTHS.length];
/** Name of the recipe that has this lossMode, if the names differ. */
export const RECIPE_OF_LOSS: Record<string, string> = { vanilla: 'dapo', geo_mean: 'gmpo' };

/**
 * Checks the kernels of all losses, with log ratios near and far from 0 and with excluded and selected tokens. Throws InputError if the
 * WGSL of a custom loss does not compile.
 */
export async function verifyLossKernels(gpu: Gpu): Promise<Check[]> {
  const checks: Check[] = [];
  for (const [lossMode, { wgsl }] of Object.entries(POLICY_LOSSES)) {
    if (wgsl === undefined) continue;
    const algorithm = { name: RECIPE_OF_LOSS[lossMode] ?? lossMode };
    const spec = policyLossSpec(
      resolveTrainConfig({ name: 'verify', model: { path: 'none' }, actor: { klLossCoef: 0.1 }, algorithm }),
    );
    const errors: number[] = [];
    if (isOwnLoss(lossMode)) await preparePolicyLoss(gpu, spec);
    for (const drift of [0.001, 0.3, 2]) errors.push(await lossError(gpu, spec, drift));
    checks.push({ name: `policy loss ${lossMode}, with KL: d loss / d logp`, error: worst(errors), limit: 1e-4 });
  }
  return checks;
}

/**
 * Returns the relative error of a loss's gradients by WGSL: the length of their difference from those by `row`, over the length of the
 * latter.
 * @param drift size of the log ratios
 * @param loss the loss; by default the one that `spec` names
 */
export async function lossError(
  gpu: Gpu,
  spec: PolicyLossSpec,
  drift: number,
  loss: PolicyLoss = POLICY_LOSSES[spec.lossMode],
): Promise<number> {
  const { logp, rows } = lossRows(drift);
  const { oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest } = rows;
  const want = computePolicyLoss(spec, { logp, oldLogp, refLogp, ...rest, seqStart: SEQ_START }, loss).grad;
  const views = {
    logp: gpu.buffer('verify.logp', logp),
    inputs: gpu.buffer('verify.inputs', packPolicyRows(rows)),
    entrySample: gpu.buffer('verify.entrySample', entrySamples(SEQ_START)),
    seqStart: gpu.buffer('verify.seqStart', Uint32Array.from(SEQ_START)),
    stats: gpu.buffer('verify.stats', LENGTHS.length * 16),
    dLogp: gpu.buffer('verify.dLogp', E * 4),
  };
  policyLoss(gpu, {
    loss: spec,
    kl: { type: spec.klLossType, coef: spec.klLossCoef },
    ...views,
    E,
    S: LENGTHS.length,
  });
  const got = await gpu.readF32(views.dLogp);
  for (const view of Object.values(views)) gpu.free(view);
  return relativeError(got, want);
}

function lossRows(drift: number) {
  const { uniform } = keyedRng('verify', drift);
  const signed = () => 2 * uniform() - 1;
  const logp = Float32Array.from({ length: E }, () => -0.01 - 2 * uniform());
  const oldLogProbs = logp.map((x, e) =>
    Math.min(x - 2 * drift * signed() - (drift > 1 && e % 17 === 0 ? 25 : 0), -1e-3),
  );
  const ofSequence = LENGTHS.map(() => 2 * signed());
  const advantages = Float32Array.from(entrySamples(SEQ_START), (s) => ofSequence[s]);
  const each = (f: (e: number) => number) => Float32Array.from({ length: E }, (_, e) => f(e));
  const rows = {
    oldLogProbs,
    advantages,
    refLogProbs: logp.map((x) => x + signed()),
    weights: each(() => 0.5 + uniform()),
    klWeights: each(() => uniform()),
    mask: each((e) => (e % 5 === 3 ? 0 : 1)),
    selected: each((e) => (e % 11 === 2 ? 1 : 0)),
  };
  return { logp, rows };
}

function noise(name: string, n: number): Float32Array<ArrayBuffer> {
  const { uniform } = keyedRng('verify', name);
  return Float32Array.from({ length: n }, () => 2 * uniform() - 1);
}

function product(x: Float32Array, b: Float32Array, M: number): Float64Array {
  const y = new Float64Array(M * N);
  for (let m = 0; m < M; m++)
    for (let n = 0; n < N; n++) for (let k = 0; k < K; k++) y[m * N + n] += x[m * K + k] * b[k * N + n];
  return y;
}

/** Returns the largest error, at least 0; NaN if any error is NaN, so that the check fails. */
export const worst = (errors: readonly number[]): number => errors.reduce((a, b) => Math.max(a, b), 0);

/** Returns |got - want| / |want| of two vectors; NaN if a value is NaN. */
export function relativeError(got: ArrayLike<number>, want: ArrayLike<number>): number {
  const norm = (values: number[]) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  return norm(Array.from(got, (value, i) => value - want[i])) / (norm(Array.from(want)) + 1e-6);
}

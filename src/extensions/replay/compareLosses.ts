/**
 * Compares several losses on the same samples: metrics, values per token, and cosines between gradients. The trainer's own updater computes
 * them, so the run's own loss at the weights of its step reproduces the logged numbers.
 */

import { InputError } from '../../errors.ts';
import type { TensorMap } from '../../model/engine.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { correctionSettings } from '../../grpo/correction/settings.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import { checkTokens } from '../../grpo/update/batch.ts';
import { joinedRows, rowTokens } from '../../grpo/update/rows.ts';
import type { StepExtras } from '../../grpo/update/stepTokens.ts';
import { entryNumbers, numbersBySample, type TokenNumbers } from '../../grpo/update/tokenNumbers.ts';
import { PolicyUpdater } from '../../grpo/update/updater.ts';
import type { KeptStep } from './keptStep.ts';

/** A config whose loss is replayed, and its name in tables and pages. */
export interface NamedConfig {
  name: string;
  config: TrainConfig;
}

export interface ReplayedLoss {
  name: string;
  lossMode: string;
  advEstimator: string;
  lossAggMode: string;
  /** Metrics of the loss: verl's `actor/*`, `actor/grad_norm` and `actor/eff_sample_size`. */
  metrics: Metrics;
  tokens: TokenNumbers;
}

export interface LossComparison {
  losses: ReplayedLoss[];
  /** Cosine between the gradients of two losses, as [losses][losses]; NaN if either gradient is 0. */
  cosines: number[][];
}

/** Maximum number of bytes of gradients that are stored on the host, in addition to the gradient that was computed last. */
const KEPT_BYTES = 2 ** 29;

/**
 * Computes each loss and its gradient on the samples of a stored step, at the engine's current weights. Changes the state of the engine's
 * optimizer, which can be any, but not the weights. If the gradients of all losses do not fit in `keptBytes`, forward and backward passes are repeated. Throws
 * InputError for a step that cannot be replayed.
 * @param losses configs to compare; the first is the run's own, for which the stored advantages are used
 */
export async function compareLosses(
  step: KeptStep,
  losses: readonly NamedConfig[],
  engine: TrainerEngine,
  keptBytes = KEPT_BYTES,
): Promise<LossComparison> {
  try {
    checkTokens(step.samples, engine.model.config.vocabSize);
  } catch (error) {
    throw new InputError(`${(error as Error).message} Use a checkpoint of the run that saved the samples.`);
  }
  const cosines = losses.map(() => losses.map(() => NaN));
  const results: ReplayedLoss[] = [];
  const replays = losses.map((loss) => () => replayed(step, loss, losses[0].config, engine));
  for (let first = 0; first < losses.length;) {
    const kept: TensorMap[] = [];
    let room = 1;
    for (let j = first; j < losses.length; j++) {
      const { result, gradients } = await replays[j]();
      results[j] ??= result;
      room = Math.max(1, Math.floor(keptBytes / bytesOf(gradients)));
      if (kept.length < room) kept.push(gradients);
      for (const [i, other] of kept.entries()) {
        const [a, b] = [first + i, j];
        cosines[a][b] = cosines[b][a] = dot(other, gradients);
      }
    }
    first += room;
  }
  const norms = cosines.map((row, i) => Math.sqrt(row[i]));
  return { losses: results, cosines: cosines.map((row, i) => row.map((value, j) => value / (norms[i] * norms[j]))) };
}

async function replayed(step: KeptStep, { name, config: given }: NamedConfig, own: TrainConfig, engine: TrainerEngine) {
  const groups = new Set(step.samples.map(({ group }) => group)).size;
  const { actor } = given;
  const ppoMiniBatchSize = Math.max(actor.ppoMiniBatchSize, groups);
  const config = { ...given, actor: { ...actor, ppoMiniBatchSize, ppoEpochs: 1 } };
  const updater = new PolicyUpdater(config, engine, undefined, step.isOwnSize);
  const samples = [...step.samples];
  const tokens = await saying(name, async () => rowTokens(config, samples, await extrasOf(step, config, own, updater)));
  const update = await updater.gradients(samples, tokens, step.step);
  if (!update)
    throw new InputError(
      `--algorithm ${name}: no sample of step ${step.step} has a token to train on. Choose another step.`,
    );
  const { batch, loss, metrics } = update;
  const gradients = await engine.model.exportGradients();
  // The optimizer step is run only to get the gradient norm that the device computes. With learning rate 0 the weights stay unchanged.
  const { betas, eps } = actor.optim;
  const options = { lr: 0, beta1: betas[0], beta2: betas[1], eps, weightDecay: 0, gradClip: 0 };
  const { gradNorm } = await engine.model.optimizerStep(options);
  const names = ['ratio', 'advantage', 'weight', 'grad', 'clipped'] as const;
  const result: ReplayedLoss = {
    name,
    lossMode: actor.policyLoss.lossMode,
    advEstimator: config.algorithm.advEstimator,
    lossAggMode: actor.lossAggMode,
    metrics: { ...metrics, 'actor/grad_norm': gradNorm, 'actor/eff_sample_size': effectiveSize(loss.grad) },
    tokens: numbersBySample(samples, [{ batch, entries: entryNumbers(update) }], names),
  };
  return { result, gradients };
}

/**
 * Returns what the update needs in addition to the samples: stored old and reference log-probs, if the config uses them, and the stored
 * advantages, if the config computes advantages as the run did.
 */
async function extrasOf(
  step: KeptStep,
  config: TrainConfig,
  own: TrainConfig,
  updater: PolicyUpdater,
): Promise<StepExtras> {
  const { oldLogProbs, refLogProbs, ...rest } = step.extras;
  const bypass = correctionSettings(config).bypassMode;
  const needsReference = config.actor.useKlLoss || config.algorithm.useKlInReward;
  if (needsReference && !refLogProbs)
    throw new InputError('its KL term needs log-probs of the reference, which this step was saved without');
  const kept = advantageSettings(config) === advantageSettings(own);
  return {
    ...rest,
    ...(needsReference && { refLogProbs }),
    ...(!bypass && { oldLogProbs: oldLogProbs ?? (await updater.oldLogProbs([...step.samples])) }),
    ...(kept && { advantage: () => joinedRows(step.samples, step.advantages) }),
  };
}

/** Returns the settings that determine advantages as a text, to compare two configs. */
function advantageSettings({ algorithm: { name: _, filterGroups: __, ...rest } }: TrainConfig): string {
  return JSON.stringify(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Runs `work`, and adds the name of the algorithm to an error. Advantage estimators throw RangeError if an input is missing. */
async function saying<T>(name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof InputError) && !(error instanceof RangeError)) throw error;
    throw new InputError(`--algorithm ${name}: ${error.message}`, { cause: error });
  }
}

/**
 * Effective sample size as verl's rollout_is_eff_sample_size, with |d loss / d logp| of each token as its weight: 1 if all are equal, 1 /
 * number of tokens if only one is not 0.
 */
function effectiveSize(grad: Float64Array): number {
  let [sum, squares] = [0, 0];
  for (const g of grad) [sum, squares] = [sum + Math.abs(g), squares + g * g];
  return (sum * sum) / (squares * grad.length);
}

function bytesOf(gradients: TensorMap): number {
  let bytes = 0;
  for (const { data } of gradients.values()) bytes += data.byteLength;
  return bytes;
}

/** Returns the dot product of two gradients over all parameters, in float64. */
function dot(a: TensorMap, b: TensorMap): number {
  let sum = 0;
  for (const [name, { data }] of a) {
    const other = b.get(name)!.data;
    for (let i = 0; i < data.length; i++) sum += data[i] * other[i];
  }
  return sum;
}

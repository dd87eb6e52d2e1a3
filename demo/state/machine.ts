/** Measures this machine by the newest steps of a run, and compares it with a prediction from the limits of its GPU and with the machine of the recorded runs. */

import { parameterCount } from '../../src/model/params.ts';
import { version } from '../../package.json';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { short } from '../../src/ui/format.ts';
import type { Limits } from '../engine/limits.ts';
import { recordedSeconds, TIMED_FROM_STEP } from './estimate.ts';
import { taskTitle } from './recipes.ts';

/** Number of newest steps over which the median is taken. */
const RECENT = 10;

interface MachineRun {
  config: TrainConfig;
  history: readonly Metrics[];
  /** Shape of the model; undefined = the model is not open, so the sentence has no FLOP/s. */
  model: ModelConfig | undefined;
  adapter: string;
  /** Limits of this GPU, if they were measured. */
  limits?: Limits | undefined;
}

/**
 * Returns one sentence about the speed of this machine, which a visitor can send; undefined before the second step. Operations are
 * estimated from the number of weights: two operations for each weight and sampled token, six for each weight and trained token.
 */
export function machineInWords({ config, history, model, adapter, limits }: MachineRun): string | undefined {
  const steps = history.filter((line) => line['training/global_step'] >= TIMED_FROM_STEP).slice(-RECENT);
  const step = median(steps, 'timing_s/step');
  if (step === undefined) return undefined;
  const [gen, update] = [median(steps, 'timing_s/gen'), median(steps, 'timing_s/update_actor')];
  const decoded = perSecond(steps, 'perf/generated_tokens', 'timing_s/gen');
  const trained = perSecond(steps, 'perf/trained_tokens', 'timing_s/update_actor');
  const weights = model && parameterCount(model);
  const flops = (perToken: number, rate: number) =>
    weights === undefined ? '' : ` (${short((perToken * weights * rate) / 1e9)} GFLOP/s)`;
  const parts = [
    gen === undefined ? '' : `generating ${short(gen)} s`,
    update === undefined ? '' : `updating ${short(update)} s`,
  ].filter(Boolean);
  const expected = expectedStep(config);
  const predicted = model && limits && predictedStep({ config, model, limits, steps });
  return [
    `webgrpo ${version} on ${adapter}: ${taskTitle(config)}, ${config.data.trainBatchSize} problems \u00d7 ${config.rollout.n} tries`,
    `${short(step)} s per step (${parts.join(', ')})`,
    ...(predicted ? [inWords(limits, predicted, step)] : []),
    ...(expected === undefined ? [] : [`the recorded run on two CPU cores: ${short(expected)} s`]),
    ...(decoded === undefined ? [] : [`decoding ${short(decoded)} tokens/s${flops(2, decoded)}`]),
    ...(trained === undefined ? [] : [`training ${short(trained)} tokens/s${flops(6, trained)}`]),
  ].join('; ');
}

/** Predicted seconds of a step. */
interface Predicted {
  gen: number;
  update: number;
}

/**
 * Predicts a step from counted work at the limits of a GPU: arithmetic or the bytes of the weights, whichever takes longer, and dispatches one
 * after the other. Prompts, attention, read-backs and the host's work are not counted, so a step takes longer.
 */
export function predictedStep(of: {
  config: TrainConfig;
  model: ModelConfig;
  limits: Limits;
  steps: readonly Metrics[];
}): Predicted {
  const { config, limits, steps } = of;
  const { data, actor, rollout, model } = config;
  const weights = parameterCount(of.model);
  const bytes = weights * (model.dtype === 'float16' ? 2 : 4);
  const [generated, trained] = [mean(steps, 'perf/generated_tokens'), mean(steps, 'perf/trained_tokens')];
  const passes = Math.max(generated / rollout.maxNumSeqs, mean(steps, 'response_length/max'));
  const updates = Math.max(1, data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
  const microBatches = Math.max(updates, trained / actor.ppoMaxTokenLenPerGpu);
  const seconds = (flops: number, moved: number, dispatches: number) =>
    Math.max(flops / (limits.gflops * 1e9), moved / (limits.gbPerS * 1e9)) + (dispatches * limits.dispatchUs) / 1e6;
  const { decodeStep, microBatch, optimizerStep } = limits.dispatches;
  return {
    gen: seconds(2 * weights * generated, passes * bytes, passes * decodeStep),
    update: seconds(
      6 * weights * trained,
      3 * microBatches * bytes,
      microBatches * microBatch + updates * optimizerStep,
    ),
  };
}

function inWords({ gflops, gbPerS, dispatchUs }: Limits, { gen, update }: Predicted, step: number): string {
  const predicted = gen + update;
  return (
    `predicted from the limits of this GPU (${short(gflops)} GFLOP/s, ${short(gbPerS)} GB/s, ${short(dispatchUs)} \u00b5s per dispatch): ` +
    `${short(predicted)} s (generating ${short(gen)} s, updating ${short(update)} s); the step took ${short(step / predicted)} times as long`
  );
}

const mean = (lines: readonly Metrics[], name: string): number =>
  lines.reduce((total, line) => total + (line[name] ?? 0), 0) / lines.length;

/** Returns the seconds of a step of this size on the recorded machine; undefined if no similar run was recorded. */
function expectedStep(config: TrainConfig): number | undefined {
  const trainer = { ...config.trainer, testFreq: 0, valBeforeTrain: false };
  const seconds = (totalTrainingSteps: number) =>
    recordedSeconds({ ...config, trainer: { ...trainer, totalTrainingSteps } });
  const [one, two] = [seconds(1), seconds(2)];
  return one === undefined || two === undefined ? undefined : two - one;
}

function median(lines: readonly Metrics[], name: string): number | undefined {
  const values = lines.flatMap((line) => line[name] ?? []).sort((a, b) => a - b);
  return values[Math.floor(values.length / 2)];
}

/** Returns the sum of a metric over all lines, divided by the sum of seconds. */
function perSecond(lines: readonly Metrics[], count: string, seconds: string): number | undefined {
  const sum = (name: string) => lines.reduce((total, line) => total + (line[name] ?? 0), 0);
  return sum(count) > 0 && sum(seconds) > 0 ? sum(count) / sum(seconds) : undefined;
}

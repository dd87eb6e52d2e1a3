/** Measures the speed of this machine by the newest steps of a run, and compares it with the machine of the recorded runs. */

import { parameterCount } from '../../src/model/params.ts';
import { version } from '../../package.json';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { short } from '../../src/ui/format.ts';
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
}

/**
 * Returns one sentence about the speed of this machine, which a visitor can send; undefined before the second step. Operations are
 * estimated from the number of weights: two operations for each weight and sampled token, six for each weight and trained token.
 */
export function machineInWords({ config, history, model, adapter }: MachineRun): string | undefined {
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
  return [
    `webgrpo ${version} on ${adapter}: ${taskTitle(config)}, ${config.data.trainBatchSize} problems \u00d7 ${config.rollout.n} tries`,
    `${short(step)} s per step (${parts.join(', ')})`,
    ...(expected === undefined ? [] : [`predicted from the recorded run on two CPU cores: ${short(expected)} s`]),
    ...(decoded === undefined ? [] : [`decoding ${short(decoded)} tokens/s${flops(2, decoded)}`]),
    ...(trained === undefined ? [] : [`training ${short(trained)} tokens/s${flops(6, trained)}`]),
  ].join('; ');
}

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

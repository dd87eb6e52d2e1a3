/** Times of a step with each pipeline, simulated from the work of a measured run with slow searches. */

import { pipelineOf } from '../../../src/grpo/pipeline/settings.ts';
import { simulate, type Workload } from '../../../src/extensions/simulation/index.ts';
import data from './recorded.json' with { type: 'json' };

/** A workload as stored: of each sample its group, then tokens and seconds of the search of each turn. */
export interface Work extends Omit<Workload, 'steps'> {
  steps: number[][][];
}

/** Settings that the reader moves. */
export interface Setting {
  /** Seconds of the slowest search. */
  tool: number;
  /** `asyncTraining.stalenessThreshold`, `triggerParameterSyncStep` and `partialRollout`. */
  threshold: number;
  sync: number;
  partial: boolean;
}

/** Simulated steps. */
const STEPS = 5;
/** Problems of a step, and tries decoded at once: the settings of the run, bench/predict.ts. */
const [GROUPS, AT_ONCE] = [8, 8];
const PIPELINES = ['on-policy', 'one-step-off', 'fully-async'] as const;

/** Seconds of the slowest search in the measured run. */
export const SLOWEST = 3;

/** Returns the measured work with searches that take up to `tool` seconds. */
function workWith(tool: number): Workload {
  const { steps, ...work } = data.work as Work;
  const turnsOf = (numbers: readonly number[]) =>
    Array.from({ length: numbers.length / 2 }, (_, turn) => ({
      tokens: numbers[2 * turn],
      toolSeconds: (numbers[2 * turn + 1] * tool) / SLOWEST,
    }));
  return {
    ...work,
    steps: steps.map((samples) => samples.map(([group, ...numbers]) => ({ group, turns: turnsOf(numbers) }))),
  };
}

/** Returns seconds of a step, the share in which training waits, and the share of groups begun with older weights, by pipeline. */
export const timesOf = ({ tool, threshold, sync, partial }: Setting) =>
  PIPELINES.map((name) => {
    const settings = {
      trainer: { pipeline: name },
      data: { trainBatchSize: GROUPS },
      actor: { ppoMiniBatchSize: GROUPS / 2 },
      asyncTraining: {
        ...{ stalenessThreshold: threshold, triggerParameterSyncStep: sync, partialRollout: partial },
        ...{ maxOffPolicyThreshold: 8, onStale: 'drop' },
      },
    };
    const pipeline = pipelineOf(settings as Parameters<typeof pipelineOf>[0]);
    const where = { devices: 1, rolloutDevices: 0, maxNumSeqs: AT_ONCE, miniBatches: 2, steps: STEPS };
    const { stepSeconds, idleShare, staleness } = simulate(workWith(tool), { ...where, pipeline });
    const groups = staleness.reduce((a, b) => a + b, 0);
    return {
      name,
      seconds: stepSeconds,
      waits: idleShare.trainer,

      stale: 1 - staleness[0] / groups,
    };
  });

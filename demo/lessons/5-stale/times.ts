/** Times of a step with each pipeline, simulated from the work of a measured run with slow searches. The page loads it after the figures. */

import { pipelineOf } from '../../../src/grpo/pipeline/settings.ts';
import { simulate, type Workload } from '../../../src/extensions/simulation/index.ts';

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
const SLOWEST = 3;

/** Setting of the measured run, with which figure 5.4 opens. */
export const SETTING: Setting = { tool: SLOWEST, threshold: 0.5, sync: 1, partial: true };

/** Returns the measured work with searches that take up to `tool` seconds. */
function workWith({ steps, ...work }: Work, tool: number): Workload {
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

/** Returns, by pipeline, seconds of a step after the first, the share in which training waits, and the share of groups begun with older weights. */
export const timesOf = (work: Work, { tool, threshold, sync, partial }: Setting) =>
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
    const { steps, staleness } = simulate(workWith(work, tool), { ...where, pipeline });
    // The first step has no tries from before.
    const [, ...later] = steps;
    const sum = (of: (step: (typeof steps)[number]) => number) => later.reduce((so, step) => so + of(step), 0);
    const seconds = sum((step) => step.seconds);
    return {
      name,
      seconds: seconds / later.length,
      waits: sum((step) => step.seconds * step.idleShare.trainer) / seconds,
      stale: staleness.slice(1).reduce((so, groups) => so + (groups ?? 0), 0) / (GROUPS * later.length),
    };
  });

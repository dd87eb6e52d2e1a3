/** Predicts the runs of bench/simulation.ts with the simulation, from the profile of one of them. */

import { readFileSync } from 'node:fs';
import { parseTrainConfig } from '../src/extensions/yaml/index.ts';
import {
  roomSetupOf,
  setupOf,
  simulate,
  type SimulatedStep,
  type Workload,
} from '../src/extensions/simulation/index.ts';

export const CONFIG = 'configs/gsm8k-tool.yaml';
export const [TASK, LOOP] = ['bench/searches/task.js', 'bench/searches/loop.js'];

/** 8 problems per step with 4 samples each, of which a device decodes 8 at a time. A worker of a room then takes 3 problems at a time. */
export const SETTINGS = [
  ...[`task.module=${TASK}`, 'rollout.agent.defaultAgentLoop=searches'],
  ...['data.trainBatchSize=8', 'actor.ppoMiniBatchSize=4', 'rollout.n=4', 'rollout.maxNumSeqs=8'],
  ...['trainer.valBeforeTrain=false', 'trainer.testFreq=0', 'data.valMaxSamples=1'],
];

export interface Row {
  name: string;
  pipeline: 'on-policy' | 'one-step-off' | 'fully-async';
  /** Number of workers of a room; 0 = one device does everything. */
  workers: number;
  verifies: boolean;
}

/** Means of a run over all its steps except the first. */
export interface Means {
  stepSeconds: number;
  idleShare: SimulatedStep['idleShare'];
}

/** Options for all runs: the number of steps, and overrides of the settings above. */
export interface Asked {
  steps: number;
  overrides: string[];
}

export const settingsOf = ({ pipeline }: Row, { steps, overrides }: Asked): string[] => [
  ...SETTINGS,
  ...overrides,
  ...[`trainer.pipeline=${pipeline}`, `trainer.totalTrainingSteps=${steps}`],
];

export function predict(work: Workload, row: Row, asked: Asked): Means {
  const { workers, verifies } = row;
  const { steps } = asked;
  const config = parseTrainConfig(readFileSync(CONFIG, 'utf8'), { source: CONFIG, overrides: settingsOf(row, asked) });
  const setup =
    workers === 0
      ? setupOf(config, { devices: 1, rolloutDevices: 0, steps })
      : roomSetupOf(config, { workers, verifies, steps });
  return meansOf(simulate(work, setup).steps);
}

export function meansOf([, ...steps]: readonly SimulatedStep[]): Means {
  const seconds = steps.reduce((sum, step) => sum + step.seconds, 0);
  const share = (of: (step: SimulatedStep) => number) =>
    steps.reduce((sum, step) => sum + step.seconds * of(step), 0) / seconds;
  const idleShare = {
    trainer: share((step) => step.idleShare.trainer),
    rollouter: share((step) => step.idleShare.rollouter),
  };
  return { stepSeconds: seconds / steps.length, idleShare };
}

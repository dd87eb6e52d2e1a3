/** `webgrpo simulate`: predicts the duration of a run's steps with each pipeline, on one device, several devices or a room. */

import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { InputError } from '../../errors.ts';
import {
  roomSetupOf,
  runWorkload,
  setupOf,
  simulate,
  type Simulated,
  type Workload,
} from '../../extensions/simulation/index.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { numberFlag, oneFile, refuseFlags } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { disk, readText } from '../files.ts';
import { runFolderOf } from '../run/namedRun.ts';
import { aligned } from '../table.ts';

/** Number of simulated steps, large enough that the first steps, in which the pipeline fills, matter little. */
const STEPS = 20;

export const simulateRun: Command = {
  summary: 'simulate the pipelines of a run on 1 to 128 devices, from its profile',
  usage: [
    'simulate runs/NAME',
    'simulate runs/NAME --devices 1,4,16 --staleness 0.5',
    'simulate runs/NAME --devices 1 --workers 1,2,8',
  ],
  reads: ['words'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    devices: { value: 'NUMBERS', help: 'comma-separated (default: 1,2,4,8,16,32,64,128)' },
    workers: {
      value: 'NUMBERS',
      help: 'workers of a room (webgrpo room), in addition to the machine that trains (default: no room)',
    },
    'trust-workers': { help: 'the room does not verify samples' },
    staleness: { value: 'SHARE', help: "asyncTraining.stalenessThreshold of fully-async (default: the run's)" },
    'no-partial': { help: 'new weights wait for samples in flight (asyncTraining.partialRollout: false)' },
  },
  async run({ flags, positionals }, io) {
    const path = runFolderOf(oneFile(positionals, 'run folder'));
    const folder = RunFolder.open(disk, path);
    const source = folder.file('config.yaml');
    const config = parseTrainConfig(await readText(source), { source, trains: false });
    const work = runWorkload(await folder.profiles(), await folder.metrics());
    const { asyncTraining } = config;
    asyncTraining.stalenessThreshold = numberFlag(flags, 'staleness', asyncTraining.stalenessThreshold, [0, 8]);
    if (flags['no-partial'] === true) asyncTraining.partialRollout = false;
    if (flags['workers'] === undefined) refuseFlags(flags, ['trust-workers'], 'without --workers');
    const verifies = flags['trust-workers'] !== true;
    const devices = numbers(flags['devices'], '--devices') ?? [1, 2, 4, 8, 16, 32, 64, 128];
    const rows = [
      ...devices.flatMap((count) => rowsFor(work, config, count)),
      ...(numbers(flags['workers'], '--workers') ?? []).flatMap((count) => roomRows(work, config, count, verifies)),
    ];
    const [{ stepSeconds: alone }] = rowsFor(work, config, 1);
    io.text(tableOf(rows, alone));
    const { decode, syncSeconds, promptTokens, steps } = work;
    io.result({ work: { ...decode, syncSeconds, promptTokens, steps: steps.length }, rows });
  },
};

const PIPELINES = ['on-policy', 'one-step-off', 'fully-async'] as const;
type Pipeline = (typeof PIPELINES)[number];

interface Row extends Simulated {
  devices: number;
  /** Number of devices that only generate; 0 = every device generates and trains. */
  rolloutDevices: number;
  /** True if the devices that generate are workers of a room. */
  isRoom: boolean;
  pipeline: Pipeline;
}

function numbers(flag: string | boolean | undefined, name: string): number[] | undefined {
  if (typeof flag !== 'string') return undefined;
  const counts = flag.split(',').map(Number);
  const wrong = counts.find((count) => !Number.isInteger(count) || count < 1 || count > 1024);
  if (wrong === undefined) return counts;
  throw new InputError(`${name} has ${wrong}. Give whole numbers from 1 to 1024, comma-separated.`);
}

const withPipeline = (config: TrainConfig, pipeline: Pipeline): TrainConfig => ({
  ...config,
  trainer: { ...config.trainer, pipeline },
});

/**
 * Returns a row per pipeline in which every device generates and trains. With two or more devices, adds a row per asynchronous pipeline
 * with the split into rollout and training devices whose steps are shortest.
 */
function rowsFor(work: Workload, config: TrainConfig, devices: number): Row[] {
  const simulated = (pipeline: Pipeline, rolloutDevices: number): Row => {
    const setup = setupOf(withPipeline(config, pipeline), { devices, rolloutDevices, steps: STEPS });
    return { devices, rolloutDevices, isRoom: false, pipeline, ...simulate(work, setup) };
  };
  const colocated = PIPELINES.map((pipeline) => simulated(pipeline, 0));
  if (devices === 1) return colocated;
  const splits = [...new Set([0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875].map((part) => Math.round(part * devices)))];
  const possible = splits.filter((rolloutDevices) => rolloutDevices > 0 && rolloutDevices < devices);
  const best = (pipeline: Pipeline) =>
    possible
      .map((rolloutDevices) => simulated(pipeline, rolloutDevices))
      .reduce((least, row) => (row.stepSeconds < least.stepSeconds ? row : least));
  return [...colocated, best('one-step-off'), best('fully-async')];
}

const roomRows = (work: Workload, config: TrainConfig, workers: number, verifies: boolean): Row[] =>
  PIPELINES.map((pipeline) => {
    const setup = roomSetupOf(withPipeline(config, pipeline), { workers, steps: STEPS, verifies });
    const { devices, rolloutDevices } = setup;
    return { devices, rolloutDevices, isRoom: true, pipeline, ...simulate(work, setup) };
  });

function tableOf(rows: readonly Row[], alone: number): string {
  const percent = (share: number) => `${(100 * share).toFixed(0)}%`;
  const cells = rows.map(({ devices, pipeline, stepSeconds, idleShare, staleness, ...row }) => {
    const groups = staleness.reduce((a, b) => a + b, 0);
    return [
      String(devices),
      placementOf({ devices, ...row }),
      pipeline,
      stepSeconds.toFixed(2),
      `${(alone / stepSeconds).toFixed(2)}x`,
      percent(idleShare.rollout),
      percent(idleShare.trainer),
      percent(1 - staleness[0] / groups),
    ];
  });
  const header = ['devices', 'placement', 'pipeline', 's/step', 'speed', 'rollout idle', 'trainer idle', 'stale'];
  return aligned([header, ...cells]);
}

function placementOf({ devices, rolloutDevices, isRoom }: Pick<Row, 'devices' | 'rolloutDevices' | 'isRoom'>): string {
  if (isRoom) return `a room of ${rolloutDevices}`;
  return rolloutDevices === 0 ? 'all do both' : `${rolloutDevices} decode, ${devices - rolloutDevices} train`;
}

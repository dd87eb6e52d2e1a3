/**
 * Tests a device that is lost, refuses a command, or has no memory: there is exactly one error, and a new engine continues. `webgrpo train`
 * does so automatically.
 */
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { FaultyDevices } from '../../campaign/device/faultyDevices.ts';
import { runTraining } from '../../src/cli/commands/train.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { metricsIn } from '../commandLine.ts';

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-lost-'));
const source = 'configs/gsm8k-tool.yaml';
const TINY = [
  ...['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2', 'rollout.n=2', 'data.valMaxSamples=2'],
  ...['data.maxResponseLength=48', 'trainer.testFreq=0', 'trainer.valBeforeTrain=false'],
  ...['trainer.kernelTuning=off', 'trainer.logger=[console, csv]', 'trainer.totalTrainingSteps=4'],
  `trainer.defaultLocalDir=${defaultLocalDir}`,
];

let devices: FaultyDevices;
let said = '';

/** A loss of the device, `at` GPU operations after the run has printed `after`; '' = after its start. */
type Loss = [after: string, at: number, lateMs?: number];

beforeAll(() => {
  devices = new FaultyDevices();
});
afterAll(() => devices.uninstall());

async function train(name: string, losses: Loss[], ...overrides: string[]) {
  said = '';
  devices.arm();
  const left = [...losses];
  const armWhen = (text: string) => {
    if (left.length === 0 || !text.startsWith(left[0][0])) return;
    const [, at, lateMs = 0] = left.shift()!;
    devices.arm({ kind: 'lost', at, lateMs });
  };
  armWhen('');
  const stderr = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    armWhen(String(text));
    return Boolean((said += String(text)));
  });
  const words = [...TINY, `name=${name}`, ...overrides];
  await runTraining(
    parseTrainConfig(readFileSync(source, 'utf8'), { source, overrides: words }),
    async () => undefined,
  ).finally(() => stderr.mockRestore());
  const path = join(defaultLocalDir, name);
  const metrics = metricsIn(path).map((line) => Object.entries(line).filter(isExact));
  const checkpoints = readdirSync(join(path, 'checkpoints')).sort();
  const files = ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json'];
  const bytes = files.map((file) => readFileSync(join(path, 'checkpoints', 'step-4', file)).toString('base64'));
  const rows = readFileSync(join(path, 'metrics.csv'), 'utf8').trim().split('\n').length;
  return { metrics, checkpoints, bytes, rows };
}

const isExact = ([name]: [string, number]) => !name.startsWith('timing') && !name.startsWith('perf/');
const LOST = 'the GPU device was lost ';
const countOf = (text: string) => said.split(text).length - 1;

/** True with --full. The everyday tests lose the device of a scripted engine instead (test/unit/trainCommand.test.ts). */
const isFull = process.env['FULL_TESTS'] === '1';

test.runIf(isFull)('a run whose device is lost at five moments is the run that lost none', async () => {
  const unbroken = await train('unbroken', [], 'trainer.saveFreq=1');
  const losses: Loss[] = [
    ['', 20], // while the engine is created
    ['step 1/4', 3], // during the export of the first checkpoint
    ['step 2/4', 60, 3], // during the next step; the loss is reported late
    ['resumed from step 2', 1],
    ['step 3/4', 90],
  ];
  const lost = await train('lost', losses, 'trainer.saveFreq=1');
  expect(lost.metrics).toEqual(unbroken.metrics);
  expect(lost).toEqual(unbroken);
  expect(countOf(LOST)).toBe(5);
  expect(said).toMatch(/lost before the first step was done \(.*\), resuming on a new one from the start/);
  expect(said).toMatch(/lost after step 1 \(.*\), resuming on a new one from the start/);
  expect(said).toMatch(/lost after step 2 \(.*\), resuming on a new one from \S+step-2\n/);

  // A run without a checkpoint restarts, in its own folder.
  const { checkpoints: _, ...same } = unbroken;
  expect(await train('over', [['step 2/4', 30]], 'trainer.saveFreq=0')).toEqual({ ...same, checkpoints: ['step-4'] });
  expect(countOf(LOST)).toBe(1);
  expect(readdirSync(defaultLocalDir).sort()).toEqual(['lost', 'over', 'unbroken']);
});

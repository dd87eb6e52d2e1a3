import { mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, test, vi } from 'vitest';
import { disk } from '../../src/cli/files.ts';
import { writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { StoppedError } from '../../src/errors.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import { noteTask } from '../../src/cli/run/resume.ts';
import { lockFolder } from '../../src/cli/process/lock.ts';
import { runSupervised } from '../../src/cli/run/supervised.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { withWarmStart } from '../../src/cli/run/warmStart.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { parseSftConfig } from '../../src/extensions/sft/text.ts';

vi.mock('../../src/cli/run/supervised.ts', async (original) => ({
  ...(await original<typeof import('../../src/cli/run/supervised.ts')>()),
  runSupervised: vi.fn(),
}));

beforeEach(() => {
  vi.mocked(runSupervised).mockClear();
  vi.spyOn(process.stderr, 'write').mockClear().mockReturnValue(true);
});
const said = () => vi.mocked(process.stderr.write).mock.calls.map(([text]) => String(text).trim());

const trainConfig = (path: string, defaultLocalDir: string) =>
  resolveTrainConfig({ name: 'x', model: { path }, trainer: { defaultLocalDir } });

test('a model path that is not a YAML stays unchanged', async () => {
  const config = trainConfig('runs/other', 'runs');
  expect(await withWarmStart(config)).toBe(config);
});

/** Writes the folder of a warm start with 3 steps, with checkpoints at `steps`. */
async function warmStart(task: object, ...steps: number[]) {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-warm-'));
  const source = join(folder, 'sft.yaml');
  const yaml =
    'name: warm\noptim: { lrWarmupSteps: 0 }\ntrainer: { totalTrainingSteps: 3 }\n' + `task: ${JSON.stringify(task)}\n`;
  writeFileSync(source, yaml);
  const config = parseSftConfig(yaml, { source, overrides: [`trainer.defaultLocalDir=${folder}`] });
  await RunFolder.create(disk, join(folder, 'warm'), config);
  for (const step of steps)
    await writeCheckpoint(disk, join(folder, 'warm', 'checkpoints', `step-${step}`), new Map([['config.json', '{}']]));
  return trainConfig(source, folder);
}

test('an existing warm start of the same config is reused', async () => {
  const config = await warmStart({}, 3);
  const { path } = (await withWarmStart(config)).model;
  expect(path).toBe(join(config.trainer.defaultLocalDir, 'warm', 'checkpoints', 'step-3'));
  expect(runSupervised).not.toHaveBeenCalled();
});

test('a warm start of an earlier version of the task is trained again', async () => {
  const module = join(mkdtempSync(join(tmpdir(), 'webgrpo-warm-task-')), 'task.mjs');
  const write = (name: string) =>
    writeFileSync(module, `export default { name: '${name}', train() {}, heldOut() {}, reward() {} };`);
  const noted = async (of: string) => {
    write(of);
    const config = await warmStart({ module }, 3);
    const folder = RunFolder.open(disk, join(config.trainer.defaultLocalDir, 'warm'));
    await noteTask(
      folder,
      await openTask(parseSftConfig(`name: x\ntask: { module: ${module} }`, { source: 'x' }).task),
    );
    return config;
  };
  await withWarmStart(await noted('same'));
  expect(runSupervised).not.toHaveBeenCalled();
  const config = await noted('before');
  write('after');
  await withWarmStart(config);
  expect(runSupervised).toHaveBeenCalledTimes(1);
  expect(said().at(-1)).toMatch(/^warm start: .*sft\.yaml again, because the task has changed$/);
});

test('a warm start on a data file is reused until the file changes', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-warm-data-')), 'train.jsonl');
  const write = (answer: string) => writeFileSync(path, `${JSON.stringify({ prompt: 'Say it.', answer })}\n`.repeat(2));
  write('before');
  const task = { name: 'jsonl', path };
  const config = await warmStart(task, 3);
  const folder = RunFolder.open(disk, join(config.trainer.defaultLocalDir, 'warm'));
  const { task: read } = parseSftConfig(`name: x\ntask: ${JSON.stringify(task)}`, { source: 'x' });
  await noteTask(folder, await openTask(read));
  await withWarmStart(config);
  expect(runSupervised).not.toHaveBeenCalled();
  write('after');
  await withWarmStart(config);
  expect(runSupervised).toHaveBeenCalledTimes(1);
});

test('a warm start that was stopped or killed is trained again', async () => {
  for (const steps of [[], [2]]) {
    const config = await warmStart({}, ...steps);
    vi.mocked(runSupervised).mockClear();
    await withWarmStart(config);
    expect(runSupervised).toHaveBeenCalledTimes(1);
    expect(said().at(-1)).toMatch(/^warm start: .*sft\.yaml again, because the earlier one is incomplete$/);
  }
});

test('one that is stopped now ends the run that wanted it, and lets go of its folder', async () => {
  const config = await warmStart({});
  vi.mocked(runSupervised).mockRejectedValueOnce(new StoppedError('Stopped.'));
  await expect(withWarmStart(config)).rejects.toThrow(StoppedError);
  expect(readdirSync(config.trainer.defaultLocalDir)).toEqual(['sft.yaml', 'warm']);
});

test('one that another run is making is refused', async () => {
  const config = await warmStart({});
  const lock = lockFolder(join(config.trainer.defaultLocalDir, 'warm'));
  await expect(withWarmStart(config)).rejects.toThrow(/warm is in use by another run of this process/);
  lock.release();
});

test('a missing YAML ends in one error message', async () => {
  await expect(withWarmStart(trainConfig('nope/sft.yaml', 'runs'))).rejects.toThrow(
    /^There is no folder .*nope\.$|no such/,
  );
});

/** Which checkpoints of a run stay, and where a run goes on from. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, test, vi } from 'vitest';
import { KeptCheckpoints } from '../../src/cli/run/keptCheckpoints.ts';
import { checkpointToResume, resumeCommand, setLaterAside } from '../../src/cli/run/resume.ts';
import { RunFolder } from '../../src/cli/run/runFolder.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { InputError } from '../../src/errors.ts';

let defaultLocalDir: string;
let folder: RunFolder;

beforeEach(async () => {
  defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-folder-'));
  ({ folder } = await RunFolder.create(join(defaultLocalDir, 'run'), {}));
  vi.restoreAllMocks();
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
});

/** A checkpoint as far as its name and the trainer's state go. */
function save(step: number, files = ['trainer_state.json']): void {
  mkdirSync(folder.checkpoint(step), { recursive: true });
  for (const file of files) writeFileSync(join(folder.checkpoint(step), file), '{}');
}

const saved = () => readdirSync(folder.file('checkpoints')).sort();
const line = (step: number, acc: number) => ({ 'training/global_step': step, 'val-core/t/acc/mean@1': acc });
const said = () => vi.mocked(process.stderr.write).mock.calls.map(([text]) => String(text).trim());

/** What stays of a run that saves at every step. */
async function stays(kept: KeptCheckpoints, accs: number[], from = 1): Promise<string[]> {
  for (const [i, acc] of accs.entries()) {
    kept.isBest(line(from + i, acc));
    save(from + i);
    await kept.update();
  }
  return saved();
}

test('the newest few stay, and the best for as long as it is', async () => {
  const settings = { maxActorCkptToKeep: 2, metricForBestModel: 'val-core/t/acc/mean@1' };
  const kept = new KeptCheckpoints(folder, settings);
  expect(kept.isBest(line(0, 1))).toBe(false); // the model that was given is no checkpoint of the run
  expect(await stays(kept, [0.5, 0.8, 0.8, NaN, 0.7])).toEqual(['step-2', 'step-4', 'step-5']);
  expect(JSON.parse(readFileSync(folder.file('best.json'), 'utf8'))).toEqual({
    step: 2,
    metric: 'val-core/t/acc/mean@1',
    value: 0.8,
    checkpoint: 'checkpoints/step-2',
  });
  // Gone on with: only a step whose checkpoint is still there can be the best.
  const resumed = new KeptCheckpoints(folder, settings, [line(1, 0.99), line(2, 0.8), line(5, 0.7)]);
  expect(resumed.best).toMatchObject({ step: 2, value: 0.8 });
  expect(await stays(resumed, [0.79, 0.9, 0.1], 6)).toEqual(['step-7', 'step-8']);
});

test('without the settings all stay, and nothing is the best', async () => {
  const kept = new KeptCheckpoints(folder, {});
  expect(await stays(kept, [0.1, 0.9, 0.2])).toEqual(['step-1', 'step-2', 'step-3']);
  expect([kept.best, readdirSync(folder.path).includes('best.json')]).toEqual([undefined, false]);
});

test('a metric whose name ends in loss is better when lower, unless told', () => {
  const bestOf = (settings: object) => {
    const kept = new KeptCheckpoints(folder, { metricForBestModel: 'actor/pg_loss', ...settings });
    [3, 1, 2].forEach((loss, i) => kept.isBest({ 'training/global_step': i + 1, 'actor/pg_loss': loss }));
    return kept.best?.value;
  };
  expect([bestOf({}), bestOf({ greaterIsBetter: true })]).toEqual([1, 3]);
});

test('a metric that steps do not have is refused at the first line that would have it', () => {
  const kept = (metric: string) => new KeptCheckpoints(folder, { metricForBestModel: metric });
  expect(() => kept('val-core/t/acc/mean@8').isBest(line(0, 0.5))).toThrow(
    /^trainer\.metricForBestModel is "val-core\/t\/acc\/mean@8", .* did you mean "val-core\/t\/acc\/mean@1"\?$/,
  );
  const step = { 'training/global_step': 1, 'critic/score/mean': 1 };
  expect(() => kept('critic/scores/mean').isBest(step)).toThrow(InputError);
  expect(kept('val-core/t/acc/mean@8').isBest(step)).toBe(false); // no evaluation yet
});

const config = (trainer: object) =>
  resolveTrainConfig({
    name: 'run',
    model: { path: 'x' },
    data: { maxPromptLength: 8, maxResponseLength: 8 },
    trainer: { defaultLocalDir, ...trainer },
  });

test('where a run goes on from, by mode', async () => {
  const auto = () => checkpointToResume(config({ resumeMode: 'auto' }));
  const fromPath = (path: string) => checkpointToResume(config({ resumeMode: 'resume_path', resumeFromPath: path }));
  expect(await auto()).toBeUndefined();
  expect(said()).toEqual([expect.stringMatching(/has no checkpoint of a training run: training from scratch$/)]);
  save(9);
  save(10);
  expect(await auto()).toBe(folder.checkpoint(10));
  expect(await checkpointToResume(config({}))).toBeUndefined();
  expect(await fromPath(folder.checkpoint(9))).toBe(folder.checkpoint(9));
  expect(await fromPath(folder.path)).toBe(folder.checkpoint(10));
  await expect(fromPath(defaultLocalDir)).rejects.toThrow(
    /is no checkpoint of a training run, and holds none; give a folder/,
  );
  save(11, []); // of a supervised run: a model alone
  expect(await auto()).toBeUndefined();
});

test('trainer.resume is still read, with a line that says its new name', async () => {
  save(3);
  expect(await checkpointToResume(config({ resume: true }))).toBe(folder.checkpoint(3));
  expect(said()).toEqual([expect.stringMatching(/^trainer\.resume is now trainer\.resumeMode: /)]);
  expect(await checkpointToResume(config({ resume: false }))).toBeUndefined();
  expect(said()).toHaveLength(1);
});

test('checkpoints after the one that a run goes on from get another name', async () => {
  for (const step of [5, 10, 15]) save(step);
  await setLaterAside(folder, 10);
  expect(saved()).toEqual(['step-10', 'step-15-1', 'step-5']);
  save(15);
  await setLaterAside(folder, 10);
  expect(saved()).toEqual(['step-10', 'step-15-1', 'step-15-2', 'step-5']);
});

test('the command that goes on has the words of the one that was stopped', () => {
  vi.stubEnv('WEBGRPO_STARTED_AS', 'npx webgrpo');
  const words = ['seed=2', 'trainer.resumeMode=resume_path', 'trainer.resumeFromPath=a', 'rollout.stop=["a b"]'];
  expect(resumeCommand('my config.yaml', words)).toBe(
    `npx webgrpo train 'my config.yaml' seed=2 'rollout.stop=["a b"]' trainer.resumeMode=auto`,
  );
  vi.unstubAllEnvs();
});

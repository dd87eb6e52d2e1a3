/** Tests a run of the page that loses its GPU or is paused: the reported events, with an engine without a GPU. */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import type { HeldRun } from '../../demo/storage/heldRun.ts';
import { Run, type RunEvents } from '../../demo/training/run.ts';
import { Session } from '../../demo/engine/session.ts';
import { diskFiles } from '../../src/cli/diskFiles.ts';
import { DeviceLostError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { initWeights } from '../../src/model/params.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { TalkingEngine } from '../clientEngine.ts';
import { tokenizer } from '../scriptedTurns.ts';
import { TINY_CONFIG } from '../tinyConfig.ts';
import { containing, stub } from '../stub.ts';

afterEach(() => vi.restoreAllMocks());

/** Two steps, saved after each. All tries have the same reward, so no gradient is computed. */
const config = resolveTrainConfig({
  name: 'lost',
  model: { path: 'checkpoints/gsm8k-tool' },
  data: { trainBatchSize: 1, maxPromptLength: 200, maxResponseLength: 40, valMaxSamples: 1 },
  rollout: { n: 2 },
  actor: { ppoMiniBatchSize: 1 },
  trainer: { totalTrainingSteps: 2, saveFreq: 1, testFreq: 0, valBeforeTrain: false, logRollouts: 1 },
});

const weights = initWeights(TINY_CONFIG, 1);

/** Lets the simulated slow disk finish its writes. */
let go = () => {};

/** Returns a session that loses its GPU when its weights are requested for the `lostAt`-th time. */
function session(lostAt: number, { vocabSize } = TINY_CONFIG): Session {
  let asked = 0;
  const nothing = () => Promise.resolve();
  const model = {
    ...{ name: 'wgsl' as const, config: { ...TINY_CONFIG, vocabSize: tokenizer.vocabSize }, zeroGrad: nothing },
    ...{ importWeights: nothing, importOptimizer: nothing, exportOptimizer: () => Promise.resolve(new Map()) },
    optimizerStep: () => Promise.resolve({ gradNorm: 0, skipped: false }),
    exportWeights: () =>
      ++asked === lostAt
        ? Promise.reject(new DeviceLostError('unknown', 'the driver went away'))
        : Promise.resolve(weights),
  };
  const engine = { tokenizer, rollout: new TalkingEngine(), model };
  const never = new Promise<never>(() => {});
  const given = {
    config,
    engine,
    task: gsm8kToolTask(),
    model: { config: { ...TINY_CONFIG, vocabSize }, weights: 'opened' },
  };
  return stub<Session>({ ...given, failed: never, close: () => {} });
}

const nothing = () => {};
const UNHEARD: RunEvents = {
  ...{ onDownload: nothing, onLoaded: nothing, onClosed: nothing, onPhase: nothing, onSample: nothing },
  ...{ onEvaluating: nothing, onEvaluated: nothing, onFault: nothing, onPaused: nothing, onStep: nothing },
  onLost: nothing,
};

/** Returns the reports of a run whose first session is `session(lostAt)`, and whose second keeps its GPU. */
async function told(lostAt: number, held?: HeldRun): Promise<string[]> {
  const [said, sessions] = [[] as string[], [session(lostAt), session(0)]];
  vi.spyOn(Session, 'open').mockImplementation(() => Promise.resolve(sessions.shift()!));
  const events: RunEvents = {
    ...UNHEARD,
    onStep: (metrics) => void said.push(`step ${metrics['training/global_step']}`),
    onLost: (_, from) => void said.push(`lost, from ${from}`),
  };
  const run = new Run({ config, hub: undefined, held, events });
  expect(await run.train()).toMatchObject({ step: 2, stopped: false });
  go();
  await run.end(true);
  return said;
}

test('a run whose samples stay in flight between steps says that it evaluates nothing between them', () => {
  const canWatch = (of: TrainConfig) => new Run({ config: of, hub: undefined, events: stub<RunEvents>({}) }).canWatch;
  expect(canWatch(config)).toBe(true);
  expect(canWatch({ ...config, trainer: { ...config.trainer, pipeline: 'one-step-off' } })).toBe(false);
});

test('if the GPU is lost before step 1 is saved, step 1 was not reported as done', async () => {
  expect(await told(1)).toEqual(['lost, from -1', 'step 1', 'step 2']);
});

test('if the GPU is lost afterwards, the run continues from step 1', async () => {
  expect(await told(2)).toEqual(['step 1', 'lost, from 1', 'step 2']);
});

test('a step that is repeated while the disk is slow is logged once, with all its tries', async () => {
  const isFree = new Promise<void>((resolve) => (go = resolve));
  const disk = diskFiles();
  const append: FileSystem['append'] = (path, content) => isFree.then(() => disk.append(path, content));
  const folder = RunFolder.open({ ...disk, append }, mkdtempSync(join(tmpdir(), 'webgrpo-lost-')));
  const nothing = () => Promise.resolve();
  const onProblem = (problem?: Error) => expect(problem).toBeUndefined();
  const held = stub<HeldRun>({ folder, onProblem, save: nothing, end: nothing });
  expect(await told(2, held)).toEqual(['step 1', 'lost, from 1', 'step 2']);
  expect((await folder.metrics()).map((line) => line['training/global_step'])).toEqual([1, 2]);
  expect((await folder.rollouts()).map(({ step }) => step)).toEqual([1, 1, 2, 2]);
});

test('the state is kept after the first step, then after a step that ends ten seconds later', async () => {
  vi.spyOn(Session, 'open').mockResolvedValue(session(0));
  let now = 1e9; // long after the real time, so that saving itself takes none
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 0.01));
  const kept: number[] = [];
  const onStep = () => {
    kept.push(run.training.keptStep);
    now += 6000;
  };
  const trainer = { ...config.trainer, saveFreq: 0, totalTrainingSteps: 3 };
  const run = new Run({ config: { ...config, trainer }, hub: undefined, events: { ...UNHEARD, onStep } });
  await run.train();
  expect(kept).toEqual([1, 1, 3]);
});

test('the state of a model that is too large for memory is not kept, and the reason is reported', async () => {
  vi.spyOn(Session, 'open').mockResolvedValue(session(0, { ...TINY_CONFIG, vocabSize: 2 ** 24 }));
  const problems = new Set<string>();
  const onProblem = (problem?: Error) => void problems.add(`${problem?.message}`);
  const run = new Run({ config, hub: undefined, held: stub<HeldRun>({ onProblem }), events: UNHEARD });
  await run.train();
  expect(run.training.keptStep).toBe(-1);
  expect([...problems]).toEqual([containing('is 1152 MiB, but the page saves up to 512 MiB.')]);
});

test('a pause that ends while its state is saved is not reported, and the run goes on', async () => {
  const opened = session(0);
  vi.spyOn(Session, 'open').mockResolvedValue(opened);
  const onPaused = vi.fn();
  const onStep: RunEvents['onStep'] = (metrics) => {
    if (metrics['training/global_step'] !== 2) return; // the state after step 1 is saved before
    run.pause();
    const { model } = opened.engine;
    vi.spyOn(model, 'exportWeights').mockImplementationOnce(() => {
      run.resume();
      return Promise.resolve(weights);
    });
  };
  const events: RunEvents = { ...UNHEARD, onStep, onPaused };
  const run = new Run({ config: { ...config, trainer: { ...config.trainer, saveFreq: 0 } }, hub: undefined, events });
  expect(await run.train()).toMatchObject({ step: 2, stopped: false });
  expect(onPaused).not.toHaveBeenCalled();
});

test('a run that is stopped in its last step is evaluated', async () => {
  vi.spyOn(Session, 'open').mockResolvedValue(session(0));
  const evaluated: number[] = [];
  const onEvaluated: RunEvents['onEvaluated'] = (metrics) => void evaluated.push(metrics['training/global_step']);
  const onPhase: RunEvents['onPhase'] = (phase, step) => void (phase === 'generate' && step === 2 && run.stop());
  const events: RunEvents = { ...UNHEARD, onEvaluated, onPhase };
  const trainer = { ...config.trainer, testFreq: 5 };
  const run = new Run({ config: { ...config, trainer }, hub: undefined, events });
  expect(await run.train()).toMatchObject({ step: 2 });
  expect(evaluated).toEqual([2]);
});

test('a pause that is requested between two steps saves the state before it is reported', async () => {
  vi.spyOn(Session, 'open').mockResolvedValue(session(0));
  const kept: number[] = [];
  const events: RunEvents = {
    ...UNHEARD,
    onStep: (metrics) => void (metrics['training/global_step'] === 2 && run.pause()),
    onPaused: () => {
      kept.push(run.training.keptStep);
      queueMicrotask(() => run.resume());
    },
  };
  const run = new Run({ config: { ...config, trainer: { ...config.trainer, saveFreq: 0 } }, hub: undefined, events });
  await run.train();
  expect(kept).toEqual([2]);
});

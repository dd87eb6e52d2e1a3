/** `webgrpo train` as a user starts it: what its run folder holds, which checkpoints stay, and how it goes on. */

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { BestCheckpoint } from '../../src/runs/keptCheckpoints.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../src/report/rollouts.ts';

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-train-'));
/** Follows from the problems drawn, so it is the same on every adapter: 31, 27.5, 28. */
const METRIC = 'prompt_length/mean';
const TINY = [
  ...[
    'data.trainBatchSize=2',
    'actor.ppoMiniBatchSize=2',
    'rollout.n=2',
    'data.valMaxSamples=2',
    'trainer.valBeforeTrain=false',
  ],
  ...[
    'trainer.testFreq=0',
    'trainer.profile=false',
    'trainer.kernelTuning=off',
    `trainer.defaultLocalDir=${defaultLocalDir}`,
  ],
];

function train(...overrides: string[]) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['scripts/webgrpo.mjs', 'train', 'configs/gsm8k-tool.yaml', ...TINY, ...overrides],
    { encoding: 'utf8', env: { ...process.env, npm_lifecycle_event: 'webgrpo' } },
  );
  return { status, stdout, said: stderr.split('\n') };
}

const inRun = (run: string, ...names: string[]) => join(defaultLocalDir, run, ...names);
const metricsOf = (run: string) => linesOf<Metrics>(inRun(run, 'metrics.jsonl'));
const linesOf = <T>(path: string) =>
  readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);
const stepsOf = (run: string) => metricsOf(run).map((line) => line['training/global_step']);
const checkpointsOf = (run: string) => readdirSync(inRun(run, 'checkpoints')).sort();
const eventFiles = (run: string) => readdirSync(inRun(run)).filter((name) => name.includes('tfevents'));

test('a run with trackers and few checkpoints, gone on with twice', () => {
  const settings = [
    'name=a',
    'trainer.logger=[jsonl, csv, tensorboard]',
    'trainer.saveFreq=1',
    'trainer.maxActorCkptToKeep=1',
    `trainer.metricForBestModel=${METRIC}`,
    'trainer.greaterIsBetter=false',
  ];
  const first = train(...settings, 'trainer.totalTrainingSteps=3');
  expect(first.said.join('\n')).toMatch(/\nkernels: compiling\nadapter: /);
  expect(first.said.filter((line) => line.startsWith('step '))).toEqual([]); // no console among the loggers
  expect(first.status).toBe(0);

  // The newest and the best stay, and the best is named.
  const lengths = metricsOf('a').map((line) => line[METRIC]);
  const best = 1 + lengths.indexOf(Math.min(...lengths));
  expect(best).toBeLessThan(3); // else nothing is shown by what stays
  expect(checkpointsOf('a')).toEqual([`step-${best}`, 'step-3']);
  const named: BestCheckpoint = {
    step: best,
    metric: METRIC,
    value: lengths[best - 1],
    checkpoint: `checkpoints/step-${best}`,
  };
  expect(JSON.parse(readFileSync(inRun('a', 'best.json'), 'utf8'))).toEqual(named);
  expect(first.stdout).toContain(`best: step ${best}, ${METRIC} ${named.value} (${inRun('a', named.checkpoint)})`);
  expect(readFileSync(inRun('a', 'metrics.csv'), 'utf8').trim().split('\n')).toHaveLength(1 + 3);
  expect(eventFiles('a')).toHaveLength(1);

  // What the advantage was made of is beside each logged sample.
  const rollouts = [1, 2, 3].flatMap((step) => linesOf<LoggedRollout>(inRun('a', 'rollouts', `step-${step}.jsonl`)));
  expect(rollouts).toHaveLength(3 * 4);
  for (const { score, advantage, group, step, extra } of rollouts) {
    const scores = rollouts
      .filter((other) => other.step === step && other.group === group)
      .map((other) => other.score!);
    if (scores.every((other) => other === score)) expect(advantage).toBeCloseTo(0, 6);
    else expect(Math.sign(advantage!)).toBe(score === Math.max(...scores) ? 1 : -1);
    expect(Object.keys(extra ?? {}).length).toBeGreaterThan(0);
  }

  // The same words with auto go on; each step is logged once, in a further event file.
  const second = train(...settings, 'trainer.totalTrainingSteps=4', 'trainer.resumeMode=auto');
  expect(second.said).toContain(`resuming after step 3, from ${inRun('a', 'checkpoints', 'step-3')}`);
  expect(second.status).toBe(0);
  expect(stepsOf('a')).toEqual([1, 2, 3, 4]);
  expect(readFileSync(inRun('a', 'metrics.csv'), 'utf8').trim().split('\n')).toHaveLength(1 + 4);
  expect(eventFiles('a')).toHaveLength(2);
  expect(checkpointsOf('a')).toContain('step-4');

  // From a path, into a run of its own: the other one stays as it is.
  const from = inRun('a', 'checkpoints', 'step-4');
  const third = train(
    'name=b',
    'trainer.totalTrainingSteps=5',
    'trainer.resumeMode=resume_path',
    `trainer.resumeFromPath=${from}`,
  );
  expect(third.said).toContain(`resuming after step 4, from ${from}`);
  expect(third.said.filter((line) => line.startsWith('step '))).toEqual([
    expect.stringMatching(/^step 5\/5 {2}reward /),
  ]);
  expect([stepsOf('b'), stepsOf('a')]).toEqual([[5], [1, 2, 3, 4]]);
  expect(existsSync(inRun('b', 'metrics.csv'))).toBe(false);
}, 240_000);

/** One update makes the weights infinite. */
const HUGE = ['actor.optim.lr=3e38', 'actor.optim.weightDecay=10'];

test('weights that are no longer finite end the run with one sentence, are not saved, and leave what they came from', () => {
  const { status, said } = train('name=nan', ...HUGE, 'trainer.totalTrainingSteps=6');
  expect(status).toBe(1);
  const last = said.filter((line) => line !== '').at(-1);
  expect(last).toMatch(/^3 steps in a row had numbers that are not finite, .* Lower actor\.optim\.lr \(3e\+38\)/);
  expect(last).toMatch(
    /Weights that are not finite are not saved; the run has no checkpoint \(see trainer\.saveFreq\)\.$/,
  );
  expect(said.join('\n')).not.toContain('as it should be');
  const kept = readdirSync(inRun('nan', 'errors')).sort();
  expect(kept).toHaveLength(3);
  expect(said.join('\n')).toContain(`What it computed on is in ${inRun('nan', 'errors', kept[0])}.`);
  const [head, sample] = linesOf<Record<string, unknown>>(inRun('nan', 'errors', kept[0]));
  expect(head).toMatchObject({ samples: 4, config: { actor: { optim: { lr: 3e38 } } } });
  expect(sample).toHaveProperty('responseIds');
  expect(existsSync(inRun('nan', 'checkpoints'))).toBe(false);
  const saving = train('name=saving', ...HUGE, 'trainer.totalTrainingSteps=2', 'trainer.saveFreq=1');
  expect(saving.status).toBe(1);
  expect(saving.said.join('\n')).toMatch(
    /After step 1 the weights are not finite \(".*"\); lower actor\.optim\.lr \(3e\+38\)\. Weights/,
  );
}, 480_000);

test('a run of partial rollouts that was killed goes on as if it had not been', async () => {
  const settings = ['rollout.overSampleRate=1.5', 'rollout.partialRollout=true', 'rollout.maxNumSeqs=8'];
  const four = [...settings, 'trainer.saveFreq=1', 'trainer.totalTrainingSteps=4'];
  expect(train('name=whole', ...four).status).toBe(0);

  const arguments_ = ['scripts/webgrpo.mjs', 'train', 'configs/gsm8k-tool.yaml', ...TINY, 'name=killed', ...four];
  const running = spawn(process.execPath, arguments_, { stdio: 'ignore', detached: true });
  const over = new Promise((resolve) => running.once('exit', resolve));
  while (!existsSync(inRun('killed', 'checkpoints', 'step-2')) && running.exitCode === null) await setTimeout(20);
  process.kill(-running.pid!, 'SIGKILL');
  await over;
  expect(existsSync(inRun('killed', 'checkpoints', 'step-4'))).toBe(false);
  const resumed = train('name=killed', ...four, 'trainer.resumeMode=auto');
  expect(resumed.said).toContain(
    '3 groups were under way (rollout.partialRollout); their samples go on where they stood',
  );
  expect(resumed.status).toBe(0);

  const isTime = (name: string) => name.startsWith('timing') || name.startsWith('perf/');
  const withoutTimes = (run: string) =>
    metricsOf(run).map((line) => Object.entries(line).filter(([name]) => !isTime(name)));
  expect(withoutTimes('killed')).toEqual(withoutTimes('whole'));
  for (const file of ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json'])
    expect(readFileSync(inRun('killed', 'checkpoints', 'step-4', file))).toEqual(
      readFileSync(inRun('whole', 'checkpoints', 'step-4', file)),
    );
}, 240_000);

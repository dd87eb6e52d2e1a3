/**
 * Tests `webgrpo train` on the real engine: a killed process resumes as if it had not been killed, and a run moves between Node and
 * headless Chromium. Its output: test/unit/trainCommand.test.ts.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bundle } from '../../scripts/lib/bundle.mjs';
import { metricsIn, RunningCommand, webgrpo } from '../commandLine.ts';
import { withoutTimes } from '../scriptedRuns.ts';
import { isFull } from './full.ts';

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-train-'));
const argumentsOf = (name: string) => [
  ...['train', 'configs/gsm8k-tool.yaml', `name=${name}`, `trainer.defaultLocalDir=${defaultLocalDir}`],
  ...['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2', 'rollout.n=2', 'data.valMaxSamples=2'],
  ...['rollout.overSampleRate=1.5', 'rollout.partialRollout=true', 'rollout.maxNumSeqs=8'],
  ...['trainer.valBeforeTrain=false', 'trainer.testFreq=0', 'trainer.profile=false', 'trainer.kernelTuning=off'],
  ...['trainer.saveFreq=1', 'trainer.totalTrainingSteps=2'],
];
const inRun = (...names: string[]) => join(defaultLocalDir, ...names);

function outcome(run: string) {
  const metrics = withoutTimes(metricsIn(inRun(run)));
  const files = ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json'];
  return { metrics, bytes: files.map((file) => readFileSync(inRun(run, 'checkpoints', 'step-2', file), 'base64')) };
}

test('two steps of partial rollouts, killed and resumed: the unbroken run, bit for bit', async () => {
  const whole = await webgrpo(argumentsOf('whole'));
  expect(whole.said.join('\n')).toMatch(/\nkernels: compiling\nadapter: /);
  expect(whole.status).toBe(0);

  const bin = join(await bundle(process.cwd()), 'bin.js');
  // The process kills itself at the line that it prints before it saves step 2. A signal from here could come after the checkpoint.
  const dies = `const { stderr } = process, write = stderr.write.bind(stderr);
    stderr.write = (text, ...more) => (String(text).includes('step 2/2') && process.kill(process.pid, 'SIGKILL'), write(text, ...more));`;
  const preload = ['--import', `data:text/javascript,${encodeURIComponent(dies)}`];
  const running = spawn(process.execPath, [...preload, bin, ...argumentsOf('killed')], { stdio: 'ignore' });
  expect(await once(running, 'exit')).toEqual([null, 'SIGKILL']);
  expect(existsSync(inRun('killed', 'checkpoints', 'step-1'))).toBe(true);
  const resumed = await webgrpo([...argumentsOf('killed'), 'trainer.resumeMode=auto']);
  expect(resumed.said.join('\n')).toContain(
    'groups were in flight (rollout.partialRollout): resumed with the samples so far',
  );
  expect(resumed.status).toBe(0);
  expect(outcome('killed')).toEqual(outcome('whole'));
});

test.skipIf(!isFull)('score: a run and its config are its newest checkpoint', async () => {
  expect((await webgrpo(argumentsOf('scored'))).status).toBe(0);
  const tokens = inRun('tokens.json');
  writeFileSync(tokens, '[[1, 2, 3, 4, 5, 6, 7, 8]]');
  const scoresOf = async (...path: string[]) => {
    const { status, stdout, said } = await webgrpo(['score', '--model', inRun('scored', ...path), '--tokens', tokens]);
    expect(status, said.join('\n')).toBe(0);
    return stdout;
  };
  const newest = await scoresOf('checkpoints', 'step-2');
  expect(await scoresOf()).toBe(newest);
  expect(await scoresOf('config.yaml')).toBe(newest);
  expect(await scoresOf('checkpoints', 'step-1')).not.toBe(newest);
});

/**
 * Trains step 1 in `places[0]`, is stopped, and trains step 2 in `places[1]`; a place is 'node' or 'chromium'. A worker's messages change
 * which samples end first, so the settings make a step wait for all samples.
 */
async function trainIn(places: readonly string[]) {
  const name = places.join('-');
  for (const [i, place] of places.entries()) {
    const within = place === 'chromium' ? ['--in', place] : [];
    const settings = ['rollout.overSampleRate=0', 'rollout.partialRollout=false'];
    const words = [...argumentsOf(name), ...settings, ...(i > 0 ? ['trainer.resumeMode=auto'] : []), ...within];
    const command = new RunningCommand(words, {
      onLine: (line) => i === 0 && line.startsWith('step 1/2') && command.signal('SIGINT'),
    });
    const { status, said } = await command.done;
    expect(status, said.join('\n')).toBe(i === 0 ? 3 : 0);
    expect(said.filter((line) => line.startsWith('browser: Chromium'))).toHaveLength(within.length / 2);
  }
  return outcome(name);
}

test.skipIf(!isFull)('a step in Chromium and one in Node: the run of the other order, bit for bit', async () => {
  const [first, second] = [await trainIn(['chromium', 'node']), await trainIn(['node', 'chromium'])];
  expect(first.metrics).toEqual(second.metrics);
  expect(first.bytes.map((bytes, i) => bytes === second.bytes[i])).toEqual([true, true, true]);
});

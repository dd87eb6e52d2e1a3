/** Tests `webgrpo room` and `webgrpo join` over a real nats-server with scripted engines: their output, and how signals end them. */

import { AsyncResource } from 'node:async_hooks';
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { planMemory, totalBytes } from '../../src/workers/memoryPlan.ts';
import { metricsIn, RunningCommand, scriptedEngines } from '../commandLine.ts';
import { hasNatsServer, runningServer } from '../natsServer.ts';

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-room-command-'));
const SETTINGS = [
  ...['data.trainBatchSize=4', 'actor.ppoMiniBatchSize=4', 'rollout.n=2', 'rollout.maxNumSeqs=4'],
  ...['data.valMaxSamples=1', 'trainer.valBeforeTrain=false', 'trainer.testFreq=0', 'trainer.profile=false'],
  ...[`trainer.defaultLocalDir=${defaultLocalDir}`],
];
/** Settings of a run that lasts longer than the test, and saves only when it is stopped. */
const LONG = ['trainer.totalTrainingSteps=10000', 'trainer.saveFreq=0'];
/** Settings of the pipeline that a room uses if `on-policy` is configured. Without a room, on-policy has other random keys. */
const MODE_A = [
  ...['trainer.pipeline=fully-async', 'asyncTraining.stalenessThreshold=0'],
  ...['asyncTraining.triggerParameterSyncStep=1', 'asyncTraining.onStale=wait'],
];
const INVITATION = /webgrpo join (\S+) --code (\S+)/;

afterEach(() => vi.restoreAllMocks());

const start = (...args: string[]) => new RunningCommand(args, { createEngine: scriptedEngines() });
/** Starts a room that waits for the samples of its first step. */
async function waitingRoom(name: string, createEngine = scriptedEngines()) {
  const words = ['room', 'configs/gsm8k-tool.yaml', ...SETTINGS, `name=${name}`, ...LONG, '--port', '0'];
  const room = new RunningCommand(words, { createEngine: createEngine!, isTTY: true });
  await Promise.all([room.said(INVITATION), room.said(/step 1: /)]);
  return room;
}
/**
 * Returns a function that runs the controller's check of its server 25 times, which is enough for a result. It can be called after the
 * first signal, which starts the checks.
 */
function looks(): () => void {
  const { setInterval } = globalThis;
  let look: (() => void) | undefined;
  vi.spyOn(globalThis, 'setInterval').mockImplementation((callback, ms) => {
    if (ms === 200) look = AsyncResource.bind(callback);
    return setInterval(callback, ms);
  });
  return () => {
    for (let i = 0; i < 25; i++) look!();
  };
}
const run = (command: string, name: string, ...more: string[]) =>
  start(command, 'configs/gsm8k-tool.yaml', ...SETTINGS, `name=${name}`, ...more);
const inRun = (name: string, ...more: string[]) => join(defaultLocalDir, name, ...more);
const checkpointsOf = (name: string) => readdirSync(inRun(name, 'checkpoints'));
const metricsOf = (name: string) => metricsIn(inRun(name));
/** True for metrics that depend only on the training, and not on clocks, machines or the order of samples. */
const isComputed = (name: string) => !/^(timing|perf|room|rollout|fully_async.monitor)|idle_ratio/.test(name);
const computed = (name: string) =>
  metricsOf(name).map((line) => Object.entries(line).filter(([metric]) => isComputed(metric)));
const withUser = (address: string) => address.replace('//', '//controller:c%3A1@');

describe.runIf(hasNatsServer())('a room', () => {
  test('training on an existing server, stopped and resumed while workers leave and join, equals that of one device', async () => {
    const running = await runningServer();
    const steps = ['trainer.totalTrainingSteps=3'];
    const server = ['--nats', withUser(running.address), '--worker', 'worker:w'];
    const open = () => run('room', 'room', ...steps, 'trainer.resumeMode=auto', ...server);
    try {
      let room = open();
      const joining = (name: string) => start('join', running.address, '--code', 'worker:w', '--name', name);
      const leaving = joining('leaves');
      await room.said(/leaves generates on/);
      leaving.signal('SIGINT');
      const left = await leaving.done;
      expect([left.status, left.said]).toEqual([
        3,
        expect.arrayContaining(['Leaving the room. Unfinished groups go to other workers.']),
      ]);
      const worker = joining('stays');
      await room.said(/^step 1\//m);
      room.signal('SIGINT');
      expect([(await room.done).status, (await worker.done).status], room.stderr).toEqual([3, 0]);
      room = open();
      const other = joining('returns');
      expect([(await room.done).status, (await other.done).status], room.stderr).toEqual([0, 0]);
      expect(room.stderr).toMatch(/resumed from step [12]:/);
      expect((await run('train', 'alone', ...steps, ...MODE_A).done).status).toBe(0);
      expect(computed('room')).toEqual(computed('alone'));
      const weights = (name: string) =>
        readFileSync(inRun(name, 'checkpoints', 'step-3', 'model.safetensors'), 'base64');
      expect(weights('room')).toBe(weights('alone'));
    } finally {
      await running.end();
    }
  });

  test('a room that is stopped before any worker joined saves; its trainer and the model that verifies share the memory', async () => {
    const specs: EngineSpec[] = [];
    const create = scriptedEngines()!;
    const room = await waitingRoom('idle', (spec) => {
      specs.push(spec);
      return create(spec);
    });
    room.signal('SIGINT');
    const { status, said } = await room.done;
    expect(status).toBe(3);
    expect(said.join('\n')).toContain('Stopping before the next step: no worker is connected.');
    expect(said.join('\n')).toMatch(/Stopped and saved\. To resume: .* room .*trainer\.resumeMode=auto/);
    expect(checkpointsOf('idle')).toEqual(['step-0']);
    expect(specs.map(({ use }) => use)).toEqual([undefined, 'score']);
    const bytes = specs.map((spec) => totalBytes(planMemory(spec)));
    const alone = specs.map(({ otherEngines: _, ...spec }) => totalBytes(planMemory(spec)));
    expect(bytes).toEqual([alone[0] + alone[1], alone[0] + alone[1]]);
  });

  test('signals while the NATS server is unreachable: the controller saves its last step and ends, and its worker leaves', async () => {
    const running = await runningServer();
    const room = run('room', 'gone', ...LONG, '--nats', withUser(running.address), '--worker', 'worker:w');
    const worker = start('join', running.address, '--code', 'worker:w', '--name', 'stays');
    try {
      await room.said(/^step 1\//m);
    } finally {
      await running.end('SIGKILL');
    }
    const lookOften = looks();
    room.signal('SIGTERM');
    worker.signal('SIGINT');
    lookOften();
    const [ended, left] = await Promise.all([room.done, worker.done]);
    expect([ended.status, left.status]).toEqual([3, 3]);
    expect(room.stderr).toContain('The NATS server of the room does not answer: stopping without it.');
    expect(room.stderr).toMatch(/Stopped and saved\. To resume: .* room .*trainer\.resumeMode=auto/);
    expect(checkpointsOf('gone')).toEqual([`step-${metricsOf('gone').length}`]);
    expect(worker.stderr).toContain('Leaving the room. Unfinished groups go to other workers.');
    expect(room.stderr + worker.stderr).not.toContain('bug in webgrpo');
  });

  test('a room whose own server has died, without workers, ends by one signal, or immediately by a second', async () => {
    const room = await waitingRoom('dead');
    process.kill(Number(readFileSync(inRun('dead-room', 'nats.pid'), 'utf8')), 'SIGKILL');
    const lookOften = looks();
    const now = vi.spyOn(performance, 'now');
    now.mockReturnValueOnce(1e9);
    room.signal('SIGINT');
    expect(room.stderr).toContain('Stopping before the next step');
    now.mockReturnValueOnce(1e9 + 1000);
    room.signal('SIGTERM');
    expect(room.endedBy).toEqual(['SIGTERM']);
    lookOften();
    expect((await room.done).status).toBe(3);
    expect(room.stderr).not.toContain('bug in webgrpo');
    expect(checkpointsOf('dead')).toEqual(['step-0']);
  });

  test('a signal ends webgrpo join immediately while it waits for admission', async () => {
    const running = await runningServer();
    try {
      const waiting = start('join', running.address, '--code', 'worker:w');
      await waiting.listens;
      waiting.signal('SIGINT');
      expect(await waiting.done).toEqual({
        status: 3,
        stdout: '',
        said: ['Stopped before a group of the room arrived.'],
      });
    } finally {
      await running.end();
    }
  });
});

/**
 * Tests `webgrpo room` and `webgrpo join` on the real engine, as users start them, over TLS. Every day the room runs in the process of the
 * tests, which has compiled its kernels. In --full it is a process that is killed during the run and resumed, and there are also LoRA on an existing NATS server, and `webgrpo train` with two devices; there each training must equal that
 * of one device alone, bit for bit. test/unit/roomCommand.test.ts checks both every day on a scripted engine, and signals and messages.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Objm } from '@nats-io/obj';
import { bundle } from '../../scripts/lib/bundle.mjs';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { connectInNode } from '../../src/cli/room/openRoom.ts';
import { authentication } from '../../src/extensions/rooms/connect.ts';
import { WEIGHTS_BUCKET } from '../../src/extensions/rooms/names.ts';
import { hasNatsServer, hasOpenssl, runningServer, selfSigned } from '../natsServer.ts';
import { metricsIn, RunningCommand } from '../commandLine.ts';
import { isFull } from './full.ts';

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-room-command-'));
const recipe = 'configs/gsm8k-tool.yaml';
const SETTINGS = [
  ...[`data.trainBatchSize=${isFull ? 4 : 2}`, `actor.ppoMiniBatchSize=${isFull ? 4 : 2}`],
  ...['rollout.n=2', 'rollout.maxNumSeqs=4'],
  ...['data.valMaxSamples=1', 'trainer.valBeforeTrain=false', 'trainer.testFreq=0', 'trainer.profile=false'],
  ...['trainer.kernelTuning=off', `trainer.defaultLocalDir=${defaultLocalDir}`],
];
const TWO = ['trainer.totalTrainingSteps=2', 'trainer.saveFreq=1'];
const LORA = ['model.loraRank=4', 'trainer.totalTrainingSteps=2'];
/** Settings of the pipeline that a room uses if `on-policy` is configured. Without a room, on-policy has other random keys. */
const MODE_A = [
  ...['trainer.pipeline=fully-async', 'asyncTraining.stalenessThreshold=0'],
  ...['asyncTraining.triggerParameterSyncStep=1', 'asyncTraining.onStale=wait'],
];
/** Milliseconds after which a test counts as hanging, also on a slow machine. */
const HANG_MS = 600_000;

let main: string;
beforeAll(async () => {
  main = join(await bundle(process.cwd()), 'bin.js');
});
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
});

/** Starts a process and collects its output. */
function start(args: string[], env: Record<string, string> = {}) {
  const child: ChildProcess = spawn(process.execPath, [main, ...args], {
    ...{ stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } },
  });
  children.push(child);
  const started = { child, said: '', ended: new Promise<number | null>((done) => child.once('exit', done)) };
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (data) => (started.said += String(data)));
  return started;
}

/** Starts a command in this process. */
function startHere(args: string[]) {
  const command = new RunningCommand(args);
  return {
    get said() {
      return command.stdout + command.stderr;
    },
    ended: command.done.then(({ status }) => status),
  };
}

type Said = Pick<ReturnType<typeof start>, 'said' | 'ended'>;

const train = (name: string, ...overrides: string[]) =>
  start(['train', recipe, ...SETTINGS, `name=${name}`, ...overrides]);

/** Waits for a condition. If the condition never holds, the error contains the output of the processes. */
async function until(isSo: () => boolean, ...runs: Said[]): Promise<void> {
  const end = performance.now() + HANG_MS;
  while (!isSo() && performance.now() < end) await sleep(20);
  expect(isSo(), runs.map(({ said }) => said).join('\n\n')).toBe(true);
}

async function expectDone(run: Said): Promise<void> {
  expect(await run.ended, run.said).toBe(0);
}

const inRun = (name: string, ...more: string[]) => join(defaultLocalDir, name, ...more);
const metricsOf = (name: string) => metricsIn(inRun(name));

/** True for metrics that depend only on the training, and not on clocks, machines or the order of samples. */
const isComputed = (name: string) => !/^(timing|perf|room|rollout|fully_async.monitor)|idle_ratio/.test(name);
const computed = (name: string): Metrics[] =>
  metricsOf(name).map((line) => Object.fromEntries(Object.entries(line).filter(([metric]) => isComputed(metric))));

/** Expects every step of a room's run, and that no sample was stale, rejected, or accepted with a near token. */
function expectWhole(room: string, steps: number): void {
  const lines = metricsOf(room);
  expect(lines).toHaveLength(steps);
  for (const metrics of lines) {
    expect(Object.keys(metrics).length).toBeGreaterThan(20);
    expect(metrics).toHaveProperty(['actor/grad_norm']);
  }
  const [last] = lines.slice(-1);
  expect(last).toMatchObject({
    'fully_async/count/dropped_stale_samples': 0,
    'fully_async/count/stale_samples_processed': 0,
    'room/near_tokens_share': 0,
  });
  expect(Object.keys(last).filter((name) => name.startsWith('room/rejected'))).toEqual([]);
}

/** Compares the run of a room to one on one device. */
function expectSameRun(room: string, alone: string, steps: number): void {
  expectWhole(room, steps);
  expect(computed(room)).toEqual(computed(alone));
}

const weights = (name: string, step: number, file = 'model.safetensors') =>
  readFileSync(inRun(name, 'checkpoints', `step-${step}`, file));
const INVITATION = /webgrpo join (\S+) --code (\S+)/;

test.runIf(isFull)('trainer.placement=split trains what colocated trains', async () => {
  const colocated = train('colocated', ...TWO);
  const split = train('split', ...TWO, 'trainer.placement=split');
  await Promise.all([colocated, split].map(expectDone));
  expect(split.said).toContain('trainer.placement is split');
  expect(computed('split')).toEqual(computed('colocated'));
  expect(computed('split')).toHaveLength(2);
  expect(weights('split', 2).equals(weights('colocated', 2))).toBe(true);
  const sent = (name: string) => metricsOf(name).map((line) => line['perf/sync_bytes'] ?? 0);
  expect([Math.max(...sent('colocated')), Math.min(...sent('split')) > 0]).toEqual([0, true]);
});

describe.runIf(hasNatsServer())('a room', () => {
  test.skipIf(!hasOpenssl)(
    'over TLS a room trains to its end, in --full killed during the run and resumed, the same as one device',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'webgrpo-tls-'));
      const { cert, key } = selfSigned(folder);
      let port = '0'; // any free port
      const flags = ['--tls-cert', cert, '--tls-key', key, '--ack-wait-s', '3'];
      const words = () => [
        'room',
        recipe,
        ...SETTINGS,
        ...TWO,
        'name=room',
        'trainer.resumeMode=auto',
        ...flags,
        '--port',
        port,
      ];
      const invitation = async (room: Said) => {
        await until(() => INVITATION.test(room.said), room);
        return INVITATION.exec(room.said)!.slice(1);
      };
      try {
        const alone = isFull ? train('alone', ...TWO, ...MODE_A) : undefined;
        const killed = isFull ? start(words()) : undefined;
        let room: Said = killed ?? startHere(words());
        const [address, code] = await invitation(room);
        expect(address).toMatch(/^tls:\/\/127\.0\.0\.1:\d+$/);
        port = address.split(':')[2];
        const joining = ['join', address, '--code', code, '--name', 'stays', '--json'];
        const worker = start(joining, { NODE_EXTRA_CA_CERTS: cert });
        if (killed) {
          await until(() => existsSync(inRun('room', 'checkpoints', 'step-1')), room, worker);
          // The room's controller is killed. Its NATS server and its worker survive, so the test itself must end the server.
          killed.child.kill('SIGKILL');
          await killed.ended;
          killIfThere(Number(readFileSync(inRun('room-room', 'nats.pid'), 'utf8')));
          expect(existsSync(inRun('room', 'checkpoints', 'step-2'))).toBe(false);
          room = start(words());
          expect(await invitation(room)).toEqual([address, code]);
        }
        await expectDone(room);
        if (killed) expect(room.said).toMatch(/resumed from step [12]:/);
        await expectDone(worker);
        expectWhole('room', 2);
        if (!alone) return;
        await expectDone(alone);
        expectSameRun('room', 'alone', 2);
        expect(weights('room', 2).equals(weights('alone', 2))).toBe(true);
      } finally {
        for (const child of children) child.kill('SIGKILL');
        const pid = inRun('room-room', 'nats.pid');
        if (existsSync(pid)) killIfThere(Number(readFileSync(pid, 'utf8')));
      }
    },
  );

  test.runIf(isFull)(
    'with LoRA, on a NATS server that runs already, trains what one device trains, and publishes adapters alone',
    async () => {
      const running = await runningServer();
      try {
        const alone = train('lora', ...LORA, ...MODE_A);
        const url = running.address.replace(
          '//',
          `//${encodeURIComponent('controller')}:${encodeURIComponent('c:1')}@`,
        );
        const flags = ['--nats', url, '--worker', 'worker:w'];
        const room = start(['room', recipe, ...SETTINGS, ...LORA, 'name=lora-room', ...flags]);
        const join_ = (name: string) => start(['join', running.address, '--code', 'worker:w', '--name', name]);
        const leaving = join_('leaves');
        await until(() => room.said.includes('leaves generates on'), room, leaving);
        leaving.child.kill('SIGINT');
        expect(await leaving.ended, leaving.said).toBe(3);
        expect(leaving.said).toContain('Leaving the room. Unfinished groups go to other workers.');
        const worker = join_('stays');
        await expectDone(room);
        await expectDone(worker);
        await expectDone(alone);
        expectSameRun('lora-room', 'lora', 2);
        const adapter = (name: string) => weights(name, 2, 'adapter_model.safetensors');
        expect(adapter('lora-room').equals(adapter('lora'))).toBe(true);

        const connection = await connectInNode({
          servers: running.address,
          ...(await authentication('controller:c:1')),
        });
        const store = await new Objm(connection).open(WEIGHTS_BUCKET);
        const published = readSafetensors((await store.getBlob('v2'))!, 'v2');
        const names = [...published.keys()];
        expect(names.length).toBeGreaterThan(0);
        expect(names.filter((name) => !/lora_[AB]/.test(name))).toEqual([]);
        await connection.close();
      } finally {
        for (const child of children) child.kill('SIGKILL');
        await running.end();
      }
    },
  );
});

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended already.
  }
}

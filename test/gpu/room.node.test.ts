/**
 * Tests `webgrpo room`, `webgrpo join` and webgrpo's page, started as users start them: a worker in Node, one in Chromium that is killed
 * during a step, and one that forges. The training must equal that of one device alone, bit for bit, and the reward must rise.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type Page } from '@playwright/test';
import { createServer } from 'vite';
import { expect, test } from 'vitest';
import { bundle } from '../../scripts/lib/bundle.mjs';
import { webGpuLaunchOptions } from '../../src/cli/chromium.mjs';
import { disk } from '../../src/cli/files.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import type { ExperienceRecord } from '../../src/grpo/pipeline/record.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { readKept } from '../../src/extensions/replay/keptRollouts.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { joinRoom } from '../../src/extensions/rooms/joinRoom.ts';
import { roomEngine } from '../../src/extensions/rooms/roomEngine.ts';
import { connectByTcp, hasNatsServer } from '../natsServer.ts';
import { readShipped } from './readFixture.ts';
import { metricsIn } from '../commandLine.ts';
import { throughJson } from '../json.ts';

const STEPS = 5;
/** Number of steps at the start and at the end whose mean rewards are compared. */
const SPAN = 2;
const [PROMPTS, N] = [8, 8];
const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-room-run-'));
const SETTINGS = [
  ...[`data.trainBatchSize=${PROMPTS}`, 'actor.ppoMiniBatchSize=4', `rollout.n=${N}`, 'rollout.maxNumSeqs=16'],
  ...['actor.optim.lr=1e-3', `trainer.totalTrainingSteps=${STEPS}`, 'trainer.valBeforeTrain=false'],
  ...['trainer.testFreq=0', 'data.valMaxSamples=8', 'trainer.keepRollouts=true', 'name=room'],
  `trainer.defaultLocalDir=${defaultLocalDir}`,
];
const recipe = 'configs/gsm8k-tool.yaml';
const task = gsm8kToolTask();
const configOf = (...more: string[]) =>
  parseTrainConfig(readFileSync(recipe, 'utf8'), { source: recipe, overrides: [...SETTINGS, ...more], note: () => {} });

/** Starts a process and collects its output. */
function start(main: string, args: string[]) {
  const child: ChildProcess = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const process_ = { child, said: '', ended: new Promise<number | null>((done) => child.once('exit', done)) };
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (data) => (process_.said += String(data)));
  return process_;
}

async function openEngine(): Promise<LocalEngine> {
  const config = configOf();
  return createLocalEngine({ ...engineSizes(config), ...(await readShipped(config.model.path)) });
}

/** Runs the same training on one device, with the fully asynchronous pipeline in its on-policy mode (verl's mode a). */
async function trainAlone(engine: LocalEngine): Promise<{ history: Metrics[]; drawn: string[][] }> {
  const modeA = ['stalenessThreshold=0', 'triggerParameterSyncStep=1', 'onStale=wait'];
  const config = configOf('trainer.pipeline=fully-async', ...modeA.map((setting) => `asyncTraining.${setting}`));
  const drawn: string[][] = [];
  const onStep = (_: Metrics, samples: Sample[]) => void drawn.push(drawnOf(samples));
  const { history } = await new GrpoTrainer({ config, task, engine, onStep }).fit();
  return { history, drawn };
}

/** Opens webgrpo's page in a separate Chromium, served by a separate server. */
async function openChromium() {
  const server = await createServer({
    configFile: 'vite.config.ts',
    logLevel: 'error',
    server: { host: '127.0.0.1', port: 0 },
  });
  await server.listen();
  const browserServer = await chromium.launchServer(webGpuLaunchOptions());
  const browser = await chromium.connect(browserServer.wsEndpoint());
  return {
    page: await browser.newPage({ baseURL: server.resolvedUrls!.local[0] }),
    /** kills the browser, as a failing machine would */
    kill: () => browserServer.kill(),
    async close() {
      await browserServer.kill();
      await server.close();
    },
  };
}

/**
 * Joins the room with the page. The page sends its finished groups only after `letGo`. Only the first of its messages arrives, after which
 * the connection is cut and `whenCut` resolves.
 */
async function joinByPage(page: Page, room: string) {
  let [letGo, cut] = [() => {}, () => {}];
  const mayGo = new Promise<void>((resolve) => (letGo = resolve));
  const whenCut = new Promise<void>((resolve) => (cut = resolve));
  let isFree = false;
  void mayGo.then(() => (isFree = true));
  const held = new Set<string>(); // the page sends these again while no answer arrives
  const address = new URL(room, 'http://localhost').searchParams.get('room')!;
  await page.routeWebSocket(
    ({ href }) => href.startsWith(address),
    (socket) => {
      const server = socket.connectToServer();
      socket.onMessage((message) => {
        const group = /webgrpo\.sample\.\S+/.exec(String(message))?.[0];
        if (group !== undefined && !isFree) held.add(group);
        if (group === undefined) server.send(message);
        else if (held.has(group)) void mayGo.then(() => server.send(message));
        else cut();
      });
    },
  );
  await page.goto(room);
  await page.getByRole('button', { name: 'Join', exact: true }).click();
  return { letGo, whenCut };
}

/** Returns the metrics that depend only on the training, and not on clocks, machines or the order of samples. */
const computed = (metrics: Metrics): Metrics =>
  Object.fromEntries(
    Object.entries(metrics).filter(
      ([name]) => !/^(timing|perf|room|rollout|fully_async.monitor)|idle_ratio/.test(name),
    ),
  );

/** Returns the responses of a step's samples, in order. */
const drawnOf = (samples: Sample[]): string[] => samples.map(({ trajectory }) => trajectory.responseIds.join());

const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

/** Runs only with --full. Everyday tests of rooms: test/unit/roomCommand.test.ts, roomCommand.node.test.ts and test/e2e/room.spec.ts. */
const isFull = process.env['FULL_TESTS'] === '1';

test.runIf(isFull && hasNatsServer())(
  'a room of workers in Node and Chromium, one of which is killed, and a forger trains what one device trains: the reward rises',
  async () => {
    const main = join(await bundle(process.cwd()), 'bin.js');
    const engine = await openEngine();
    const room = start(main, ['room', recipe, ...SETTINGS, '--port', '0', '--ack-wait-s', '3']);
    const leaving = new AbortController();
    let [browser, node]: [Awaited<ReturnType<typeof openChromium>>?, ReturnType<typeof start>?] = [];
    let forging: Promise<unknown> | undefined;
    try {
      browser = await openChromium();
      const alone = await trainAlone(engine);
      const invitation = /webgrpo join (\S+) --code (\S+)[^]*in a page: (\S+)/;
      await expect.poll(() => room.said).toMatch(invitation);
      const [, address, code, link] = invitation.exec(room.said)!;

      // The forging worker joins first, because its engine exists already.
      const config = configOf();
      const honest = roomEngine({ config, engine, task }, { adapter: 'forger', destroy: () => {} });
      // Every second sample is sampled with another key, and claims a wrong reward.
      const forged: typeof honest.generate = async (prompt, worker, put, signal) => {
        const forge = (record: ExperienceRecord) => {
          const sample = JSON.parse(String(record.columns['sample'])) as { reward: { score: number } };
          sample.reward.score += 1;
          return put({ ...record, columns: { ...record.columns, sample: JSON.stringify(sample) } });
        };
        const putOdd = async (record: ExperienceRecord) => (/[1357]$/.test(record.key) ? forge(record) : undefined);
        const putEven = async (record: ExperienceRecord) => (/[0246]$/.test(record.key) ? put(record) : undefined);
        await honest.generate({ ...prompt, number: prompt.number + 1000 }, worker, putEven, signal);
        await honest.generate(prompt, worker, putOdd, signal);
      };
      forging = joinRoom({
        ...{ connect: connectByTcp, address, code, name: 'forges', signal: leaving.signal },
        open: async () => ({ ...honest, groupsAtOnce: 1, generate: forged }),
      }).catch((error: unknown) => error);

      // The page gets groups before the other worker joins. It is killed after it has sent some groups and while it holds others.
      const says = (text: string) => expect.poll(() => room.said).toContain(text);
      const page = await joinByPage(browser.page, link);
      await says('page generates on');
      node = start(main, ['join', address, '--code', code, '--name', 'node', '--json']);
      await says('node generates on');
      page.letGo();
      await page.whenCut;
      await browser.kill();
      expect(await room.ended, room.said).toBe(0);
      expect(await node.ended, node.said).toBe(0);
      expect(String(await forging)).toContain('excluded this worker');

      const folder = join(defaultLocalDir, 'room');
      const steps = metricsIn(folder);
      const expected = alone.history.map((metrics) => throughJson(metrics));
      expect(steps.map(computed)).toEqual(expected.map(computed));
      for (const metrics of expected) expect(computed(metrics)).toHaveProperty(['actor/grad_norm']);
      // Each group is trained on once and none is dropped. The tokens depend only on group and sample, not on the worker.
      for (const [index, drawn] of alone.drawn.entries())
        expect(drawnOf((await readKept(RunFolder.open(disk, folder), index + 1)).samples)).toEqual(drawn);
      const rewards = steps.map((step) => step['critic/score/mean']);
      expect(mean(rewards.slice(-SPAN)), `rewards ${rewards.join(', ')}`).toBeGreaterThan(
        mean(rewards.slice(0, SPAN)) + 0.1,
      );
      for (const step of steps) expect(step['training/rollout_probs_diff_max']).toBe(0);
      expect(steps.at(-1)).toMatchObject({ 'room/near_tokens_share': 0 });
      expect(mean(steps.map((step) => step['timing_s/reward']))).toBeGreaterThan(0);

      const counts =
        /worker (\w+): (\d+) samples, (\d+) rejected(?: \([^)]*\))?, (\d+) messages refused, \d+ twice(.*)/g;
      const told = new Map(
        [...room.said.matchAll(counts)].map(([, name, ...rest]) => [name, [...rest.slice(0, 3).map(Number), rest[3]]]),
      );
      const accepted = [...told.values()].reduce((sum, [samples]) => sum + Number(samples), 0);
      expect(accepted, room.said).toBe(STEPS * PROMPTS * N);
      const honestCounts = [expect.toSatisfy((count: number) => count > 0), 0, 0, ''];
      for (const name of ['page', 'node']) expect([name, told.get(name)]).toEqual([name, honestCounts]);
      const rejected = Object.entries(steps.at(-1)!).filter(([name]) => name.startsWith('room/rejected/'));
      const forgeries = rejected.reduce((sum, [, count]) => sum + count, 0);
      expect(forgeries).toBeGreaterThan(0);
      for (const [name] of rejected) expect(name).toMatch(/forged_(token|reward)$/);
      expect(told.get('forges')).toEqual([expect.any(Number), forgeries, 0, ', left out']);
    } finally {
      leaving.abort();
      for (const worker of [room, node]) worker?.child.kill('SIGKILL');
      await browser?.close();
      await forging;
      engine.destroy();
    }
  },
);

import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type NatsConnection, nkeys } from '@nats-io/nats-core';
import { authentication, enter, newUserKey } from '../../src/extensions/rooms/connect.ts';
import { read, VERSION, write, writeSample } from '../../src/extensions/rooms/messages.ts';
import { JOIN, SAMPLES, takeSubject } from '../../src/extensions/rooms/names.ts';
import {
  type FakeWorker,
  Controller,
  type ControllerOptions,
  fakeWorker,
  groupOf,
  madeUp,
  type Saved,
} from '../room.ts';
import type { RoomEngine } from '../../src/extensions/rooms/joinRoom.ts';
import type { ExperienceRecord } from '../../src/grpo/pipeline/record.ts';
import { Signer, textSignedBy } from '../../src/extensions/rooms/tickets.ts';
import { connectByTcp, hasNatsServer, TestRoom } from '../natsServer.ts';
import { holdTimers } from '../timers.ts';
import { anyNumber } from '../stub.ts';

const isFull = process.env['FULL_TESTS'] === '1';
/** Milliseconds after which a test counts as hanging, also on a slow machine. */
const HANG_MS = 600_000;
const KILLS_MS = 1_800_000; // as in vitest.config.ts
const until = <T>(value: () => T | Promise<T>) => expect.poll(value);
/** Milliseconds after which the NATS server would deliver a sample again. For tests in which it must never do so. */
const NEVER_MS = 10 * HANG_MS;
/** Milliseconds that a worker waits for the response to its request for a group. */
const TAKE_MS = 10_000;
const MIB = 2 ** 20;

/** Returns a promise with a function `open` that resolves it. */
function gated(): { opened: Promise<void>; open(): void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open: () => open() };
}

/** Returns the bytes of reachable objects on the heap, after a garbage collection. */
function heap(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed;
}

test("Node's signatures are those of the nkeys package, which a page uses", async () => {
  const [{ seed, id }, other] = [await newUserKey(), await newUserKey()];
  const signed = (await Signer.of(seed)).text('x');
  const data = signed.subarray(0, 1);
  expect([...signed.subarray(1)]).toEqual([...nkeys.fromSeed(new TextEncoder().encode(seed)).sign(data)]);
  expect(await textSignedBy(id, signed)).toEqual(data);
  await expect(textSignedBy(other.id, signed)).rejects.toThrow('is not signed by the worker');
});

describe.runIf(hasNatsServer())('a room', () => {
  let room: TestRoom;
  let workers: FakeWorker[];
  let controller: Controller;
  /**
   * Makes pending requests for groups time out. By default they never do here: if a prompt came after the timeout, its group would be lost.
   */
  let askAgain: () => void;
  const start = () => {
    askAgain = holdTimers(TAKE_MS);
    workers = [];
  };
  const end = async () => {
    vi.unstubAllGlobals();
    for (const { leave } of workers) leave();
    askAgain();
    await Promise.all(workers.map(({ ended }) => ended));
    await controller.close();
    await room.empty();
  };
  beforeAll(async () => void (room = await TestRoom.start()));
  afterAll(() => room.end());
  const join = (options?: Parameters<typeof fakeWorker>[1]) => {
    const worker = fakeWorker(room, options);
    workers.push(worker);
    return worker;
  };
  /** Opens a controller, which publishes its weights, so that no worker that joins has to wait for them. */
  const open = async (saved: Saved, options?: ControllerOptions) => {
    controller = await Controller.open(room, saved, options);
    await controller.rollouter.updateWeights(saved.trained.length);
    return controller;
  };
  const fresh = (): Saved => ({ trained: [], begun: 0 });
  const named = (name: string) => [...controller.host.workers.values()].find((counts) => counts.name === name);
  const isThere = (name: string) => until(() => named(name)?.adapter).toBe('none');
  const groups = (count: number) => Array.from({ length: count }, (_, i) => `1.${i}`).sort();

  describe('with workers', () => {
    beforeEach(start);
    afterEach(end);

    test('trains each group once, with two workers that follow the weights', async () => {
      const saved = fresh();
      await open(saved);
      const [a, b] = [join({ name: 'a' }), join({ name: 'b' })];
      await Promise.all([isThere('a'), isThere('b')]);
      await controller.train(12);
      expect([...saved.trained].sort()).toEqual(groups(12));
      expect(Math.min(a.generated.length, b.generated.length)).toBeGreaterThan(0);
      await controller.rollouter.updateWeights(1);
      await until(() => [a.versions.at(-1), b.versions.at(-1)]).toEqual([1, 1]);
      expect(named('a')!.accepted + named('b')!.accepted).toBe(48);
    });

    test('a worker counts the tokens that it sampled, without those of tools, and their number per second', async () => {
      const clock = vi.spyOn(performance, 'now').mockReturnValue(1000);
      onTestFinished(() => clock.mockRestore());
      await open(fresh());
      const mask = Uint8Array.of(1, 1, 0, 0, 0, 0, 0, 1);
      let isDone = false;
      const worker = join({
        async generate({ uid }, _, put) {
          const { columns, ...record } = madeUp(uid, 0);
          await put({ ...record, columns: { ...columns, mask } });
          clock.mockReturnValue(2500);
          isDone = true;
        },
      });
      await controller.rollouter.start([groupOf(0)]);
      await until(() => isDone).toBe(true);
      worker.leave();
      expect(await worker.ended).toMatchObject({ tokens: 3, tokensPerS: 2 });
    });

    test('a worker leaves after three failed groups in a row, not after three in all', async () => {
      await open(fresh(), { ackWaitMs: NEVER_MS });
      let calls = 0;
      const unreliable: FakeWorker = join({
        groupsAtOnce: 1,
        async generate() {
          if (++calls === 8) unreliable.leave();
          if (calls % 2 === 1) throw new Error('once');
        },
      });
      await controller.rollouter.start(Array.from({ length: 8 }, (_, i) => groupOf(i)));
      expect(await unreliable.ended).toMatchObject({ name: 'fake' });
      const error = new Error('always');
      expect(await join({ generate: () => Promise.reject(error) }).ended).toBe(error);
    });

    test('a group starts with the weights that were published before it', async () => {
      const saved = fresh();
      await open(saved);
      const worker = join({ loadMs: 100 });
      await isThere('fake');
      for (const version of [1, 2]) {
        await controller.rollouter.updateWeights(version);
        await controller.rollouter.start([
          { number: version, step: 7, problem: { id: 'p', messages: [{ role: 'user', content: '' }], answer: '' } },
        ]);
        await until(() => worker.started).toContain(`7.${version}`);
      }
      // A worker whose heartbeat is late can get a group a second time, so take the first start.
      const drawnBy = [1, 2].map((version) => worker.drawnBy[worker.started.indexOf(`7.${version}`)]);
      expect(drawnBy).toEqual([1, 2]);
    });

    test('in a room that verifies, a group is generated by the weights of its prompt from its first token to its last', async () => {
      const gate = gated();
      await open(fresh(), { verifies: true, ackWaitMs: NEVER_MS });
      const taken: number[][] = [];
      const worker: FakeWorker = join({
        generate: async ({ uid, n, weights }, _, put) => {
          taken.push([weights.version, worker.versions.at(-1)!]);
          await gate.opened;
          taken.push([weights.version, worker.versions.at(-1)!]);
          for (let s = 0; s < n; s++) await put(madeUp(uid, s));
        },
      });
      await controller.rollouter.start([groupOf(0)]);
      await until(() => taken.length).toBe(1);
      await controller.rollouter.updateWeights(1);
      await controller.rollouter.start([groupOf(1)]);
      const held = () =>
        [...controller.host.workers.keys()].map((id) => controller.host.leases.heldBy(id, controller.clock.ms));
      await until(held).toEqual([2]);
      gate.open();
      await until(() => taken).toEqual([
        [0, 0],
        [0, 0],
        [1, 1],
        [1, 1],
      ]);
      await until(() => named('fake')!.accepted).toBe(8);
    });

    test('in a room that verifies, weights that could not be read are read again for the next group', async () => {
      await open(fresh(), { verifies: true });
      const { leases, weights, ackWaitMs } = controller.host;
      const take = vi.spyOn(leases, 'take');
      const given = () => take.mock.results.filter(({ value }) => value !== undefined).length;
      const worker = join({ groupsAtOnce: 1 });
      await isThere('fake');
      await controller.rollouter.updateWeights(1);
      await weights.put('v1', Uint8Array.of(9)); // the prompt names another file
      await controller.rollouter.start([groupOf(0)]);
      await until(given).toBeGreaterThan(0);
      controller.clock.ms += ackWaitMs + 1;
      await until(given).toBeGreaterThan(1); // the worker has skipped the group
      await weights.put('v1', Uint8Array.of(1, 2, 3));
      await until(() => worker.generated).toEqual(['1.0']);
      expect(worker.versions).toEqual([0, 1]);
    });

    test('a group that gets too old is offered again, and samples by its older weights are dropped', async () => {
      const gates = [gated(), gated()];
      await open(fresh(), { maxAge: 0, ackWaitMs: NEVER_MS });
      const taken: [string, number][] = [];
      join({
        generate: async ({ uid, n, weights }, _, put) => {
          taken.push([uid, weights.version]);
          await gates[taken.length - 1].opened;
          for (let s = 0; s < n; s++) await put(madeUp(uid, s));
        },
      });
      await controller.rollouter.start([groupOf(0)]);
      await until(() => taken).toEqual([['1.0', 0]]);
      await controller.rollouter.updateWeights(1);
      await until(() => taken.at(1)).toEqual(['1.0', 1]);
      gates[0].open();
      await until(() => named('fake')!.duplicates).toBe(4);
      expect(named('fake')).toMatchObject({ accepted: 0, rejected: {}, leftOut: false });
      gates[1].open();
      expect(await controller.queue.takeGroup(4)).toHaveLength(4);
    });

    test('groups that two workers generate are compared; a difference that no near token explains rejects both', async () => {
      let [near, turn, checks] = [0, 0, 0];
      let gate = gated();
      const check = (record: ExperienceRecord) => {
        checks++;
        return { ...record, tags: { ...record.tags, near } };
      };
      await open(fresh(), { secondShare: 1, check, ackWaitMs: NEVER_MS });
      // The second worker of a group waits for `gate`, and then sends other tokens than the first worker if `differs`.
      let differs = false;
      let both = gated();
      const generate: RoomEngine['generate'] = async ({ uid, n }, _, put) => {
        const isSecond = turn++ % 2 === 1;
        const { opened } = gate;
        // The first worker sends nothing before the second one has the group, because a complete group is given to no other worker.
        if (!isSecond) await both.opened;
        else {
          both.open();
          both = gated();
          await opened;
        }
        for (let s = 0; s < n; s++) {
          const { columns, ...record } = madeUp(uid, s);
          const response = new Uint32Array(8).fill(isSecond && differs ? s + 9 : s);
          await put({ ...record, columns: { ...columns, response } });
        }
      };
      for (const name of ['a', 'b']) join({ name, groupsAtOnce: 1, generate });
      const { rollouter, queue } = controller;
      const counts = () => ['same', 'near', 'differ'].map((name) => rollouter.metrics()[`room/second/${name}`]);

      await rollouter.start([groupOf(0)]);
      await until(() => turn).toBe(2);
      await until(() => checks).toBe(4);
      expect([queue.keys.length, counts()]).toEqual([0, [0, 0, 0]]); // it waits for the second worker
      gate.open();
      expect(await queue.takeGroup(4)).toHaveLength(4);
      expect(counts()).toEqual([4, 0, 0]);

      [differs, near, gate] = [true, 1, gated()];
      await rollouter.start([groupOf(1)]);
      await until(() => turn).toBe(4);
      await until(() => checks).toBe(12);
      gate.open();
      expect(await queue.takeGroup(4)).toHaveLength(4);
      expect(counts()).toEqual([4, 4, 0]);

      [near, gate] = [0, gated()];
      await rollouter.start([groupOf(2)]);
      await until(() => turn).toBe(6);
      await until(() => checks).toBe(20);
      gate.open();
      await until(() => counts()[2]).toBeGreaterThan(0);
      differs = false;
      expect(await queue.takeGroup(4)).toHaveLength(4);
      for (const name of ['a', 'b'])
        expect(named(name)).toMatchObject({ leftOut: false, rejected: { disagreement: anyNumber } });
    });

    test("a second worker's sample that arrives while the first is being checked is compared, too", async () => {
      const gate = gated();
      const check = async () => void (await gate.opened);
      await open(fresh(), { secondShare: 1, check, ackWaitMs: NEVER_MS });
      const weightsOf = vi.spyOn(controller.host.tickets, 'weightsOf'); // called once for each sample that arrives
      const both = gated();
      let taken = 0;
      const generate: RoomEngine['generate'] = async ({ uid, n }, _, put) => {
        if (++taken === 2) both.open();
        await both.opened;
        for (let s = 0; s < n; s++) await put(madeUp(uid, s));
      };
      for (const name of ['a', 'b']) join({ name, groupsAtOnce: 1, generate });
      await controller.rollouter.start([groupOf(0)]);
      await until(() => weightsOf.mock.calls.length).toBe(8);
      gate.open();
      expect(await controller.queue.takeGroup(4)).toHaveLength(4);
      expect(controller.rollouter.metrics()['room/second/same']).toBe(4);
    });

    test('a worker that missed the notice does not keep other weights of the same version', async () => {
      const worker = join();
      for (const weights of [7, 8]) {
        const own = await Controller.open(room, fresh(), { weights });
        if (weights === 8) own.host.notify = () => {};
        await own.rollouter.updateWeights(3);
        await own.rollouter.start([groupOf(weights)]);
        askAgain(); // the controller before did not answer the last request
        await until(() => worker.generated).toContain(`1.${weights}`);
        expect(worker.files.at(-1)).toBe(weights);
        if (weights === 7) await own.close();
        else controller = own;
      }
      expect(worker.versions).toEqual([3, 3]);
    });

    test('groups of a worker that leaves go to others immediately', async () => {
      const saved = fresh();
      const own = await open(saved, { ackWaitMs: NEVER_MS });
      const leaving = join({ name: 'leaving', ms: 1e6 });
      const training = own.train(2);
      await until(() => leaving.started.length).toBe(2);
      leaving.leave();
      expect(await leaving.ended).toMatchObject({ name: 'leaving', groups: [] });
      join({ name: 'quick' });
      await training;
      expect(saved.trained.sort()).toEqual(groups(2));
    });

    test('groups of a dead worker go to others after the time limit', async () => {
      const saved = fresh();
      const own = await open(saved);
      const dying = join({ name: 'dying', ms: 1e6 });
      const training = own.train(2);
      await until(() => dying.started.length).toBe(2);
      await dying.kill();
      own.clock.ms += own.host.ackWaitMs + 1;
      join({ name: 'quick' });
      await training;
      expect(saved.trained.sort()).toEqual(groups(2));
    });

    test('after kills of workers, controller and server, each group is trained once', async () => {
      const [count, every] = isFull ? [1000, 20] : [8, 2];
      const saved = fresh();
      // The queue takes about 40 of the 48 samples that can be in flight. With fewer than 38, the queue might contain no two complete
      // groups.
      const [maxSampleBytes, maxBytes] = [MIB, 12_000];
      // A machine that finds no server, or whose server admits no worker for now, tries again.
      const live = new Set<FakeWorker>();
      let isOver = false;
      const enter = () => {
        const worker = join();
        live.add(worker);
        void worker.ended.then(() => {
          live.delete(worker);
          if (!isOver) enter(); // also after the last kill: the groups below need a worker
        });
      };
      const kinds = ['worker', 'server', 'controller'] as const;
      const kills = { worker: 0, controller: 0, server: 0 };
      const most = { queued: 0, stored: 0 };
      const heaps: number[] = [];
      let restarted = Promise.resolve();
      const onTrained = async (trained: number) => {
        most.queued = Math.max(most.queued, current.queue.bytes);
        if (trained % every > 0 || trained === count) return;
        await restarted; // training continues while the server restarts
        const kill = trained / every - 1;
        const kind = kinds[kill % kinds.length];
        kills[kind]++;
        if (kind === 'server') restarted = room.crash().then(askAgain);
        else if (kind === 'controller') await current.kill();
        else await [...live][Math.floor(Math.random() * live.size)]?.kill();
        askAgain(); // the killed process takes pending requests with it
        if (isFull && kill % 4 === 3) heaps.push(heap());
      };
      const controllerOptions = { ahead: 12, ackWaitMs: 1000, maxSampleBytes, maxBytes, onTrained };
      // A NATS server that was just restarted can miss the first connection. As an operator would, start the controller again.
      const reopen = (): Promise<Controller> =>
        open(saved, controllerOptions).catch((error: Error) => {
          if (!error.message.startsWith('No room answers')) throw error;
          return reopen();
        });
      let current = await reopen();
      for (let i = 0; i < 3; i++) enter();
      // A crash of the server loses pending requests. They are repeated if ten responses of the server in a row show no progress.
      // Responses are counted instead of seconds, because a busy machine delays responses and requests alike.
      const watching = async () => {
        for (let before = '', unchanged = 0; !isOver; await sleep(50)) {
          const info = await current.host.jsm.streams.info(SAMPLES.stream).catch(() => undefined);
          if (!info) continue;
          most.stored = Math.max(most.stored, info.state.bytes);
          const progress = `${info.state.last_seq} ${saved.trained.length}`;
          unchanged = progress === before ? unchanged + 1 : 0;
          if (unchanged % 10 === 9) askAgain();
          before = progress;
        }
      };
      const started = performance.now();
      const late = setTimeout(() => void current.describe().then(console.error), KILLS_MS - 10_000);
      const watched = watching();
      while (saved.trained.length < count)
        await current.train(count).catch(async (error: Error) => {
          if (!current.isKilled) throw error;
          current = await reopen();
        });
      clearTimeout(late);
      expect([...saved.trained].sort()).toEqual(groups(count));
      expect(Math.min(...Object.values(kills))).toBeGreaterThan(0);
      expect(most.queued).toBeLessThanOrEqual(maxBytes);
      expect(most.stored).toBeLessThanOrEqual(maxSampleBytes);
      const { streams } = current.host.jsm;
      await current.train(count + 2); // the messages of new groups show that groups of a killed controller have ended
      await until(async () => (await streams.info(SAMPLES.stream)).state.messages).toBe(0);
      isOver = true;
      await watched;
      if (!isFull) return;
      const seconds = Math.round((performance.now() - started) / 1000);
      console.log(JSON.stringify({ count, seconds, kills, most, heapMiB: heaps.map((bytes) => bytes / MIB) }));
      // Compare the heap in the last quarter with the second one. The first quarter includes objects that are loaded once.
      const quarter = Math.floor(heaps.length / 4);
      expect(Math.min(...heaps.slice(-quarter)) - Math.min(...heaps.slice(quarter, 2 * quarter))).toBeLessThan(8 * MIB);
    });

    test('the rest of a group that an earlier controller trained is dropped once later groups start', async () => {
      const saved = { trained: ['1.1'], begun: 2 };
      const { host, rollouter } = await open(saved);
      await rollouter.start([groupOf(0)]);
      const left = async () => (await host.jsm.streams.info(SAMPLES.stream)).state.messages;
      const gone = await newUserKey();
      const sample = writeSample(madeUp('1.1', 0), await host.tickets.give('1.1', host.published));
      await host.js.publish(SAMPLES.subjectOf(gone.id, '1.1'), await (await Signer.of(gone.seed)).bytes(sample));
      await sleep(300);
      expect(await left()).toBe(1); // an older checkpoint can start that group again
      join();
      await controller.train(4);
      await until(left).toBe(0);
      expect(saved.trained.sort()).toEqual(groups(4));
    });

    test('limits hold while the trainer is stopped, and the room continues afterwards', async () => {
      const saved = fresh();
      // With these limits, the queue and the samples in flight hold fewer than 15 of the 20 groups.
      const [maxSampleBytes, maxBytes] = [40_000, 20_000];
      await open(saved, { ahead: 20, n: 2, batch: 1, maxSampleBytes, maxBytes });
      join({ tokens: 500, ms: 1 });
      let release!: () => void;
      const { queue, host } = controller;
      const takeGroup = queue.takeGroup.bind(queue);
      const held = new Promise<void>((resolve) => (release = resolve));
      queue.takeGroup = async (...args) => (await held, takeGroup(...args));
      const training = controller.train(20);
      await until(() => queue.bytes).toBeGreaterThan(maxBytes - 5000);
      const state = async () => (await host.jsm.streams.info(SAMPLES.stream)).state;
      await until(async () => {
        const { bytes, messages } = await state();
        return bytes + bytes / messages; // with one more sample
      }).toBeGreaterThan(maxSampleBytes);
      expect(queue.bytes).toBeLessThanOrEqual(maxBytes);
      expect((await state()).bytes).toBeLessThanOrEqual(maxSampleBytes);
      release();
      await training;
      expect(saved.trained.sort()).toEqual(groups(20));
    });

    test('a worker that forges is counted and excluded, and its groups go to others', async () => {
      const saved = fresh();
      await open(saved);
      const forger = join({
        name: 'forger',
        generate: async ({ uid, n }, _, put) => {
          for (let s = 0; s < n; s++) {
            const { columns, ...record } = madeUp(uid, s);
            await put({ ...record, columns: { ...columns, sample: 'forged' } });
          }
        },
      });
      const training = controller.train(6);
      expect(String(await forger.ended)).toContain('has excluded this worker');
      join({ name: 'honest' });
      await training;
      expect(saved.trained.sort()).toEqual(groups(6));
      expect(named('forger')).toMatchObject({
        leftOut: true,
        accepted: 0,
        rejected: { tokens: anyNumber },
      });
      expect(named('honest')).toMatchObject({ leftOut: false, accepted: 24, rejected: {} });
    });

    test('a controller whose connection is closed for good ends its training with an error', async () => {
      await open(fresh());
      const training = controller.train(2);
      await until(() => controller.saved.begun).toBe(2);
      await Promise.all([
        expect(training).rejects.toThrow("The room's server no longer accepts this machine"),
        controller.host.connection.close(),
      ]);
    });

    test('a connection is closed after two refusals in a row, not after late answers of a busy server', async () => {
      const error = (message: string) => ({
        type: 'error',
        error: Object.assign(new Error(message), { name: 'AuthorizationError' }),
      });
      const [late, refused] = [error('authentication timeout'), error('Authorization Violation')];
      const closed = async (...statuses: object[]) => {
        const close = vi.fn();
        await new Promise<void>((end) => {
          const status = async function* () {
            yield* statuses;
            end();
          };
          const connect = () => Promise.resolve({ status, close } as unknown as NatsConnection);
          void enter(connect, { address: room.address, code: room.code, inbox: 'join', name: 'any' });
        });
        return close.mock.calls.length;
      };
      await open(fresh());
      expect(await closed(late, late, late, refused, late, { type: 'reconnect' }, refused)).toBe(0);
      expect(await closed(refused, late, refused)).toBe(1);
    });

    test('without the code nobody joins', async () => {
      await open(fresh());
      const { address } = room;
      const code = (await newUserKey()).seed;
      // A letter in the middle is changed. In the last letter, some bits are unused, so a change may have no effect.
      const mistyped = room.code.slice(0, 20) + (room.code[20] === 'A' ? 'B' : 'A') + room.code.slice(21);
      const wrong = [code, 'user:password', ':', mistyped];
      await Promise.all(
        wrong.map((text) =>
          expect(enter(connectByTcp, { address, code: text, inbox: 'join', name: 'nobody' }), text).rejects.toThrow(
            /join code/,
          ),
        ),
      );
      // The error of a server that is too busy to check the credentials in time.
      const late = Object.assign(new Error('authentication timeout'), { name: 'AuthorizationError' });
      await expect(enter(() => Promise.reject(late), { address, code, inbox: 'join', name: 'late' })).rejects.toThrow(
        `No room answers at ${address} (authentication timeout)`,
      );
      await expect(connectByTcp({ servers: address })).rejects.toThrow(/authorization/i);
      expect(controller.host.workers.size).toBe(0);
    });
  });

  describe("to a client with a worker's credentials", () => {
    let worker: NatsConnection;
    let id: string;
    let signer: Signer;
    beforeAll(async () => {
      start();
      await open(fresh(), { ackWaitMs: NEVER_MS });
      const key = await newUserKey();
      id = key.id;
      signer = await Signer.of(key.seed);
      worker = await enter(connectByTcp, { address: room.address, code: room.code, inbox: id, name: 'evil' });
      const none = Array.from({ length: 3 }, (_, i) => i + 100);
      await controller.rollouter.start(none.map((number) => groupLike(number)));
    });
    afterAll(async () => {
      await worker.close();
      await end();
    });
    const groupLike = (number: number) => ({
      ...{ number, step: 1 },
      problem: { id: 'p', messages: [{ role: 'user' as const, content: 'secret' }], answer: '' },
    });
    const asked = async (subject: string, body: unknown = '') =>
      worker.request(subject, typeof body === 'string' ? body : JSON.stringify(body), { timeout: HANG_MS / 2 });

    test.each([
      ['delete a stream', '$JS.API.STREAM.DELETE.webgrpo-samples', ''],
      ['purge a stream', '$JS.API.STREAM.PURGE.webgrpo-samples', ''],
      ['read samples of others', '$JS.API.DIRECT.GET.webgrpo-samples', { seq: 1 }],
      [
        'make a consumer of its own',
        '$JS.API.CONSUMER.DURABLE.CREATE.webgrpo-samples.mine',
        { stream_name: 'webgrpo-samples', config: { durable_name: 'mine', ack_policy: 'none' } },
      ],
      ['take samples from the controller', '$JS.API.CONSUMER.MSG.NEXT.webgrpo-samples.controller', '1'],
      ['publish weights', '$O.webgrpo-weights.C.x', 'weights'],
      ['say what the newest version is', '$KV.webgrpo-state.version', '9'],
      ['read the secret of the tickets', '$JS.API.DIRECT.GET.KV_webgrpo-state.$KV.webgrpo-state.secret', ''],
      ['tell workers of weights', 'webgrpo.notice', '{"v":1,"version":9}'],
      ['acknowledge a message', '$JS.ACK.webgrpo-samples.controller.1.1.1.1.0', '+ACK'],
    ])('the server does not let it %s', async (_, subject, body) => {
      await expect(asked(subject, body)).rejects.toThrow(/permissions violation/i);
    });

    test('the server does not let it listen to the controller', async () => {
      const heard: string[] = [];
      for (const subject of [
        ...['>', 'webgrpo.>', 'webgrpo.take.*', 'webgrpo.status.*', 'webgrpo.sample.*.*', '_INBOX.>'],
        ...['_INBOX-CONTROLLER.>', '$JS.>'],
      ])
        worker.subscribe(subject, { callback: (error) => void heard.push(error ? 'refused' : 'heard') });
      await until(() => heard.length).toBe(8);
      await controller.rollouter.start([groupLike(200)]);
      await sleep(200);
      expect(heard).toEqual(Array(8).fill('refused'));
    });

    test('a reply to an API subject does nothing there', async () => {
      const { messages } = (await controller.host.jsm.streams.info(SAMPLES.stream)).state;
      const request = signer.text(write('take', {}));
      worker.publish(takeSubject(id), request, { reply: `$JS.API.STREAM.PURGE.${SAMPLES.stream}` });
      await worker.flush();
      await until(() => controller.host.leases.heldBy(id, controller.clock.ms)).toBe(1);
      expect((await controller.host.jsm.streams.info(SAMPLES.stream)).state.messages).toBe(messages);
    });

    test('it can neither take groups in the name of another, nor end or keep those of another', async () => {
      const { id: victim, seed: own } = await newUserKey();
      const honest = await Signer.of(own);
      const { leases } = controller.host;
      const counts = () => controller.host.workers.get(victim)?.refused.signature ?? 0;
      worker.publish(takeSubject(victim), signer.text(write('take', {})));
      await until(counts).toBe(1);
      expect(leases.heldBy(victim, controller.clock.ms)).toBe(0);
      const answer = await worker.request(takeSubject(victim), honest.text(write('take', {})), {
        timeout: HANG_MS / 2,
      });
      const { uid } = read('prompt', new TextEncoder().encode(read('given', answer.data).prompt));
      const status = { name: 'x', adapter: '', version: 0, tokens: 0, tokensPerS: 0 };
      for (const [s, more] of [{ groups: [], left: true }, { groups: [uid] }].entries()) {
        worker.publish(`webgrpo.status.${victim}`, signer.text(write('status', { ...status, ...more })));
        await until(counts).toBe(2 + s);
      }
      expect(leases.heldBy(victim, controller.clock.ms)).toBe(1);
    });

    test('an excluded worker is not admitted again', async () => {
      const { id: excluded } = await newUserKey();
      controller.host.leaveOut(excluded, 'it forged');
      const asking = write('joining', { name: 'x', key: excluded });
      const { data } = await worker.request(JOIN, asking, { timeout: HANG_MS / 2 });
      expect(read('admission', data).refused).toBe('This worker was excluded from the room.');
    });

    test('messages that cannot be read, of another version, of groups that are not its own, in the name of others: one refusal each', async () => {
      const subject = `webgrpo.sample.${id}.1%2e100`;
      const { tickets, published } = controller.host;
      const sample = (ticket: string) => writeSample(madeUp('1.100', 0), ticket);
      const text = new TextDecoder('latin1').decode(sample('x'));
      const bytes = (latin1: string) => Uint8Array.from(latin1, (c) => c.charCodeAt(0));
      const raw = (data: Uint8Array, to = subject) => worker.request(to, data, { timeout: HANG_MS / 2 });
      const send = async (data: Uint8Array) => raw(await signer.bytes(data));
      await send(bytes('nonsense'));
      await send(bytes(text.replace(`"v":${VERSION}`, '"v":9')));
      await send(sample('0011223344556677.00'));
      await send(sample(await tickets.give('1.101', published)));
      const counts = (of = id) => controller.host.workers.get(of)?.refused;
      await until(counts).toEqual({ malformed: 1, version: 1, signature: 0, ticket: 2 });
      await send(new Uint8Array(1000));
      await until(counts).toEqual({ malformed: 2, version: 1, signature: 0, ticket: 2 });
      worker.publish(`webgrpo.status.${id}`, signer.text(`{"v":${VERSION},"name":7}`));
      await until(counts).toEqual({ malformed: 3, version: 1, signature: 0, ticket: 2 });
      const good = sample(await tickets.give('1.100', published));
      await raw(good);
      await raw(bytes('x'));
      await until(counts).toEqual({ malformed: 3, version: 1, signature: 2, ticket: 2 });
      const { id: other } = await newUserKey();
      await raw(await signer.bytes(good), `webgrpo.sample.${other}.1%2e100`);
      await until(() => counts(other)).toMatchObject({ signature: 1 });
      expect(controller.host.workers.get(other)).toMatchObject({ accepted: 0, rejected: {}, leftOut: false });
      // The controller deletes a message after it has counted it.
      await until(async () => (await controller.host.jsm.streams.info('webgrpo-samples')).state.messages).toBe(0);
    });

    test('a message of 100 MB is one refusal', async () => {
      expect(() => worker.publish(`webgrpo.status.${id}`, new Uint8Array(100 * 2 ** 20))).toThrow('max_payload');
      const careless = await connectByTcp({
        servers: room.address,
        ...(await authentication(room.code)),
        reconnect: false,
      });
      careless.info!.max_payload = Infinity;
      careless.publish(`webgrpo.status.${id}`, new Uint8Array(100 * 2 ** 20));
      expect(await careless.closed()).toBeInstanceOf(Error);
      await controller.rollouter.updateWeights(1);
    });
  });
});

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { NatsConnection } from '@nats-io/nats-core';
import { MemoryQueue } from '../../src/grpo/queue/memoryQueue.ts';
import type { ExperienceQueue, ExperienceRecord, Tags } from '../../src/grpo/queue/types.ts';
import { NatsQueue } from '../../src/extensions/rooms/natsQueue.ts';
import { hasNatsServer, TestRoom } from '../natsServer.ts';

const record = (key: string, tags: Tags = {}, tokens = 4): ExperienceRecord => ({
  key,
  tags,
  columns: {
    response: Uint32Array.from({ length: tokens }, (_, i) => i),
    logProbs: new Float32Array(tokens).fill(-0.5),
    reward: 1,
  },
});
const keys = (records: { key: string }[]) => records.map(({ key }) => key);
const pending = Symbol('pending');
const settled = <T>(promise: Promise<T>) =>
  Promise.race([promise, new Promise<typeof pending>((resolve) => setTimeout(() => resolve(pending), 5))]);

type Open = (maxBytes?: number) => Promise<ExperienceQueue & { readonly bytes: number }>;

describe('the experience queue in memory', () =>
  checkQueue(async (maxBytes = Infinity) => new MemoryQueue({ maxBytes }), 200));

describe.runIf(hasNatsServer())('the experience queue on a NATS server', () => {
  let room: TestRoom;
  let connection: NatsConnection;
  let opened = 0;
  beforeAll(async () => {
    room = await TestRoom.start();
    connection = await room.connect();
  });
  afterAll(async () => {
    await connection.close();
    await room.end();
  });

  checkQueue((maxBytes) => NatsQueue.open(connection, { name: `queue${opened++}`, maxBytes }), 5);

  test('is there again when it is opened again: records in order, whole, with who had had them', async () => {
    const queue = await NatsQueue.open(connection, { name: 'again' });
    await queue.put('train', [record('a.*_0', { status: 'generated' }), record('b_0'), record('c_0')]);
    await queue.put('validation', [record('v_0')]);
    await queue.put('train', [{ key: 'a.*_0', tags: { status: 'scored' }, columns: { reward: 0.5 } }]);
    await queue.take('train', 2, { consumer: 'trainer' });
    await queue.clear('train', ['b_0']);
    const other = await NatsQueue.open(connection, { name: 'again' });
    expect(await other.save()).toEqual(await queue.save());
    expect(other.bytes).toBe(queue.bytes);
    expect(keys(await other.take('train', 1, { consumer: 'trainer' }))).toEqual(['c_0']);
    await queue.clear('train');
    await queue.clear('validation');
    expect(await (await NatsQueue.open(connection, { name: 'again' })).save()).toEqual([]);
  });
});

/** What every experience queue does. */
function checkQueue(open: Open, numRuns: number): void {
  test('hands out what it was given, without a copy', async () => {
    const queue = await open();
    const given = record('a_0', { status: 'done' });
    await queue.put('train', [given]);
    const [taken] = await queue.take('train', 1, { consumer: 'trainer' });
    expect(taken.columns.response).toBe(given.columns.response);
    expect(taken.tags).toEqual({ status: 'done' });
  });

  test('gives each consumer each record once, the oldest first', async () => {
    const queue = await open();
    await queue.put(
      'train',
      ['a_0', 'a_1', 'b_0'].map((key) => record(key)),
    );
    expect(keys(await queue.take('train', 2, { consumer: 'trainer' }))).toEqual(['a_0', 'a_1']);
    expect(keys(await queue.take('train', 1, { consumer: 'trainer' }))).toEqual(['b_0']);
    expect(keys(await queue.take('train', 3, { consumer: 'judge' }))).toEqual(['a_0', 'a_1', 'b_0']);
    expect(await queue.list('train')).toEqual(
      ['a_0', 'a_1', 'b_0'].map((key) => ({ key, tags: {}, consumedBy: ['trainer', 'judge'] })),
    );
    expect(await settled(queue.take('train', 1, { consumer: 'trainer' }))).toBe(pending);
  });

  test('waits for whole groups, and for the tags that are asked for', async () => {
    const queue = await open();
    const taking = queue.take('train', 1, { consumer: 't', groupSize: 2, where: { version: { atLeast: 3 } } });
    await queue.put('train', [
      record('old_0', { version: 2 }),
      record('old_1', { version: 3 }),
      record('x_0', { version: 3 }),
    ]);
    expect(await settled(taking)).toBe(pending);
    await queue.put('train', [record('x_1', { version: 4 })]);
    expect(keys(await taking)).toEqual(['x_0', 'x_1']);
  });

  test('columns and tags may come later, and be asked for by name', async () => {
    const queue = await open();
    await queue.put('train', [record('a_0', { status: 'generated' })]);
    await queue.put('train', [
      { key: 'a_0', tags: { status: 'scored' }, columns: { advantages: Float32Array.of(1, 2) } },
    ]);
    const [taken] = await queue.take('train', 1, {
      ...{ consumer: 't', where: { status: 'scored' }, columns: ['advantages', 'reward', 'none'] },
    });
    expect(taken.columns).toEqual({ advantages: Float32Array.of(1, 2), reward: 1 });
    await expect(queue.get('train', ['a_0', 'a_1'])).rejects.toThrow(
      'The partition "train" of the experience queue has no record "a_1".',
    );
  });

  test('partitions do not see each other', async () => {
    const queue = await open();
    await queue.put('validation', [record('a_0')]);
    expect(await queue.list('train')).toEqual([]);
    await queue.clear('train');
    expect(await queue.list('validation')).toHaveLength(1);
  });

  test('holds back who puts more than it may hold, until there is room', async () => {
    const queue = await open(200);
    await queue.put('train', [record('a_0')]);
    const second = queue.put('train', [record('b_0', {}, 12)]);
    expect(await settled(second)).toBe(pending);
    expect(queue.bytes).toBeLessThanOrEqual(200);
    await queue.clear('train', ['a_0']);
    await second;
    expect(keys(await queue.list('train'))).toEqual(['b_0']);
    await expect(queue.put('train', [record('c_0', {}, 1000)])).rejects.toThrow('may hold 200 bytes, and was given');
    await queue.clear('train');
    expect(queue.bytes).toBe(0);
  });

  test('who waits can leave, and is told when it closes', async () => {
    const queue = await open(200);
    const leaving = new AbortController();
    const taking = queue.take('train', 1, { consumer: 'a', signal: leaving.signal });
    const other = queue.take('train', 1, { consumer: 'b' });
    leaving.abort(new Error('gone'));
    await expect(taking).rejects.toThrow('gone');
    await queue.put('train', [record('a_0')]);
    expect(keys(await other)).toEqual(['a_0']);
    const late = queue.take('train', 1, { consumer: 'b' });
    await queue.close();
    await expect(late).rejects.toThrow('The experience queue was closed.');
    await expect(queue.put('train', [])).rejects.toThrow('was closed');
  });

  test('goes on from a checkpoint with what was there and who had had it', async () => {
    const queue = await open();
    await queue.put('train', [record('a_0', { version: 1 }), record('a_1', { version: 1 })]);
    await queue.take('train', 1, { consumer: 'trainer' });
    const text = JSON.stringify(await queue.save());
    const other = await open();
    await other.restore(JSON.parse(text));
    expect(other.bytes).toBe(queue.bytes);
    const [left] = await other.take('train', 1, { consumer: 'trainer' });
    expect(left).toEqual(record('a_1', { version: 1 }));
    await expect(other.restore(JSON.parse(text.replace('"u32"', '"u64"')))).rejects.toThrow(
      'The saved experience queue cannot be read: 0.records.0.columns.response',
    );
    expect(keys(await other.list('train')), 'what cannot be read changes nothing').toEqual(['a_0', 'a_1']);
  });

  test('whatever is put, taken and cleared: nothing twice, nothing lost, never over its bound', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ n: fc.integer({ min: 1, max: 3 }), take: fc.boolean() }), { maxLength: 30 }),
        async (steps) => {
          const queue = await open(1000);
          const taken: string[] = [];
          const puts: Promise<void>[] = [];
          let made = 0;
          const take = async () => {
            const [one] = await queue.take('train', 1, { consumer: 't' });
            taken.push(one.key);
            await queue.clear('train', [one.key]);
          };
          for (const { n, take: takes } of steps) {
            puts.push(
              queue.put(
                'train',
                Array.from({ length: n }, () => record(`p${made++}_0`)),
              ),
            );
            expect(queue.bytes).toBeLessThanOrEqual(1000);
            if (takes) await take();
          }
          while (taken.length < made) await take();
          await Promise.all(puts);
          expect(taken).toEqual(Array.from({ length: made }, (_, i) => `p${i}_0`));
          expect(queue.bytes).toBe(0);
        },
      ),
      { numRuns },
    ));
}

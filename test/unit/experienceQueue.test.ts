import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ExperienceQueue } from '../../src/extensions/pipelines/experienceQueue.ts';
import type { ExperienceRecord, Tags } from '../../src/grpo/pipeline/record.ts';

const record = (key: string, tags: Tags = {}, tokens = 4): ExperienceRecord => ({
  key,
  tags,
  columns: {
    response: Uint32Array.from({ length: tokens }, (_, i) => i),
    logProbs: new Float32Array(tokens).fill(-0.5),
    reward: 1,
  },
});
const records = (...keys: string[]) => keys.map((key) => record(key));
const keysOf = (taken: ExperienceRecord[]) => taken.map(({ key }) => key);

/** Returns the states of promises after all pending microtasks have run. */
async function settled(...promises: Promise<unknown>[]): Promise<string[]> {
  const states = promises.map(() => 'pending');
  promises.forEach((promise, i) => {
    promise.then(
      () => (states[i] = 'resolved'),
      () => (states[i] = 'rejected'),
    );
  });
  await new Promise((resolve) => setTimeout(resolve, 0));
  return states;
}

test('the queue returns the records that were put, without a copy', async () => {
  const queue = new ExperienceQueue();
  const given = record('a_0', { status: 'scored' });
  await queue.put([given]);
  const [taken] = await queue.takeGroup(1);
  expect(taken.columns['response']).toBe(given.columns['response']);
  expect(taken.tags).toEqual({ status: 'scored' });
});

test('the queue returns the oldest complete group, once', async () => {
  const queue = new ExperienceQueue();
  await queue.put(records('a_0', 'b_0', 'b_1', 'c_1', 'c_0'));
  expect(keysOf(await queue.takeGroup(2))).toEqual(['b_0', 'b_1']);
  expect(queue.keys).toEqual(['a_0', 'c_1', 'c_0']);
  expect(keysOf(await queue.takeGroup(2))).toEqual(['c_1', 'c_0']);
  const [taking, next] = [queue.takeGroup(2), queue.takeGroup(1)];
  expect(await settled(taking, next)).toEqual(['pending', 'resolved']);
  expect(keysOf(await next)).toEqual(['a_0']);
  await queue.put(records('a_0'));
  expect(await settled(taking)).toEqual(['pending']);
  await queue.put(records('a_1'));
  expect(keysOf(await taking)).toEqual(['a_0', 'a_1']);
});

test('puts without space wait, and are served in order', async () => {
  const queue = new ExperienceQueue({ maxBytes: 200 });
  await queue.put([record('a_0')]);
  const [large, small] = [queue.put([record('b_0', {}, 12)]), queue.put([record('c_0', {}, 1)])];
  expect(await settled(large, small)).toEqual(['pending', 'pending']);
  expect(queue.bytes).toBeLessThanOrEqual(200);
  await queue.takeGroup(1);
  await large;
  expect(queue.keys[0]).toBe('b_0');
  await expect(queue.put([record('d_0', {}, 1000)])).rejects.toThrow('can hold 200 bytes, but was given');
  queue.clear();
  await small;
  queue.clear();
  expect(queue.bytes).toBe(0);
});

test('a waiting call rejects when its signal aborts, and immediately if the signal was already aborted', async () => {
  const queue = new ExperienceQueue({ maxBytes: 200 });
  await queue.put([record('a_0')]);
  const leaving = new AbortController();
  const [taking, putting] = [queue.takeGroup(2, leaving.signal), queue.put([record('b_0', {}, 12)], leaving.signal)];
  leaving.abort(new Error('gone'));
  await expect(taking).rejects.toThrow('gone');
  await expect(putting).rejects.toThrow('gone');
  await expect(queue.takeGroup(1, leaving.signal)).rejects.toThrow('gone');
  expect(queue.keys).toEqual(['a_0']);
});

test('resumes from a checkpoint; a state that cannot be read changes nothing', async () => {
  const queue = new ExperienceQueue();
  await queue.put([record('a_0', { version: 1 }), record('b_0', { version: 1 })]);
  await queue.takeGroup(1);
  const text = JSON.stringify(queue.save());
  const other = new ExperienceQueue();
  other.restore(JSON.parse(text));
  expect(other.bytes).toBe(queue.bytes);
  expect(() => other.restore(JSON.parse(text.replace('"u32"', '"u64"')))).toThrow(
    'The saved experience queue cannot be read: 0.records.0.columns.response',
  );
  expect(await other.takeGroup(1)).toEqual([record('b_0', { version: 1 })]);
});

test('for any puts and takes, nothing is returned twice or lost, and the bound is never exceeded', () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ n: fc.integer({ min: 1, max: 3 }), take: fc.boolean() }), { maxLength: 30 }),
      async (steps) => {
        const queue = new ExperienceQueue({ maxBytes: 1000 });
        const taken: string[] = [];
        const puts: Promise<void>[] = [];
        let made = 0;
        const take = async () => taken.push(...keysOf(await queue.takeGroup(1)));
        for (const { n, take: takes } of steps) {
          puts.push(queue.put(Array.from({ length: n }, () => record(`p${made++}_0`))));
          expect(queue.bytes).toBeLessThanOrEqual(1000);
          if (takes) await take();
        }
        while (taken.length < made) await take();
        await Promise.all(puts);
        expect(taken).toEqual(Array.from({ length: made }, (_, i) => `p${i}_0`));
        expect(queue.bytes).toBe(0);
      },
    ),
    { numRuns: 200 },
  ));

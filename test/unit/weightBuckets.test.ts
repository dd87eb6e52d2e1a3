import fc from 'fast-check';
import { expect, test } from 'vitest';
import { bucketCount, bucketParts } from '../../src/model/weights/buckets.ts';
import { streamedWeights } from '../../src/workers/checkpointEngine.ts';

const shapes = fc.array(fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 3 }), {
  minLength: 1,
  maxLength: 6,
});
const sizes = fc.integer({ min: 1, max: 40 }).map((words) => 4 * words);

test('every byte of every tensor is in one bucket, in order', () => {
  fc.assert(
    fc.property(shapes, sizes, (given, bucketBytes) => {
      const tensors = given.map((shape, i) => ({ name: `${i}`, shape }));
      const parts = Array.from({ length: bucketCount(tensors, bucketBytes) }, (_, k) =>
        bucketParts(tensors, bucketBytes, k),
      );
      for (const bucket of parts.slice(0, -1))
        expect(bucket.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(bucketBytes);
      tensors.forEach(({ shape }, i) => {
        let at = 0;
        for (const part of parts.flat().filter(({ tensor }) => tensor === i)) {
          expect(part.offset).toBe(at);
          at += part.bytes;
        }
        expect(at).toBe(4 * shape.reduce((a, b) => a * b, 1));
      });
    }),
  );
});

test('while a bucket is written, the next one is read', async () => {
  const [seen, bucketBytes] = [[] as string[], 8];
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const during = async <T>(what: string, result: T) => {
    seen.push(what);
    await turn();
    seen.push(`${what}.`);
    return result;
  };
  const engine = streamedWeights(
    {
      openSend: () => Promise.resolve([{ name: 'layer', shape: [6] }]),
      sendWeights: (k) => during(`read ${k}`, new ArrayBuffer(bucketBytes)),
    },
    {
      openReceive: () => Promise.resolve(),
      receiveWeights: (k) => during(`write ${k}`, undefined),
      useWeights: (version, count) => during(`use ${version} of ${count}`, undefined),
      dropWeights: () => Promise.resolve(),
    },
    { bucketBytes, content: 'whole' },
  );
  expect(await engine.updateWeights(4)).toMatchObject({ version: 4, bytes: 24 });
  const [reads, writes] = ['read', 'write'].map((kind) => [0, 1, 2].map((k) => `${kind} ${k}`));
  const at = (what: string) => seen.indexOf(what);
  expect(seen.slice(-2)).toEqual(['use 4 of 3', 'use 4 of 3.']);
  for (const k of [0, 1]) {
    expect(at(reads[k + 1])).toBeLessThan(at(`${writes[k]}.`));
    expect(at(`${writes[k]}.`)).toBeLessThan(at(writes[k + 1]));
  }
});

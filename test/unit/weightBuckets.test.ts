/** Weights as buckets for a store: back as they were, and every damage refused in one sentence. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/errors.ts';
import { streamedWeights } from '../../src/workers/checkpointEngine.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import {
  bucketCount,
  bucketParts,
  fromBuckets,
  toBuckets,
  type WeightManifest,
} from '../../src/model/weights/buckets.ts';

const shapes = fc.array(fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 3 }), {
  minLength: 1,
  maxLength: 6,
});
const sizes = fc.integer({ min: 1, max: 40 }).map((words) => 4 * words);

function weightsOf(given: number[][]): TensorMap {
  let value = 0;
  return new Map(
    given.map((shape, i) => {
      const n = shape.reduce((a, b) => a * b, 1);
      return [`layer.${i}`, { shape, data: Float32Array.from({ length: n }, () => Math.fround(Math.sin(++value))) }];
    }),
  );
}

describe('buckets', () => {
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

  test('weights come back as they were, through JSON and through views of larger buffers', async () => {
    await fc.assert(
      fc.asyncProperty(shapes, sizes, async (given, bucketBytes) => {
        const weights = weightsOf(given);
        const { manifest, buckets } = await toBuckets(weights, { version: 5, bucketBytes });
        const shifted = buckets.map((data) => {
          const large = new Uint8Array(data.length + 3);
          large.set(data, 3);
          return large.subarray(3);
        });
        expect(await fromBuckets(JSON.parse(JSON.stringify(manifest)), shifted)).toEqual(weights);
      }),
      { numRuns: 30 },
    );
  });

  test('a bucket of the next version that did not change has the sha256 that it had', async () => {
    const weights = weightsOf([[4, 4], [4]]);
    const before = await toBuckets(weights, { version: 1, bucketBytes: 16 });
    weights.get('layer.1')!.data[0] += 1;
    const after = await toBuckets(weights, { version: 2, bucketBytes: 16 });
    const same = after.manifest.buckets.map(({ sha256 }, k) => sha256 === before.manifest.buckets[k].sha256);
    expect(same).toEqual([true, true, true, true, false]);
  });
});

describe('damage', () => {
  const made = () => toBuckets(weightsOf([[3, 5], [2, 2], [9]]), { version: 12, bucketBytes: 32 });

  test('any byte that is another, any bucket that is missing, twice there or cut', async () => {
    const { manifest, buckets } = await made();
    await fc.assert(
      fc.asyncProperty(
        fc.nat(buckets.length - 1),
        fc.nat(31),
        fc.integer({ min: 1, max: 255 }),
        async (k, at, flip) => {
          const damaged = buckets.map((data) => data.slice());
          damaged[k][at % damaged[k].length] ^= flip;
          await expect(fromBuckets(manifest, damaged)).rejects.toThrow(
            `The weights of version 12 are damaged: the bytes of bucket ${k} are not those that its manifest has the sha256 of. Fetch them again.`,
          );
          await expect(fromBuckets(manifest, buckets.toSpliced(k, 1))).rejects.toThrow(
            'The weights of version 12 are damaged: 3 of 4 buckets are there. Fetch them again.',
          );
          const cut = buckets.map((data, i) => (i === k ? data.slice(0, -1) : data));
          await expect(fromBuckets(manifest, cut)).rejects.toThrow(/bucket \d has \d+ bytes, and \d+ by its manifest/);
          await expect(fromBuckets(manifest, [...buckets, buckets[k]])).rejects.toThrow('5 of 4 buckets are there');
          const swapped = buckets.toSpliced(k, 1, buckets[(k + 1) % 3]);
          if (k !== (k + 1) % 3) await expect(fromBuckets(manifest, swapped)).rejects.toThrow(InputError);
        },
      ),
      { numRuns: 40 },
    );
  });

  test('a manifest that was changed anywhere is refused, or says the same weights by another name or version', async () => {
    const { manifest, buckets } = await made();
    const change = (edit: (m: WeightManifest) => unknown) => {
      const copy = structuredClone(manifest);
      edit(copy);
      return fromBuckets(copy, buckets);
    };
    await expect(change((m) => (m.tensors[0].shape = [4, 5]))).rejects.toThrow(
      'The manifest of weights is damaged: its 4 buckets do not hold the 132 bytes of its tensors. Fetch it again.',
    );
    await expect(change((m) => (m.tensors[0].shape = [2 ** 52, 2 ** 20]))).rejects.toThrow(/do not hold the/);
    await expect(change((m) => (m.tensors[1].name = 'layer.0'))).rejects.toThrow('it names a tensor twice');
    await expect(change((m) => (m.bucketBytes = 6))).rejects.toThrow(
      /^The manifest of weights is damaged: bucketBytes: /,
    );
    await expect(change((m) => (m.version = -1))).rejects.toThrow(/^The manifest of weights is damaged: version: /);
    await expect(change((m) => (m.buckets[1].sha256 = 'x'))).rejects.toThrow(/damaged: buckets.1.sha256: /);
    await expect(change((m) => Object.assign(m, { extra: 1 }))).rejects.toThrow(InputError);
    await fc.assert(
      fc.asyncProperty(fc.jsonValue(), async (other) => {
        await expect(fromBuckets(other, buckets)).rejects.toThrow(
          /^The manifest of weights is damaged: .*\. Fetch it again\.$/s,
        );
      }),
      { numRuns: 50 },
    );
  });

  test('weights that are not finite, though their bytes are right', async () => {
    const weights = weightsOf([[2, 2]]);
    weights.get('layer.0')!.data[3] = NaN;
    const { manifest, buckets } = await toBuckets(weights, { version: 3, bucketBytes: 64 });
    await expect(fromBuckets(manifest, buckets)).rejects.toThrow(/^The weights of version 3.*layer\.0/);
  });
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

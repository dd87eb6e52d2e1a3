/**
 * Weights on their way, in buckets of one size: tensors of 4-byte values laid end to end and cut. From device to device a bucket is
 * bytes alone (`stream.ts`); for a store it comes with a manifest, by which damage is seen.
 */

import * as v from 'valibot';
import { InputError } from '../../errors.ts';
import { expectFinite } from '../checkpoint/open.ts';
import { Sha256 } from '../checkpoint/sha256.ts';
import type { TensorMap } from '../engine.ts';

/** Shape in 4-byte values; two 16-bit floats are one. */
export interface WeightTensor {
  name: string;
  shape: number[];
}

/** Part of a tensor; offset and size in bytes. */
interface BucketPart {
  tensor: number;
  offset: number;
  bytes: number;
}

const bytesOf = ({ shape }: WeightTensor): number => 4 * shape.reduce((a, b) => a * b, 1);
const allBytes = (tensors: readonly WeightTensor[]): number => tensors.reduce((sum, t) => sum + bytesOf(t), 0);

/** @param bucketBytes a multiple of 4 */
export const bucketCount = (tensors: readonly WeightTensor[], bucketBytes: number): number =>
  Math.ceil(allBytes(tensors) / bucketBytes);

/** The parts of tensors in bucket k, in order. */
export function bucketParts(tensors: readonly WeightTensor[], bucketBytes: number, k: number): BucketPart[] {
  const [begin, end] = [k * bucketBytes, (k + 1) * bucketBytes];
  const parts: BucketPart[] = [];
  let at = 0;
  tensors.forEach((tensor, i) => {
    const bytes = bytesOf(tensor);
    const [from, to] = [Math.max(begin, at), Math.min(end, at + bytes)];
    if (from < to) parts.push({ tensor: i, offset: from - at, bytes: to - from });
    at += bytes;
  });
  return parts;
}

/**
 * Description of weights, read before their buckets are fetched. A bucket whose sha256 the reader has from the version before
 * need not be fetched again. Example: 12 values in buckets of 32 bytes:
 *   { version: 3, bucketBytes: 32, tensors: [{ name: 'a', shape: [2, 4] }, { name: 'b', shape: [4] }],
 *     buckets: [{ bytes: 32, sha256: '5f..' }, { bytes: 16, sha256: '90..' }] }
 */
export interface WeightManifest {
  version: number;
  /** Bytes of every bucket except the last, which can have fewer. */
  bucketBytes: number;
  /** In the order in which they lie in the buckets. */
  tensors: WeightTensor[];
  buckets: { bytes: number; sha256: string }[];
}

const whole = (least: number) => v.pipe(v.number(), v.safeInteger(), v.minValue(least));
const MANIFEST = v.strictObject({
  version: whole(0),
  bucketBytes: v.pipe(whole(4), v.multipleOf(4)),
  tensors: v.array(v.strictObject({ name: v.string(), shape: v.array(whole(1)) })),
  buckets: v.array(v.strictObject({ bytes: whole(4), sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)) })),
});

/** Weights as buckets, and what says so; `fromBuckets` is its inverse. Little-endian, as every machine with WebGPU is. */
export async function toBuckets(
  weights: TensorMap,
  { version, bucketBytes }: Pick<WeightManifest, 'version' | 'bucketBytes'>,
): Promise<{ manifest: WeightManifest; buckets: Uint8Array[] }> {
  const tensors = [...weights].map(([name, { shape }]) => ({ name, shape: [...shape] }));
  const sources = [...weights.values()].map(
    ({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  );
  const buckets = Array.from({ length: bucketCount(tensors, bucketBytes) }, (_, k) => {
    const parts = bucketParts(tensors, bucketBytes, k);
    const bucket = new Uint8Array(parts.reduce((sum, { bytes }) => sum + bytes, 0));
    let at = 0;
    for (const { tensor, offset, bytes } of parts) {
      bucket.set(sources[tensor].subarray(offset, offset + bytes), at);
      at += bytes;
    }
    return bucket;
  });
  const described = buckets.map(async (data) => ({ bytes: data.length, sha256: await sha256(data) }));
  return { manifest: { version, bucketBytes, tensors, buckets: await Promise.all(described) }, buckets };
}

/** Throws InputError for a manifest or a bucket that is damaged, missing or too many, and for weights that are not finite. */
export async function fromBuckets(manifest: unknown, buckets: readonly Uint8Array[]): Promise<TensorMap> {
  const { version, bucketBytes, tensors, buckets: described } = readManifest(manifest);
  const fail = (what: string): never => {
    throw new InputError(`The weights of version ${version} are damaged: ${what}. Fetch them again.`);
  };
  if (buckets.length !== described.length) fail(`${buckets.length} of ${described.length} buckets are there`);
  for (const [k, data] of buckets.entries()) {
    const { bytes, sha256: expected } = described[k];
    if (data.length !== bytes) fail(`bucket ${k} has ${data.length} bytes, and ${bytes} by its manifest`);
    if ((await sha256(data)) !== expected)
      fail(`the bytes of bucket ${k} are not those that its manifest has the sha256 of`);
  }
  const weights: TensorMap = new Map(
    tensors.map((tensor) => [tensor.name, { shape: tensor.shape, data: new Float32Array(bytesOf(tensor) / 4) }]),
  );
  const targets = [...weights.values()].map(({ data }) => new Uint8Array(data.buffer));
  for (const [k, data] of buckets.entries()) {
    let at = 0;
    for (const { tensor, offset, bytes } of bucketParts(tensors, bucketBytes, k)) {
      targets[tensor].set(data.subarray(at, at + bytes), offset);
      at += bytes;
    }
  }
  expectFinite(weights, `The weights of version ${version}`);
  return weights;
}

/** Throws InputError for one that cannot be read, or whose tensors do not fill its buckets. */
function readManifest(given: unknown): WeightManifest {
  const fail = (what: string): never => {
    throw new InputError(`The manifest of weights is damaged: ${what}. Fetch it again.`);
  };
  const read = v.safeParse(MANIFEST, given);
  if (!read.success) {
    const [{ message, path = [] }] = read.issues;
    return fail(`${path.map(({ key }) => String(key)).join('.') || 'all of it'}: ${message}`);
  }
  const { tensors, buckets, bucketBytes } = read.output;
  if (new Set(tensors.map(({ name }) => name)).size < tensors.length) fail('it names a tensor twice');
  const total = allBytes(tensors);
  const filled = buckets.every(({ bytes }, k) => bytes === Math.min(bucketBytes, total - k * bucketBytes));
  if (!filled || buckets.length !== bucketCount(tensors, bucketBytes))
    fail(`its ${buckets.length} buckets do not hold the ${total} bytes of its tensors`);
  return read.output;
}

/** Returns the digest, also on a page without a secure context, where crypto.subtle is missing. */
async function sha256(data: Uint8Array): Promise<string> {
  if (!globalThis.crypto?.subtle) return new Sha256().update(data).hex();
  const digest = await crypto.subtle.digest('SHA-256', data as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

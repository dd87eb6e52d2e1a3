/**
 * Splits weights into buckets of equal size for a transfer: all tensors are concatenated as 4-byte values and cut into
 * buckets. `stream.ts` copies buckets from device to device.
 */

/** Shape in 4-byte values; two 16-bit floats count as one value. */
export interface WeightTensor {
  name: string;
  shape: number[];
}

/** Part of a tensor that is in one bucket; offset and size are in bytes. */
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

/** Returns the parts of tensors in bucket k, in order. */
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

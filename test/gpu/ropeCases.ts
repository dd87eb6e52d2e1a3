/** Inputs of the kernels for rotary embeddings. */
import type { RopeTables } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';

/** Returns a table of random angles: [P, D] as the kernels read it, and split as the reference reads it. */
export function randomRope(P: number, D: number, seed: number): { table: Float32Array; tables: RopeTables } {
  const r = rng(seed);
  const half = D / 2;
  const table = new Float32Array(P * D);
  const [cos, sin] = [new Float64Array(P * half), new Float64Array(P * half)];
  for (let i = 0; i < P * half; i++) {
    const angle = 2 * Math.PI * r.uniform();
    const at = Math.floor(i / half) * D + (i % half);
    table.set([Math.cos(angle)], at);
    table.set([Math.sin(angle)], at + half);
    [cos[i], sin[i]] = [table[at], table[at + half]];
  }
  return { table, tables: { cos, sin } };
}

/** Splits [N, sum of heads * D] into one [N, heads * D] for each entry of `heads`. */
export function splitHeads(x: ArrayLike<number>, heads: number[], N: number, D: number): Float64Array[] {
  const width = heads.reduce((a, b) => a + b, 0) * D;
  let at = 0;
  return heads.map((count) => {
    const [first, size] = [at, count * D];
    at += size;
    return Float64Array.from({ length: N * size }, (_, i) => x[Math.floor(i / size) * width + first + (i % size)]);
  });
}

/** The inverse of splitHeads. */
export function joinHeads(parts: Float64Array[], N: number): Float64Array {
  const sizes = parts.map((part) => part.length / N);
  const width = sizes.reduce((a, b) => a + b, 0);
  const out = new Float64Array(N * width);
  for (let n = 0; n < N; n++) {
    let at = n * width;
    parts.forEach((part, p) => {
      out.set(part.subarray(n * sizes[p], (n + 1) * sizes[p]), at);
      at += sizes[p];
    });
  }
  return out;
}

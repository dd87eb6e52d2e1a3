/**
 * Seeded random generator for weights, problems and shuffles: mulberry32, uniform in [0, 1), the same on every machine.
 */
export function mulberry32(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Returns the random number in [0, 1), a multiple of 2^-24, with which kernels/sample.wgsl samples the token at
 * `position` of a context: pcg4d (Jarzynski & Olano 2020) of the sample's key and the position.
 */
export function uniformAt([key0, key1]: readonly [number, number], position: number): number {
  const v = Uint32Array.of(key0, key1, position, 0x9e3779b9).map((x) => Math.imul(x, 1664525) + 1013904223);
  const mix = () => {
    v[0] += Math.imul(v[1], v[3]);
    v[1] += Math.imul(v[2], v[0]);
    v[2] += Math.imul(v[0], v[1]);
    v[3] += Math.imul(v[1], v[2]);
  };
  mix();
  v.forEach((x, i) => (v[i] = x ^ (x >>> 16)));
  mix();
  return (v[0] >>> 8) * 2 ** -24;
}

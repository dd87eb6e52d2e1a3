/**
 * SHA-256 (FIPS 180-4) of data that arrives in parts. crypto.subtle needs the complete data in memory, where weights do
 * not fit.
 */

/**
 * First 32 bits of the fractional parts of the cube roots of the first 64 primes, and of the square roots of the first
 * 8.
 */
const [K, START] = constants();

/** Computes a SHA-256 incrementally. */
export class Sha256 {
  readonly #state = Int32Array.from(START);
  readonly #block = new Uint8Array(64);
  readonly #words = new Int32Array(64);
  #filled = 0;
  #bytes = 0;

  update(data: Uint8Array): this {
    this.#bytes += data.length;
    for (let at = 0; at < data.length;) {
      const count = Math.min(64 - this.#filled, data.length - at);
      this.#block.set(data.subarray(at, at + count), this.#filled);
      at += count;
      this.#filled += count;
      if (this.#filled === 64) this.#compress();
    }
    return this;
  }

  /** Returns the hash as lower-case hexadecimal. No data can be added afterwards. */
  hex(): string {
    const bits = this.#bytes * 8;
    this.#block[this.#filled++] = 0x80;
    if (this.#filled > 56) {
      this.#block.fill(0, this.#filled);
      this.#compress();
    }
    this.#block.fill(0, this.#filled);
    new DataView(this.#block.buffer).setBigUint64(56, BigInt(bits));
    this.#compress();
    return Array.from(this.#state, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
  }

  #compress(): void {
    const w = this.#words;
    const view = new DataView(this.#block.buffer);
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(i * 4);
    for (let i = 16; i < 64; i++) {
      const [x, y] = [w[i - 15], w[i - 2]];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => (this.#state[i] += word));
    this.#filled = 0;
  }
}

function constants(): [Int32Array, Int32Array] {
  const primes: number[] = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p !== 0)) primes.push(n);
  const fraction = (x: number) => ((x - Math.floor(x)) * 2 ** 32) | 0;
  return [
    Int32Array.from(primes, (p) => fraction(Math.cbrt(p))),
    Int32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p))),
  ];
}

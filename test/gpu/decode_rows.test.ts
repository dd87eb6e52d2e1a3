import { expect, test } from 'vitest';
import { decodeRows } from '../../src/gpu/ops/sample.ts';
import { rng } from '../random.ts';
import { poisoned, withGpu } from './gpu.ts';

const POISON = 0xdeadbeef;

test.each([1, 2, 63, 64, 65, 131])('builds the rows of %i live sequences from their slots', (n) =>
  withGpu(async (gpu) => {
    const r = rng(n);
    const random = (most: number) => Math.floor(r.uniform() * most);
    const count = 2 * n + 3;
    // slots: the prompt's first KV row, prompt length, the sequence's first own KV row; state: last token, position of the next token
    const slots = Array.from({ length: count }, () => [random(1000), random(50), random(9000), POISON]);
    const state = slots.map(([, promptLength]) => [random(500), promptLength + 1 + random(30), POISON, POISON]);
    const live = Array.from({ length: n }, (_, i) => [count - 1 - 2 * i, POISON, POISON, POISON]);
    const u32 = (data: number[][]) => gpu.buffer('in', Uint32Array.from(data.flat()));
    const out = (width: number) => gpu.buffer('out', new Uint32Array((n + 67) * width).fill(POISON));
    const outputs = { tokens: out(1), positions: out(1), kvRows: out(1), ranges: out(4) };
    decodeRows(gpu, { live: u32(live), slots: u32(slots), state: u32(state), ...outputs, n });
    const { tokens, positions, kvRows, ranges } = outputs;
    const got = (await gpu.read(tokens, positions, kvRows, ranges)).map((bytes) => [...new Uint32Array(bytes)]);
    const want: number[][] = [[], [], [], []];
    for (const [slot] of live) {
      const [prefix, promptLength, own] = slots[slot];
      const [token, next] = state[slot];
      const generated = next - promptLength; // tokens after the prompt, including the current input
      want[0].push(token);
      want[1].push(next - 1);
      want[2].push(own + generated - 1);
      want[3].push(prefix, prefix + promptLength, own, own + generated);
    }
    want.forEach((rows, i) => {
      const room = new Array<number>(i === 3 ? 268 : 67).fill(POISON);
      expect(got[i]).toEqual([...rows, ...room]);
    });
  }),
);

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    const views = { live: v(8), slots: v(8), state: v(8), tokens: v(2), positions: v(2), kvRows: v(2), ranges: v(7) };
    expect(() => decodeRows(gpu, { ...views, n: 2 })).toThrow(
      'decode_rows ranges [n, 4] needs 8 values (32 bytes) but got a view of 28 bytes of "small".',
    );
  }));

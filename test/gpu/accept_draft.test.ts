import { expect, test } from 'vitest';
import { acceptDraft } from '../../src/gpu/ops/accept_draft.ts';
import { rng } from '../random.ts';
import { poisoned, withGpu } from './gpu.ts';

const POISON = 0xdeadbeef;
const NONE = 0xffffffff;

test.each([1, 63, 64, 65, 131])('rows with a rejected guess are held and later released, %i entries', (n) =>
  withGpu(async (gpu) => {
    const r = rng(n);
    const first = 3;
    const slots = Array.from({ length: n + first }, (_, i) => n + first - 1 - i);
    const guessed = slots.map((_, i) => (i % 4 === 1 ? NONE : i % 5));
    const before = slots.map((_, s) => [s % 5, POISON, POISON, [0, 0, 0, 1, 2, 3][Math.floor(r.uniform() * 6)]]);
    const entries = gpu.buffer('entries', Uint32Array.from(slots.flatMap((s, i) => [s, POISON, guessed[i], POISON])));
    const state = gpu.buffer('state', Uint32Array.from([...before.flat(), POISON, POISON, POISON, POISON]));
    const read = async () => [...new Uint32Array((await gpu.read(state))[0])];
    acceptDraft(gpu, { entries, state, first, n, resume: false });
    const held = structuredClone(before);
    for (let i = first; i < first + n; i++) {
      const row = held[slots[i]];
      if (row[3] === 0 && row[0] !== guessed[i]) row[3] = 3;
    }
    const room = new Array<number>(4).fill(POISON);
    expect(await read()).toEqual([...held.flat(), ...room]);
    acceptDraft(gpu, { entries, state, first, n, resume: true });
    for (let i = first; i < first + n; i++) if (held[slots[i]][3] === 3) held[slots[i]][3] = 0;
    expect(await read()).toEqual([...held.flat(), ...room]);
  }),
);

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const views = { entries: poisoned(gpu, 'small', 7), state: poisoned(gpu, 'state', 8) };
    expect(() => acceptDraft(gpu, { ...views, first: 1, n: 1, resume: false })).toThrow(
      'accept_draft entries [rows, 4] needs 8 values (32 bytes) but got a view of 28 bytes of "small".',
    );
  }));

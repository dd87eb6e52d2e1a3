import { expect, test } from 'vitest';
import { adjustLogits } from '../../src/gpu/ops/adjust_logits.ts';
import { MAX_BIASES } from '../../src/gpu/ops/adjustWidths.ts';
import type { Gpu } from '../../src/gpu/device.ts';
import { rng } from '../random.ts';
import { extrasOf } from './adjustCases.ts';
import { type Adjustments, adjustedLogits } from './adjustReference.ts';
import { expectSame, expectWithin, readRoomy, roomy, SIZES, U } from './check.ts';
import { withGpu } from './gpu.ts';

const NONE = 0xffffffff;
const POISON = 0xdeadbeef;

interface Slot {
  settings: Adjustments;
  promptIds: number[];
  drawnIds: number[];
  stops: number[];
  done?: number;
}

function countsOf(V: number, { promptIds, drawnIds }: Slot): Uint32Array {
  const counts = new Uint32Array(V);
  for (const id of promptIds) counts[id] |= 0x80000000;
  for (const id of drawnIds) counts[id]++;
  return counts;
}

const flat = (rows: Uint32Array[]) => Uint32Array.from(rows.flatMap((row) => [...row]));

/** Runs the kernel for slots 0 .. n - 1. Slot s reads the row of logits `rowOf(s)`. Returns [n, V] and [n, 4]. */
async function run(
  gpu: Gpu,
  logits: Float32Array,
  V: number,
  slots: Slot[],
  rowOf: (slot: number) => number,
  first = 0,
) {
  const n = slots.length - first;
  const adjusted = roomy(gpu, 'adjusted', n * V);
  const entries = gpu.buffer('entries', new Uint32Array(n * 4 + 8).fill(POISON));
  adjustLogits(gpu, {
    logits: gpu.buffer('logits', logits),
    live: gpu.buffer('live', flat(slots.map((_, s) => Uint32Array.of(s, rowOf(s), POISON, POISON)))),
    extras: gpu.buffer('extras', flat(slots.map(({ settings }) => extrasOf(settings)))),
    counts: gpu.buffer('counts', flat(slots.map((slot) => countsOf(V, slot)))),
    stops: gpu.buffer(
      'stops',
      flat(slots.map(({ stops }) => Uint32Array.from({ length: 4 }, (_, i) => stops[i] ?? NONE))),
    ),
    state: gpu.buffer(
      'state',
      flat(slots.map(({ drawnIds, done = 0 }) => Uint32Array.of(POISON, POISON, drawnIds.length, done))),
    ),
    adjusted,
    entries,
    first,
    n,
    V,
  });
  const [words] = await gpu.read(entries);
  return { adjusted: await readRoomy(gpu, adjusted, n * V), entries: new Uint32Array(words) };
}

function randomSlot(V: number, seed: number, settings: Adjustments): Slot {
  const r = rng(seed);
  const ids = (n: number) => Array.from({ length: n }, () => Math.floor(r.uniform() * V));
  return { settings, promptIds: ids(6), drawnIds: ids(5), stops: [V - 1, 0] };
}

const SETTINGS: Adjustments[] = [
  {},
  { repetitionPenalty: 1.3 },
  { repetitionPenalty: 0.7 },
  { presencePenalty: 0.9 },
  { frequencyPenalty: 0.4 },
  { frequencyPenalty: -1.5, presencePenalty: 0.2, repetitionPenalty: 1.1 },
  { minNewTokens: 6 },
  { minNewTokens: 5 },
  { logitBias: [[0, 2.5]], minNewTokens: 6, repetitionPenalty: 2 },
];

test.each(SIZES)('every setting against float64, V=%i', (V) =>
  withGpu(async (gpu) => {
    const slots = SETTINGS.map((settings, s) => randomSlot(V, s + 1, settings));
    const logits = rng(V).normals(3 * V, 3);
    const { adjusted, entries } = await run(gpu, logits, V, slots, (s) => (s * 2) % 3);
    slots.forEach(({ settings, promptIds, drawnIds, stops }, s) => {
      const row = (s * 2) % 3;
      const want = adjustedLogits(logits.subarray(row * V, (row + 1) * V), settings, promptIds, drawnIds, stops);
      // rounding: bias, product, and one subtraction per penalty each round at most once, relative to the values that they combine
      const bound = (i: number) => 8 * U * (Math.abs(want[i]) + 12);
      expectWithin(adjusted.subarray(s * V, (s + 1) * V), want, (i) => (Math.abs(want[i]) > 1e29 ? 1e23 : bound(i)));
      expect([...entries.subarray(s * 4, s * 4 + 4)]).toEqual([s, s, row, 1]);
    });
    expect([...entries.subarray(slots.length * 4)]).toEqual(new Array(8).fill(POISON));
  }),
);

test('neutral settings change no bit', () =>
  withGpu(async (gpu) => {
    const V = 131;
    const logits = rng(5).normals(V, 9);
    const { adjusted } = await run(gpu, logits, V, [randomSlot(V, 3, {})], () => 0);
    expectSame(adjusted, logits);
  }));

test('as many biases as there may be, each on its own token', () =>
  withGpu(async (gpu) => {
    const V = 97;
    const logits = rng(6).normals(V);
    const logitBias = Array.from({ length: MAX_BIASES }, (_, b): [number, number] => [(b * 37) % V, b - 30]);
    const slot = randomSlot(V, 8, { logitBias, repetitionPenalty: 1.5 });
    const { adjusted } = await run(gpu, logits, V, [slot], () => 0);
    const want = adjustedLogits(logits, slot.settings, slot.promptIds, slot.drawnIds);
    expectWithin(adjusted, want, (i) => 8 * U * (Math.abs(want[i]) + 40));
  }));

test('a finished slot is marked; entries before `first` are skipped', () =>
  withGpu(async (gpu) => {
    const V = 7;
    const logits = rng(7).normals(2 * V);
    const slots = [0, 1, 2].map((s) => ({ ...randomSlot(V, s, { presencePenalty: 1 }), done: s === 1 ? 2 : 0 }));
    const { adjusted, entries } = await run(gpu, logits, V, slots, (s) => s % 2, 1);
    expect([...entries.subarray(0, 8)]).toEqual([1, 0, 1, 0, 2, 1, 0, 1]);
    expect(adjusted.subarray(0, V).every(Number.isNaN)).toBe(true);
    const want = adjustedLogits(logits.subarray(0, V), slots[2].settings, slots[2].promptIds, slots[2].drawnIds);
    expectWithin(adjusted.subarray(V, 2 * V), want, (i) => 8 * U * (Math.abs(want[i]) + 12));
  }));

import { expect, test } from 'vitest';
import { packGroups } from '../../src/model/packing.ts';
import type { SequenceGroup } from '../../src/model/packing.ts';

const ids = (...values: number[]) => Uint32Array.from(values);
const mask = (...values: number[]) => Uint8Array.from(values);
const plain = (x: object) =>
  JSON.parse(JSON.stringify(x, (_, v) => (ArrayBuffer.isView(v) ? Array.from(v as Uint32Array) : v)));

/** Tokens: prompt P0 P1 = 10 11; sample A = 20 21; sample B = 30 31 32, where 31 comes from a tool. */
const EXAMPLE: SequenceGroup = {
  prompt: ids(10, 11),
  samples: [
    { tokens: ids(20, 21), mask: mask(1, 1) },
    { tokens: ids(30, 31, 32), mask: mask(1, 0, 1) },
  ],
};

test('the worked example of PackedBatch', () => {
  const [micro, ...rest] = packGroups([EXAMPLE], 100);
  expect(rest).toEqual([]);
  expect(plain(micro)).toEqual({
    batch: {
      tokens: [10, 11, 20, 30, 31],
      positions: [0, 1, 2, 2, 3],
      ranges: [0, 0, 0, 1, 0, 0, 0, 2, 0, 2, 2, 3, 0, 2, 3, 4, 0, 2, 3, 5],
      queryEnd: [5, 5, 3, 5, 5],
      headRows: [1, 2, 4],
      rowStart: [0, 2, 3, 4],
      rowEntries: [0, 2, 1, 3],
      entryRow: [0, 1, 0, 2],
      targets: [20, 21, 30, 32],
      seqStart: [0, 2, 4],
    },
    entryGroup: [0, 0, 0, 0],
    entrySample: [0, 0, 1, 1],
    entryPosition: [0, 1, 0, 2],
  });
});

test('a second group starts after the first and does not see it', () => {
  const second: SequenceGroup = { prompt: ids(7), samples: [{ tokens: ids(8, 9), mask: mask(0, 1) }] };
  const [{ batch }] = packGroups([EXAMPLE, second], 100);
  expect(Array.from(batch.ranges.subarray(20))).toEqual([5, 5, 5, 6, 5, 6, 6, 7]);
  expect(Array.from(batch.queryEnd)).toEqual([5, 5, 3, 5, 5, 7, 7]);
  expect(Array.from(batch.headRows)).toEqual([1, 2, 4, 6]);
});

test('tokens after the last trained one, and samples without trained tokens, need no rows', () => {
  const group: SequenceGroup = {
    prompt: ids(1, 2),
    samples: [
      { tokens: ids(3, 4), mask: mask(0, 0) },
      { tokens: ids(5, 6, 7, 8), mask: mask(1, 1, 0, 0) },
    ],
  };
  const [micro] = packGroups([group], 100);
  expect(Array.from(micro.batch.tokens)).toEqual([1, 2, 5]);
  expect(Array.from(micro.batch.seqStart)).toEqual([0, 2]);
  expect(Array.from(micro.entrySample)).toEqual([1, 1]);
  expect(packGroups([{ prompt: ids(1), samples: [group.samples[0]] }], 100)).toEqual([]);
});

test('a group that fits is not split, at the exact limit and one below', () => {
  const groups = [EXAMPLE, EXAMPLE];
  expect(packGroups(groups, 10).map((m) => m.batch.tokens.length)).toEqual([10]);
  expect(packGroups(groups, 9).map((m) => m.batch.tokens.length)).toEqual([5, 5]);
});

test('a group that does not fit is split, its prompt repeated; every entry appears once', () => {
  const micros = packGroups([EXAMPLE], 4);
  expect(micros.map((m) => Array.from(m.batch.tokens))).toEqual([
    [10, 11, 20],
    [10, 11, 30, 31],
  ]);
  expect(micros.map((m) => Array.from(m.batch.queryEnd))).toEqual([
    [3, 3, 3],
    [4, 4, 4, 4],
  ]);
  expect(micros.flatMap((m) => Array.from(m.entrySample))).toEqual([0, 0, 1, 1]);
});

test('the last sample of a split group shares its micro-batch with the next group', () => {
  const groups = [EXAMPLE, { prompt: ids(7), samples: [{ tokens: ids(8), mask: mask(1) }] }];
  expect(packGroups(groups, 5).map((m) => Array.from(m.batch.tokens))).toEqual([[10, 11, 20, 30, 31], [7]]);
  const longer = { ...EXAMPLE, prompt: ids(9, 10, 11) };
  const split = packGroups([longer, groups[1]], 6).map((m) => Array.from(m.batch.tokens));
  expect(split).toEqual([[9, 10, 11, 20, 30, 31], [7]]);
  const narrow = packGroups([EXAMPLE, groups[1], groups[1]], 4).map((m) => Array.from(m.batch.tokens));
  expect(narrow).toEqual([
    [10, 11, 20],
    [10, 11, 30, 31],
    [7, 7],
  ]);
});

test('what cannot be packed is refused with its numbers', () => {
  expect(() => packGroups([EXAMPLE], 3)).toThrow(
    'Group 0 sample 1 needs 4 rows (prompt 2 + response 2), but maxTokenLen is 3. ' +
      'Raise maxTokenLen or shorten the prompt or response.',
  );
  expect(() => packGroups([{ ...EXAMPLE, prompt: ids() }], 9)).toThrow(
    'Group 0 has an empty prompt. At least one token must precede the first response.',
  );
  expect(() => packGroups([{ prompt: ids(1), samples: [{ tokens: ids(1, 2), mask: mask(1) }] }], 9)).toThrow(
    'Group 0 sample 0 has 2 tokens but a mask of 1.',
  );
});

test('maxSequences limits the samples of a micro-batch and changes only the split', () => {
  const whole = packGroups([EXAMPLE, EXAMPLE], 100);
  const cut = packGroups([EXAMPLE, EXAMPLE], 100, 1);
  expect(cut.length).toBe(4);
  const targets = (micro: typeof cut) => micro.flatMap(({ batch }) => [...batch.targets]);
  expect(targets(cut)).toEqual(targets(whole));
});

import { expect, test } from 'vitest';
import { InputError } from '../../src/errors.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import {
  decodeTensor,
  encodeTensor,
  readSafetensors,
  writeSafetensors,
} from '../../src/model/checkpoint/safetensors.ts';
import { refusalOf } from '../refusal.ts';

/** Returns a safetensors file with any header text and data, for corrupt cases. */
function fileOf(header: string, data: Uint8Array = new Uint8Array(0), claimed?: bigint): Uint8Array {
  const text = new TextEncoder().encode(header);
  const bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, claimed ?? BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(data, 8 + text.length);
  return bytes;
}

const entry = (begin: number, end: number, shape = [(end - begin) / 4], dtype = 'F32') =>
  JSON.stringify({ dtype, shape, data_offsets: [begin, end] });

test('write, then read: same names, order, shapes and bits', () => {
  const tensors = new Map([
    ['b.weight', { shape: [2, 3], data: Float32Array.of(1, -0, 1e-42, 3.4e38, Math.PI, -7) }],
    ['a.bias', { shape: [1], data: Float32Array.of(0.1) }],
    ['empty', { shape: [0, 4], data: new Float32Array(0) }],
  ]);
  const bytes = writeSafetensors(tensors);
  const headerLength = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  expect(headerLength % 8).toBe(0);
  expect(new TextDecoder().decode(bytes.subarray(8, 8 + headerLength))).toContain('"__metadata__":{"format":"pt"}');
  const shifted = new Uint8Array(bytes.length + 1);
  shifted.set(bytes, 1);
  for (const view of [bytes, shifted.subarray(1)]) {
    const read = readSafetensors(view);
    expect([...read.keys()]).toEqual(['b.weight', 'a.bias', 'empty']);
    expect(read).toEqual(tensors);
    expect(Object.is(read.get('b.weight')!.data[1], -0)).toBe(true);
  }
});

test('a header of any length is padded to 8 bytes, and the data begin after its padding', () => {
  for (let letters = 1; letters <= 8; letters++) {
    const tensors: TensorMap = new Map([['w'.repeat(letters), { shape: [2], data: Float32Array.of(1.5, -2) }]]);
    expect(readSafetensors(writeSafetensors(tensors))).toEqual(tensors);
  }
});

test('float16: every one of the 65536 values', () => {
  const halves = Uint16Array.from({ length: 65536 }, (_, i) => i);
  const floats = decodeTensor('F16', new Uint8Array(halves.buffer));
  for (let i = 0; i < 65536; i++) {
    const [exponent, fraction] = [(i >> 10) & 31, i & 1023];
    const sign = i & 0x8000 ? -1 : 1;
    let value = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    if (exponent === 31) value = fraction ? NaN : Infinity;
    if (!Object.is(floats[i], sign * value)) expect.fail(`0x${i.toString(16)} gave ${floats[i]}, not ${sign * value}`);
  }
});

test('bfloat16 is the upper half of float32', () => {
  const halves = Uint16Array.of(0x3f80, 0xbf80, 0x7f80, 0x0001, 0x8000, 0x4049);
  const floats = decodeTensor('BF16', new Uint8Array(halves.buffer));
  expect(Array.from(floats)).toEqual([1, -1, Infinity, 2 ** -133, -0, 3.140625]);
});

const DATA = new Uint8Array(16);
const CORRUPT: [string, Uint8Array, string][] = [
  [
    'shorter than the length field',
    new Uint8Array(7),
    'x.st is truncated: it has 7 bytes, but its header length alone takes 8.',
  ],
  [
    'a header of 4 GB',
    fileOf('{}', DATA, 4_294_967_296n),
    'x.st claims a header of 4294967296 bytes. At most 16777216 are allowed. Is this a safetensors file?',
  ],
  [
    'a header longer than the file',
    fileOf('{}', DATA, 19n),
    'x.st claims a header of 19 bytes, but only 18 follow. The file is truncated or corrupt.',
  ],
  [
    'a header that is not UTF-8',
    fileOf('{}  ', new Uint8Array([0xff]), 5n),
    'x.st has a header that is not UTF-8. The file is corrupt.',
  ],
  ['a header that is an array', fileOf('[]'), 'x.st has a header that is not a JSON object.'],
  [
    'a duplicate',
    fileOf(`{"a":${entry(0, 16)},"\\u0061" :${entry(0, 16)}}`, DATA),
    'x.st lists the tensor "a" twice in its header.',
  ],
  [
    'overlapping offsets',
    fileOf(`{"b":${entry(8, 16)},"a":${entry(0, 12)}}`, DATA),
    'x.st: tensor "b" overlaps "a": it begins at data offset 8, not 12. The file is corrupt.',
  ],
  [
    'a hole',
    fileOf(`{"a":${entry(0, 4)},"b":${entry(8, 16)}}`, DATA),
    'x.st: tensor "b" leaves a hole after "a": it begins at data offset 8, not 4. The file is corrupt.',
  ],
  [
    'truncated data',
    fileOf(`{"a":${entry(0, 20)}}`, DATA),
    `x.st is truncated: its header promises ${8 + `{"a":${entry(0, 20)}}`.length + 20} bytes, but it has ${8 + `{"a":${entry(0, 20)}}`.length + 16}. Download it again.`,
  ],
  [
    'bytes behind',
    fileOf(`{"a":${entry(0, 12)}}`, DATA),
    'x.st has 4 bytes after its last tensor. The file is corrupt.',
  ],
  [
    'a size that does not fit the shape',
    fileOf(`{"a":${entry(0, 16, [5])}}`, DATA),
    'x.st: tensor "a" F32 [5] needs 20 bytes, but its offsets [0, 16] hold 16.',
  ],
  [
    'an unknown dtype',
    fileOf(`{"a":${entry(0, 16, [2], 'I64')}}`, DATA),
    'x.st: tensor "a" has dtype "I64"; supported: F32, F16, BF16.',
  ],
  [
    'a negative size',
    fileOf(`{"a":${entry(0, 16, [-4])}}`, DATA),
    'x.st: tensor "a" has shape [-4], not a list of at most 8 sizes.',
  ],
  [
    'offsets the wrong way round',
    fileOf(`{"a":${entry(16, 0, [4])}}`, DATA),
    'x.st: tensor "a" has data_offsets [16,0], not [begin, end].',
  ],
  ['an entry that is null', fileOf('{"a":null}'), 'x.st: tensor "a" has dtype none; supported: F32, F16, BF16.'],
];

test.each(CORRUPT)('refuses %s', (_, bytes, message) => {
  expect(refusalOf(() => readSafetensors(bytes, 'x.st'))).toBe(message);
});

test('refuses a header that is not JSON', () => {
  expect(() => readSafetensors(fileOf('{"a":'), 'x.st')).toThrow(
    /^x\.st has a header that is not JSON \(.+\)\. Its length/,
  );
});

test('every truncation of a good file is refused', () => {
  const bytes = writeSafetensors(new Map([['a', { shape: [3], data: Float32Array.of(1, 2, 3) }]]));
  for (let n = 0; n < bytes.length; n++) expect(() => readSafetensors(bytes.subarray(0, n))).toThrow(InputError);
});

test('the writer refuses data that does not fill its shape', () => {
  const tensors = new Map([['a', { shape: [2, 2], data: new Float32Array(3) }]]);
  expect(() => writeSafetensors(tensors)).toThrow('Tensor "a" has shape [2, 2] but 3 values.');
});

test.each(['F16', 'BF16'] as const)('%s: rounds to nearest, ties to even, between every two neighbours', (dtype) => {
  const infinite = dtype === 'F16' ? 0x7c00 : 0x7f80;
  const halves = Uint16Array.from({ length: infinite }, (_, i) => i);
  const values = decodeTensor(dtype, new Uint8Array(halves.buffer));
  const encode = (data: Float32Array) => new Uint16Array(encodeTensor(dtype, data, 'w').buffer);
  expect(encode(values)).toEqual(halves);
  expect(encode(values.map((v) => -v))).toEqual(halves.map((half) => half | 0x8000));
  // The midpoint of two neighbouring 16-bit values is itself a float32, except between the smallest bfloat16 values. Encode the midpoint,
  // and the float32 values next to it.
  const middle = values.slice(1).map((v, i) => (v + values[i]) / 2);
  const bits = new Uint32Array(middle.buffer);
  const moved = (by: number) => new Float32Array(bits.map((b) => b + by).buffer);
  const lower = halves.subarray(0, -1);
  expect(encode(moved(-1))).toEqual(lower);
  expect(encode(middle)).toEqual(lower.map((i) => i + (i % 2)));
  expect(encode(moved(1))).toEqual(lower.map((i) => i + 1));
});

test('a value that float16 cannot hold is refused, infinities and NaN are not', () => {
  const odd = Float32Array.of(65519, Infinity, -Infinity, NaN);
  const back = decodeTensor('F16', encodeTensor('F16', odd, 'w'));
  expect([...back]).toEqual([65504, Infinity, -Infinity, NaN]);
  expect(() => encodeTensor('F16', Float32Array.of(1, -70000), 'w')).toThrow(
    'Tensor "w" holds -70000, which F16 cannot hold. Save it as F32.',
  );
});

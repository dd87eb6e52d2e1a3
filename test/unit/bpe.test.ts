import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/errors.ts';
import { trainBpe, trainBpeInPieces } from '../../src/extensions/sft/trainBpe.ts';
import { byteAlphabet } from '../../src/model/tokenizer/vocabulary.ts';

interface Json {
  model: { vocab: Record<string, number>; merges: string[] };
}
const train = (texts: string[], vocabSize: number, maxWords: number) =>
  trainBpe(texts, { vocabSize, maxWords, specialTokens: [{ content: '<eos>', special: true }] }) as unknown as Json;

describe('trainBpe', () => {
  test('merges of the textbook example, by frequency and then code-point order', () => {
    // Merges of the words "low" x 5, "lower" x 2, "newest" x 6, "widest" x 3 (Sennrich et al., section 3.2): es 9, then est 9. Next, "l o"
    // and "o w" both have 7, and "l" sorts first.
    const words = [...Array<string>(5).fill('low'), ...Array<string>(2).fill('lower')];
    const more = [...Array<string>(6).fill('newest'), ...Array<string>(3).fill('widest')];
    const { model } = train([...words, ...more], 257 + 5, 0);
    expect(model.merges).toEqual(['e s', 'es t', 'l o', 'lo w', 'e w']);
  });

  test('whole words come first, by tokens saved, and need no merges', () => {
    const { model } = train(['and', 'and', 'and', 'apples', 'apples', 'once'], 257 + 2, 2);
    expect(model.vocab).toMatchObject({ apples: 257, and: 258 });
    expect(model.merges).toEqual([]);
  });

  test('special tokens in the texts are not learned from; digits never join', () => {
    const { model } = train(['<eos>11 11 11<eos>', '<eos>11'], 300, 20);
    expect(Object.keys(model.vocab).filter((t) => t.includes('eos') && t !== '<eos>')).toEqual([]);
    expect(Object.keys(model.vocab).filter((t) => t.includes('11'))).toEqual([]);
  });

  test('ids are dense, start with the special tokens, and the same every time', () => {
    const first = train(['the cat and the hat', 'the end'], 280, 5);
    expect(Object.values(first.model.vocab).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: Object.keys(first.model.vocab).length }, (_, i) => i),
    );
    expect(first.model.vocab['<eos>']).toBe(0);
    expect(JSON.stringify(first)).toBe(JSON.stringify(train(['the cat and the hat', 'the end'], 280, 5)));
  });

  test('training in pieces gives the same result, and yields after each text and each merge', async () => {
    const texts = ['the cat and the hat', 'the end', 'then a hat ends'];
    const options = { vocabSize: 280, maxWords: 5, specialTokens: [{ content: '<eos>', special: true }] };
    let [turns, ended] = [0, false];
    const count = () => {
      if (ended) return;
      turns++;
      setTimeout(count);
    };
    setTimeout(count);
    const made = (await trainBpeInPieces(texts, options, 0)) as unknown as Json;
    ended = true;
    expect(made).toEqual(trainBpe(texts, options));
    expect(turns).toBeGreaterThanOrEqual(texts.length + made.model.merges.length - 1);
  });

  test('the byte alphabet has 256 distinct printable characters', () => {
    expect(new Set(byteAlphabet()).size).toBe(256);
    expect(byteAlphabet()[32]).toBe('\u0120');
    expect(byteAlphabet().some((c) => /\s/.test(c))).toBe(false);
  });

  test('a vocabulary too small for the bytes is refused', () => {
    expect(() => train([''], 256, 0)).toThrow(
      new InputError('A byte-level vocabulary of 256 is too small: 256 bytes and 1 special tokens need 257.'),
    );
  });
});

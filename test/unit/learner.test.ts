/** Tests the rows of a Learner: valid rows pass unchanged, errors name what is wrong, and calls keep their order. */
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { InputError, NotFiniteError } from '../../src/errors.ts';
import { policyData } from '../../src/extensions/learner/rows.ts';
import { lossSettings } from '../../src/extensions/learner/settings.ts';
import { Turns } from '../../src/extensions/learner/turns.ts';
import { Learner, type TrainRow } from '../../src/extensions/learner/index.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ScriptedEngine } from '../scriptedEngine.ts';
import { tokenizer } from '../scriptedTurns.ts';

const config = resolveTrainConfig({
  name: 'rows',
  model: { path: 'x' },
  data: { maxPromptLength: 8, maxResponseLength: 8 },
});
const limits = { vocabSize: 50, maxPositions: 16 };
const settings = lossSettings(config, 'grpo', {}, 4);
const read = (rows: readonly TrainRow[]) => policyData(rows, limits, settings);

const logProb = fc.double({ min: -30, max: 0, noNaN: true });
/** Generates a row of 2 to 16 tokens with at least one trained token; arrays are plain or typed. */
const rowOf = fc
  .integer({ min: 2, max: 16 })
  .chain((T) =>
    fc.record({
      tokens: fc.array(fc.nat(49), { minLength: T, maxLength: T }),
      mask: fc.array(fc.nat(1), { minLength: T - 1, maxLength: T - 1 }),
      last: fc.integer({ min: 1, max: T - 1 }),
      advantages: fc.array(fc.double({ min: -5, max: 5, noNaN: true }), { minLength: T, maxLength: T }),
      logProbs: fc.array(logProb, { minLength: T, maxLength: T }),
      typed: fc.boolean(),
    }),
  )
  .map(({ tokens, mask, last, advantages, logProbs, typed }) => {
    const marks = [0, ...mask];
    marks[last] = 1;
    return {
      tokens: typed ? Uint32Array.from(tokens) : tokens,
      mask: typed ? Uint8Array.from(marks) : marks,
      advantages,
      logProbs,
    };
  });
const rowsOf = fc.array(rowOf, { minLength: 1, maxLength: 5 });

type Fault = [field: string, spoil: (row: TrainRow, at: number) => object];
const put = (values: ArrayLike<number>, at: number, value: unknown) =>
  Array.from(values, (x, t) => (t === at ? value : x));
const shorter = (values: ArrayLike<number>) => Array.from(values).slice(1);

/** Invalid rows, and the field that the error message names. `at` is the position of a trained token. */
const FAULTS: Fault[] = [
  ...[-1, 50, 1.5, NaN, Infinity, '3', null].map((id): Fault => [
    'tokens',
    (row, at) => ({ tokens: put(row.tokens, at, id) }),
  ]),
  ...['abc', 7, null, undefined, {}].map((tokens): Fault => ['tokens', () => ({ tokens })]),
  ['tokens', () => ({ tokens: [], mask: [], advantages: [], logProbs: [] })],
  ['tokens', () => ({ tokens: new Array<number>(17).fill(1), mask: new Array<number>(17).fill(0) })],
  ['mask', ({ mask }) => ({ mask: shorter(mask) })],
  ['mask', ({ mask }) => ({ mask: put(mask, 0, 1) })],
  ...[2, 0.5, NaN, true, null].map((mark): Fault => ['mask', (row, at) => ({ mask: put(row.mask, at, mark) })]),
  ['mask', () => ({ mask: undefined })],
  ...[NaN, Infinity, -Infinity, 1e39].map((advantages): Fault => ['advantages', () => ({ advantages })]),
  ...[NaN, Infinity, '1', null].map((x): Fault => [
    'advantages',
    (row, at) => ({ advantages: put(row.advantages as number[], at, x) }),
  ]),
  ['advantages', ({ advantages }) => ({ advantages: shorter(advantages as number[]) })],
  ['advantages', () => ({ advantages: undefined })],
  ...[NaN, -Infinity, 0.5, '0'].map((x): Fault => ['logProbs', (row, at) => ({ logProbs: put(row.logProbs!, at, x) })]),
  ['logProbs', ({ logProbs }) => ({ logProbs: shorter(logProbs!) })],
  ['logProbs', () => ({ logProbs: undefined })],
  ['logProbs', () => ({ logProbs: -1 })],
  ['refLogProbs', ({ tokens }) => ({ refLogProbs: put(tokens, 0, 0).map(() => NaN) })],
  ...[0, -1, 1.5, 17, NaN, '1'].map((promptLength): Fault => ['promptLength', () => ({ promptLength })]),
];

describe('rows', () => {
  test('rows pass unchanged, and share a prompt if adjacent rows have the same one', () => {
    fc.assert(
      fc.property(rowsOf, (rows) => {
        const twice = rows.flatMap((row) => [row, row]);
        const { samples, tokens } = read(twice);
        samples.forEach(({ trajectory: { promptIds, responseIds } }, i) => {
          const { tokens: ids, mask, advantages, logProbs } = twice[i];
          expect([...promptIds, ...responseIds]).toEqual(Array.from(ids));
          expect([...promptIds].map(() => 0).concat(...Array.from(tokens.masks[i]))).toEqual(Array.from(mask));
          expect(mask[promptIds.length]).toBe(1);

          Array.from(tokens.masks[i]).forEach((m, t) => {
            expect(tokens.advantages[i][t]).toBe(m ? advantages[promptIds.length + t] : 0);
            expect(tokens.oldLogProbs[i][t]).toBe(m ? logProbs[promptIds.length + t] : 0);
          });
          if (i % 2 === 1) expect(samples[i].group).toBe(samples[i - 1].group);
        });
        const apart = read(twice.map((row, group) => ({ ...row, group })));
        expect(new Set(apart.samples.map(({ group }) => group)).size).toBe(twice.length);
      }),
      { numRuns: 60 },
    );
  });

  test.each(FAULTS.map(([field, spoil], i) => [i, field, spoil] as const))(
    'fault %i: %s is named with its row',
    (_, field, spoil) => {
      fc.assert(
        fc.property(rowsOf, fc.nat(), (rows, seed) => {
          const i = seed % rows.length;
          const at = Array.from(rows[i].mask).indexOf(1);
          const wrong = rows.map((row, r) => (r === i ? { ...row, ...spoil(row, at) } : row));
          let error: unknown;
          try {
            read(wrong);
          } catch (thrown) {
            error = thrown;
          }
          expect(error).toBeInstanceOf(InputError);
          const { message } = error as InputError;
          expect(message).toMatch(new RegExp(`^forwardBackward: row ${i}\\b.*${field}`));
          expect(message).toMatch(/^[^\n]{20,240}\.$/);
        }),
        { numRuns: 10 },
      );
    },
  );

  test.each([[[]], [undefined], ['rows'], [{ length: 1 }]])('%j is no list of rows', (rows) => {
    expect(() => read(rows as unknown as TrainRow[])).toThrow(/^forwardBackward: rows is .*\. Give a list of rows\.$/);
  });

  test('without one trained token there is nothing to train on', () => {
    const row = { tokens: [1, 2], mask: [0, 0], advantages: 1, logProbs: [0, 0] };
    expect(() => read([row])).toThrow('no row has a mask with a 1');
    expect(read([row, { ...row, mask: [0, 1] }]).tokens.masks.map((mask) => mask.length)).toEqual([0, 1]);
  });
});

test('logits are divided by the temperature of the config, of the call, or for cross-entropy by 1', () => {
  const warm = { ...config, rollout: { ...config.rollout, temperature: 0.7 } };
  const used = (loss?: string, options = {}) => lossSettings(warm, loss, options, 4).config.rollout.temperature;
  expect([used(), used('grpo'), used('grpo', { temperature: 2 }), used('cross_entropy')]).toEqual([0.7, 0.7, 2, 1]);
});

test('an update has the rate of its step and the gradClip of the config, unless the call gives them', async () => {
  const engine = new ScriptedEngine({ tokenizer });
  const scheduled = resolveTrainConfig({
    ...{ name: 'rates', model: { path: 'x' }, data: { trainBatchSize: 2 } },
    actor: { ppoMiniBatchSize: 1, optim: { lr: 0.4, lrWarmupSteps: 4 } }, // two updates in each step
  });
  const learner = new Learner({ engine, config: scheduled });
  const optimizerStep = vi.spyOn(engine.model, 'optimizerStep');
  for (const options of [{}, {}, {}, { lr: 0.3, gradClip: 0.25 }]) {
    await learner.forwardBackward([{ tokens: [1, 2], mask: [0, 1] }], 'cross_entropy');
    await learner.optimStep(options);
  }
  expect(optimizerStep.mock.calls.map(([{ lr, gradClip }]) => [lr, gradClip])).toEqual([
    [0.1, 1],
    [0.1, 1],
    [0.2, 1],
    [0.3, 0.25],
  ]);
});

test('weights that are not finite are not saved, and a state is loaded over them', async () => {
  const engine = new ScriptedEngine({ tokenizer });
  const learner = new Learner({ engine, config });
  const start = await learner.saveState();
  const broken = new Map(
    [...start.weights].map(([name, { shape, data }]) => [name, { shape, data: data.map(() => NaN) }]),
  );
  await engine.model.importWeights(broken);
  await expect(learner.saveState()).rejects.toThrow(NotFiniteError);
  await learner.loadState(start);
  expect(await learner.saveState()).toEqual(start);
});

test('calls that run alone wait for all earlier ones, and concurrent calls only for those that run alone', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.boolean(), fc.nat(3), fc.boolean()), { maxLength: 12 }), async (calls) => {
      const turns = new Turns();
      const running = new Set<number>();
      const ended = new Set<number>();
      const all = calls.map(([alone, ticks, fails], i) => {
        const work = async () => {
          const before = calls.flatMap(([other], j) => (j < i && (alone || other) ? [j] : []));
          expect(before.filter((j) => !ended.has(j))).toEqual([]);
          if (alone) expect(running.size).toBe(0);
          running.add(i);
          for (let t = 0; t < ticks; t++) await Promise.resolve();
          running.delete(i);
          ended.add(i);
          if (fails) throw new Error(`${i}`);
          return i;
        };
        return alone ? turns.alone(work) : turns.beside(work);
      });
      const results = await Promise.allSettled(all);
      expect(results.map((r) => (r.status === 'fulfilled' ? r.value : Number((r.reason as Error).message)))).toEqual(
        calls.map((_, i) => i),
      );
      expect(results.map((r) => r.status === 'rejected')).toEqual(calls.map(([, , fails]) => fails));
    }),
  );
});

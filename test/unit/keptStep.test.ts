/** Tests stored steps of a run: they are read back bit for bit, and any other file is refused with one error message. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { decodeStep, encodeStep, settingsHash } from '../../src/extensions/replay/keptStep.ts';
import type { StepInputs } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { readColumns, writeColumns } from '../../src/extensions/replay/columns.ts';
import { stub } from '../stub.ts';
import { refusalBy } from '../refusal.ts';
import { ENDED } from '../samples.ts';

const NAME = { step: 7, run: 'a run', config: 'abc' };
const FILE = 'rollouts/step-7.safetensors';

const float = fc.float({ noDefaultInfinity: true });
const number = fc.double({ noDefaultInfinity: true });
const id = fc.integer({ min: 0, max: 2 ** 17 });
/** JSON values that survive being written and read. -0 and undefined do not. */
const plain = fc.jsonValue({ maxDepth: 2 }).map((value) => JSON.parse(JSON.stringify(value)) as unknown);

const trajectory = fc
  .array(fc.record({ id, m: fc.nat(1), p: float, mass: float, version: fc.nat(3) }), { maxLength: 6 })
  .chain((tokens) =>
    fc
      .record({ prompt: fc.array(id, { minLength: 1, maxLength: 3 }), isCut: fc.boolean() })
      .map(({ prompt, isCut }) => ({
        promptIds: Uint32Array.from(prompt),
        responseIds: Uint32Array.from(tokens, (token) => token.id),
        mask: Uint8Array.from(tokens, ({ m }) => m),
        logProbs: Float32Array.from(tokens, ({ m, p }) => (m ? p : 0)),
        logMass: Float32Array.from(tokens, ({ mass }) => (isCut ? mass : 0)),
        weightVersions: Uint32Array.from(tokens, ({ m, version }) => (m ? version : 0)),
        stopReason: 'completed' as const,
        numTurns: 1,
        numToolCalls: 2,
        numToolErrors: 1,
        numToolOutputs: 3,
        numTruncatedOutputs: 2,
      })),
  );
const reward = fc.record(
  {
    score: number,
    acc: number,
    pred: fc.string(),
    extra: fc.constant({ brief: 0.25, why: 'x', none: NaN }),
    turns: fc.constant([0.5, NaN]),
  },
  { requiredKeys: ['score', 'acc'] },
);
const samples = fc.array(
  fc.record(
    {
      problem: fc.record({
        id: fc.string(),
        messages: fc.constant([{ role: 'user' as const, content: '2 + 2?' }]),
        answer: fc.string(),
        further: plain,
      }),
      group: fc.nat(9),
      messages: fc.constant([{ role: 'assistant' as const, content: '4 \u{1f600}' }]),
      reward,
      trajectory,
      toolRewards: fc.constant({ answer: 1 }),
      fork: fc.constant(true as const),
      prompt: fc.constant([{ role: 'user' as const, content: 'x' }]),
    },
    { requiredKeys: ['problem', 'group', 'messages', 'reward', 'trajectory'] },
  ),
  { minLength: 1, maxLength: 5 },
);

/** Generates advantages and the other parts of a step for these samples. */
const inputsOf = (drawn: readonly Sample[]) => {
  const perToken = fc.tuple(
    ...drawn.map(({ trajectory: { mask } }) =>
      fc.array(float, { minLength: mask.length, maxLength: mask.length }).map((v) => Float64Array.from(v)),
    ),
  );
  const perSample = fc.tuple(
    ...drawn.map(({ trajectory: { mask } }) => float.map((a) => Float64Array.from(mask, (m) => (m ? a : 0)))),
  );
  const extras = fc.record(
    {
      refLogProbs: perToken,
      oldLogProbs: perToken,
      klCoef: fc.constantFrom(0.1, 1e-300),
      baselines: fc.constant(drawn.map((_, s) => (s ? s : NaN))),
    },
    { requiredKeys: [] },
  );
  const isOwnSize = fc.constantFrom({}, { isOwnSize: true as const });
  return fc
    .record({ advantages: fc.oneof(perToken, perSample), extras, isOwnSize })
    .map(({ advantages, extras: all, isOwnSize: size }) => ({
      advantages,
      inputs: stub<StepInputs>({ tokens: { advantages }, extras: all, ...size }),
    }));
};
const step = samples.chain((drawn) =>
  inputsOf(stub<Sample[]>(drawn)).map((inputs) => ({ samples: stub<Sample[]>(drawn), ...inputs })),
);

const singles = (values: readonly ArrayLike<number>[]) => values.map((all) => Float32Array.from(all));

test('a kept step is read back bit for bit', async () => {
  await fc.assert(
    fc.asyncProperty(step, async ({ samples: wrote, advantages, inputs }) => {
      const { samples: read, ...rest } = await decodeStep(Buffer.from(await encodeStep(NAME, wrote, inputs)), FILE);
      expect(read).toEqual(wrote); // fast-check creates objects without a prototype
      const { klCoef, baselines, refLogProbs, oldLogProbs } = inputs.extras;
      expect(rest).toEqual({
        ...NAME,
        advantages: singles(advantages),
        ...(inputs.isOwnSize && { isOwnSize: true }),
        extras: {
          ...(klCoef !== undefined && { klCoef }),
          ...(baselines && { baselines }),
          ...(oldLogProbs && { oldLogProbs: singles(oldLogProbs) }),
          ...(refLogProbs && { refLogProbs: singles(refLogProbs) }),
        },
      });
    }),
    { numRuns: 40 },
  );
});

const plainSample = (score: number): Sample => ({
  problem: { id: 'p', messages: [], answer: '4' },
  group: 0,
  messages: [{ role: 'assistant', content: '4' }],
  reward: { score, acc: score },
  trajectory: {
    promptIds: Uint32Array.of(1, 2),
    responseIds: Uint32Array.of(3, 4, 5),
    mask: Uint8Array.of(1, 0, 1),
    logProbs: Float32Array.of(-0.5, 0, -1),
    logMass: new Float32Array(3),
    weightVersions: Uint32Array.of(6, 0, 6),
    ...ENDED,
  },
});
const two = [plainSample(1), plainSample(0)];
const advantagesOf = (...values: number[]) =>
  stub<StepInputs>({ tokens: { advantages: values.map((a) => [a, 0, a]) }, extras: {} });
const encoded = () => encodeStep(NAME, two, advantagesOf(1, -1));

test('a token takes 7 bytes if its sample has one advantage and one weight version', async () => {
  const longer = (tokens: number) => ({
    ...two[0],
    trajectory: {
      ...two[0].trajectory,
      responseIds: new Uint32Array(tokens),
      mask: new Uint8Array(tokens).fill(1),
      logProbs: new Float32Array(tokens),
      logMass: new Float32Array(tokens),
      weightVersions: new Uint32Array(tokens).fill(6),
    },
  });
  const bytes = async (tokens: number) => {
    const inputs = stub<StepInputs>({
      tokens: { advantages: [new Float64Array(tokens).fill(0.5)] },
      extras: {},
    });
    const { columns } = await readColumns(await encodeStep(NAME, [longer(tokens)], inputs), FILE);
    return [...columns.values()].reduce((sum, { byteLength }) => sum + byteLength, 0);
  };
  expect(((await bytes(1100)) - (await bytes(100))) / 1000).toBe(7);
});

const refusal = (bytes: Uint8Array): Promise<unknown> =>
  decodeStep(bytes, FILE).then(
    () => 'read',
    (error: unknown) => error,
  );

test('a file with any flipped bit or any truncation is refused with one error message', async () => {
  const whole = await encoded();
  const check = async (bytes: Uint8Array) => {
    expect(await refusalBy(decodeStep(bytes, FILE))).toMatch(/^rollouts\/step-7\.safetensors[^\n]*$/);
  };
  for (let bit = 0; bit < whole.length * 8; bit += 29)
    await check(whole.with(bit >> 3, whole[bit >> 3] ^ (1 << (bit & 7))));
  for (let length = 0; length < whole.length; length += 11) await check(whole.slice(0, length));
  await check(Uint8Array.from([...whole, 0]));
  await fc.assert(fc.asyncProperty(fc.uint8Array({ maxLength: 64 }), check), { numRuns: 30 });
});

describe('intact files with other contents', () => {
  const changed = async (edit: (columns: Map<string, unknown>) => void, metadata: object = {}) => {
    const { columns, metadata: given } = await readColumns(await encoded(), FILE);
    edit(columns);
    return refusal(await writeColumns(columns, { ...given, ...metadata }));
  };
  test.each([
    [
      'of another program',
      () => {},
      { format: 'pt' },
      `${FILE} is a safetensors file, but not one of saved rollouts. Give rollouts/step-N.safetensors of a run.`,
    ],
    [
      'of a newer version',
      () => {},
      { version: '2' },
      `${FILE} is of version 2, but this webgrpo reads version 1. Use the webgrpo that wrote it.`,
    ],
    [
      'without a column',
      (c: Map<string, unknown>) => c.delete('group'),
      {},
      `${FILE} is not as webgrpo writes it (it has no "group"). Use another copy of it.`,
    ],
    [
      'with a short column',
      (c: Map<string, unknown>) => c.set('scores', new Float64Array(1)),
      {},
      `${FILE} is not as webgrpo writes it ("scores" has 1 values, not 2). Use another copy of it.`,
    ],
    [
      'with offsets that fall',
      (c: Map<string, unknown>) => c.set('response_offsets', Uint32Array.of(0, 7, 6)),
      {},
      `${FILE} is not as webgrpo writes it (its offsets do not ascend from 0). Use another copy of it.`,
    ],
    [
      'that points nowhere',
      (c: Map<string, unknown>) => c.set('problem_index', Uint32Array.of(0, 9)),
      {},
      `${FILE} is not as webgrpo writes it (it points at item 9 of 2). Use another copy of it.`,
    ],
    [
      'without a step',
      () => {},
      { step: 'x' },
      `${FILE} is not as webgrpo writes it (its step is "x"). Use another copy of it.`,
    ],
  ])('%s', async (_, edit, metadata, message) => {
    expect(((await changed(edit, metadata)) as Error).message).toBe(message);
  });
});

test('a problem that JSON cannot hold ends the run with one error message', async () => {
  const sample = { ...two[0], problem: { ...two[0].problem, big: 1n } };
  await expect(encodeStep(NAME, [sample], advantagesOf(1))).rejects.toThrow(
    /^trainer\.keepRollouts keeps problems and rewards as JSON, which cannot hold those of this step \(.*BigInt.*\)\. Leave such values out, or set it to false\.$/,
  );
});

test('the hash of the settings changes with the settings that affect numbers, and with no others', () => {
  const hash = (more: object) => settingsHash(resolveTrainConfig({ name: 'x', model: { path: 'm' }, ...more }));
  expect(hash({ trainer: { totalTrainingSteps: 9 } })).toBe(hash({}));
  expect(hash({ seed: 2 })).not.toBe(hash({}));
});

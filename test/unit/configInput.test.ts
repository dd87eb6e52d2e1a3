/** What an editor shows of a key is what the schema says, and the interfaces take what the schemas take. */
import { readdirSync } from 'node:fs';
import { format } from 'oxfmt';
import type * as v from 'valibot';
import { expect, test } from 'vitest';
import type { SftConfigInput } from '../../src/grpo/config/input/sft.ts';
import type { TrainConfigInput } from '../../src/grpo/config/input/train.ts';
import type { TRAIN_SCHEMA } from '../../src/grpo/config/schema/index.ts';
import type { SFT_SCHEMA } from '../../src/grpo/config/sftSchema.ts';
import FORMAT from '../../.oxfmtrc.json' with { type: 'json' };
import { printedInputs } from '../printedInputs.ts';

const FOLDER = 'src/grpo/config/input';

test.each([...printedInputs()])(
  'input/%s.ts is what the schemas say (configInput -u prints it again)',
  async (name, text) => {
    const path = `${FOLDER}/${name}.ts`;
    const { code: formatted } = await format(path, text, FORMAT);
    await expect(formatted).toMatchFileSnapshot(`../../${path}`);
    expect(formatted.split('\n').length).toBeLessThanOrEqual(400);
  },
);

test('there is no file of a part that is gone', () => {
  const names = [...printedInputs().keys()].map((name) => `${name}.ts`);
  expect(readdirSync(FOLDER).sort()).toEqual(names.sort());
});

test('a key says reason, range, unit and default', () => {
  expect(printedInputs().get('data')).toContain(
    '/** Everything after the prompt, tool output included. Allowed: integer >= 1 (tokens). Default: 160. */\nmaxResponseLength?: number | undefined;',
  );
});

/** Parts as plain objects to any depth: the schemas infer intersections. */
type Flat<T> = T extends object ? { [K in keyof T]: Flat<T[K]> } : T;
/** True for types that are identical, optional keys included: assignability both ways would not see that one is missing. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type Both<A, B> = [A, B] extends [B, A] ? Same<Flat<A>, Flat<B>> : false;

test('the interfaces are the types that the schemas infer', () => {
  const train: Both<TrainConfigInput, v.InferInput<typeof TRAIN_SCHEMA>> = true;
  const sft: Both<SftConfigInput, v.InferInput<typeof SFT_SCHEMA>> = true;
  // @ts-expect-error: a key is missing
  const missing: Both<Omit<SftConfigInput, 'engine'>, v.InferInput<typeof SFT_SCHEMA>> = true;
  expect([train, sft, missing]).toEqual([true, true, true]);
});

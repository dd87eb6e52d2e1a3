/** Checks whether a sample that came from elsewhere has the form of one. */

import { isObject } from '../../../tasks/toolSchema.ts';
import type { TrainConfig } from '../../../grpo/config/types.ts';
import type { Sample } from '../../../grpo/update/batch.ts';
import { Rejection, type SampleClaim } from './types.ts';

const ARRAYS = {
  promptIds: Uint32Array,
  responseIds: Uint32Array,
  mask: Uint8Array,
  logProbs: Float32Array,
  logMass: Float32Array,
  weightVersions: Uint32Array,
} as const;

/** Throws Rejection: what passes can be read without a look at its types, and is no larger than a sample may be. */
export function expectWellFormed(
  sample: Sample,
  claim: SampleClaim,
  { config, vocabSize }: { config: TrainConfig; vocabSize: number },
): void {
  const expect = (isSo: boolean, what: string) => {
    if (!isSo) throw new Rejection('malformed', what);
  };
  for (const name of ['number', 'step', 's', 'version'] as const)
    expect(Number.isInteger(claim[name]) && claim[name] >= 0, `its ${name} is no count`);
  expect(typeof claim.uid === 'string', 'its uid is no text');
  expect(isObject(sample) && isObject(sample.trajectory), 'it has no trajectory');
  const { trajectory } = sample;
  for (const [name, Numbers] of Object.entries(ARRAYS)) {
    const values = trajectory[name as keyof typeof ARRAYS];
    if (name === 'weightVersions' && values === undefined) continue;
    expect(values instanceof Numbers, `its ${name} are no ${Numbers.name}`);
    if (name === 'promptIds') continue;
    expect(values!.length === trajectory.responseIds.length, `its ${name} are not one a token`);
  }
  const { promptIds, responseIds, mask, logProbs } = trajectory;
  const { maxPromptLength, maxResponseLength } = config.data;
  expect(promptIds.length <= maxPromptLength, `its prompt has ${promptIds.length} tokens`);
  expect(responseIds.length <= maxResponseLength, `it has ${responseIds.length} tokens`);
  for (const ids of [promptIds, responseIds])
    expect(
      ids.every((id) => id < vocabSize),
      `it has a token above ${vocabSize - 1}`,
    );
  expect(
    mask.every((m) => m <= 1),
    'its mask is not of 0 and 1',
  );
  expect(logProbs.every(Number.isFinite), 'a log-prob is no number');
  expect(Array.isArray(sample.messages) && isObject(sample.reward), 'it has no messages or no reward');
}

/** Checks the types and lengths in a sample from another machine. */

import { isObject } from '../../../tasks/toolSchema.ts';
import { findFault, SAMPLE_REQUIRED } from '../../../rollout/tokenLog.ts';
import type { TrainConfig } from '../../../grpo/config/types.ts';
import type { Sample } from '../../../grpo/update/batch.ts';
import { Rejection, type SampleClaim } from './types.ts';

/**
 * Throws Rejection if a field of the sample has the wrong type, or if the sample exceeds the maximum lengths of the config. Later checks
 * can then rely on the types.
 */
export function expectWellFormed(
  sample: Sample,
  claim: SampleClaim,
  { config, vocabSize }: { config: TrainConfig; vocabSize: number },
): void {
  const expect = (isSo: boolean, what: string) => {
    if (!isSo) throw new Rejection('malformed', what);
  };
  for (const name of ['number', 'step', 's', 'version'] as const)
    expect(Number.isInteger(claim[name]) && claim[name] >= 0, `its ${name} is not a count`);
  expect(typeof claim.uid === 'string', 'its uid is not a text');
  expect(isObject(sample) && isObject(sample.trajectory), 'it has no trajectory');
  const { trajectory } = sample;
  const fault = findFault(trajectory, SAMPLE_REQUIRED, vocabSize);
  if (fault) throw new Rejection('malformed', fault.join(' '));
  const { promptIds, responseIds } = trajectory;
  expect(promptIds.length > 0, 'it has no prompt');
  const { maxPromptLength, maxResponseLength } = config.data;
  expect(promptIds.length <= maxPromptLength, `its prompt has ${promptIds.length} tokens`);
  expect(responseIds.length <= maxResponseLength, `it has ${responseIds.length} tokens`);
  expect(Array.isArray(sample.messages) && isObject(sample.reward), 'it has no messages or no reward');
}

/** Decides which sampling settings and configs allow samples to be verified. */

import { InputError } from '../../../errors.ts';
import type { SamplingParams } from '../../../rollout/types.ts';
import type { TrainConfig } from '../../../grpo/config/types.ts';
import { samplingParams } from '../../../grpo/generate/options.ts';

/**
 * Settings with which samples cannot be verified, because they change which token a random number selects, or where a turn ends. The values
 * turn them off.
 */
const OFF = {
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  minNewTokens: 0,
  logitBias: undefined,
  stop: undefined,
  toolCalls: undefined,
  jsonSchema: undefined,
} as const satisfies { [K in keyof SamplingParams]?: unknown };

/** Returns the first setting in OFF that is not off; undefined if the samples can be verified. */
export function uncheckedSetting(sampling: SamplingParams): keyof typeof OFF | undefined {
  const isOff = (key: keyof typeof OFF) => {
    const value = sampling[key];
    return value === undefined || value === OFF[key] || (Array.isArray(value) && value.length === 0);
  };
  return (Object.keys(OFF) as (keyof typeof OFF)[]).find((key) => !isOff(key));
}

/** Throws InputError for a config whose samples could not be verified. */
export function checkVerifiable(config: TrainConfig): void {
  const { rollout, model } = config;
  const { enable, constrainToolCalls, sampleTimeoutS } = rollout.multiTurn;
  /**
   * Throws InputError about a key.
   * @param off the only value with which samples can be verified; undefined = the key must be left out
   */
  const fail = (key: string, value: unknown, why: string, off?: unknown): never => {
    const instead = off === undefined ? 'Leave it out' : `Set it to ${JSON.stringify(off)}`;
    throw new InputError(`${key} is ${JSON.stringify(value)}, but ${why}. ${instead}.`);
  };
  const unchecked = uncheckedSetting(samplingParams(config, []));
  if (unchecked !== undefined) {
    const value = (rollout as unknown as Record<string, unknown>)[unchecked];
    const why = 'only samples at the plain temperature can be verified';
    fail(`rollout.${unchecked}`, value, why, OFF[unchecked]);
  }
  if (enable && constrainToolCalls)
    fail('rollout.multiTurn.constrainToolCalls', true, 'sampled tokens of constrained calls cannot be verified', false);
  if (sampleTimeoutS !== undefined)
    fail('rollout.multiTurn.sampleTimeoutS', sampleTimeoutS, 'an end by the clock cannot be verified');
  if (rollout.checkpointEngine.kvCache === 'keep')
    fail(
      'rollout.checkpointEngine.kvCache',
      'keep',
      'what several versions of the weights have computed cannot be verified',
      'recompute',
    );
  if (model.dtype !== 'float32')
    fail('model.dtype', model.dtype, 'samples of other adapters can be verified only in float32', 'float32');
}

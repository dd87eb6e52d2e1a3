/** Sampling settings that one turn of an agent loop can change. */

import { InputError } from '../../errors.ts';
import type { SamplingParams } from '../types.ts';

const TURN_KEYS = [
  'maxNewTokens',
  'minNewTokens',
  'stop',
  'includeStopStrInOutput',
  'topK',
  'topP',
  'minP',
  'repetitionPenalty',
  'presencePenalty',
  'frequencyPenalty',
  'logitBias',
] as const satisfies readonly (keyof SamplingParams)[];

/**
 * Settings of one turn. They can differ from turn to turn, because the log-prob of each token is that of the full
 * vocabulary at the run's temperature, and the effect of truncation and penalties is recorded separately
 * (Generation.logMass). The temperature must not differ: the trainer divides every logit by the same one.
 */
export type TurnSampling = Partial<Pick<SamplingParams, (typeof TURN_KEYS)[number]>>;

/**
 * Returns the run's sampling with a turn's changes. Throws InputError for a key that a turn must not set, or for a
 * limit that is not a whole number.
 */
export function turnSampling(run: SamplingParams, turn: TurnSampling): SamplingParams {
  const refused = Object.keys(turn).find((key) => !(TURN_KEYS as readonly string[]).includes(key));
  if (refused !== undefined)
    throw new InputError(
      `generate() was given ${refused}; allowed for a turn: ${TURN_KEYS.join(', ')}. ` +
        (refused === 'temperature'
          ? "The temperature is the run's (rollout.temperature): the trainer takes all log-probs at it."
          : "The rest is the run's."),
    );
  for (const [key, least] of [
    ['maxNewTokens', 1],
    ['minNewTokens', 0],
  ] as const) {
    const value = turn[key];
    if (value !== undefined && !(Number.isInteger(value) && value >= least))
      throw new InputError(`generate() was given ${key} ${value}; allowed: integers of at least ${least}.`);
  }
  return { ...run, ...turn, maxNewTokens: Math.min(run.maxNewTokens, turn.maxNewTokens ?? Infinity) };
}

/** What one turn of an agent loop may ask of the sampler, laid over the run's sampling. */

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
 * Settings of one turn. The log-prob of each token is that of the whole vocabulary at the run's temperature, and what cuts
 * and penalties leave of it is recorded beside it (Generation.logMass), so these may differ from turn to turn. The
 * temperature may not: the trainer divides every logit by the same one.
 */
export type TurnSampling = Partial<Pick<SamplingParams, (typeof TURN_KEYS)[number]>>;

/** The run's sampling with a turn's own. Throws InputError for a key that a turn may not set, or a bound that is no count. */
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

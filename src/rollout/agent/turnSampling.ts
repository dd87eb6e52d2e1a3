/** Sampling settings that one turn of an agent loop can change. */

import { describe, InputError } from '../../errors.ts';
import { checkAdjusted } from '../decode/adjustments.ts';
import { checkStopStrings } from '../decode/stopStrings.ts';
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
 * Returns the run's sampling with a turn's changes; a key that is undefined changes nothing. Throws InputError for a key that a turn must
 * not set, or for a value that the engine would refuse.
 */
export function turnSampling(run: SamplingParams, given: TurnSampling, vocabSize: number): SamplingParams {
  const turn: TurnSampling = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
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
    ['topK', 0],
  ] as const) {
    const value = turn[key];
    if (value !== undefined && !(Number.isInteger(value) && value >= least))
      throw new InputError(`generate() was given ${key} ${value}; allowed: integers of at least ${least}.`);
  }
  for (const [key, least] of [
    ['topP', 1e-6],
    ['minP', 0],
  ] as const) {
    const value = turn[key];
    if (value !== undefined && !(value >= least && value <= 1))
      throw new InputError(`generate() was given ${key} ${value}; allowed: ${least} to 1.`);
  }
  try {
    checkStopStrings(turn.stop ?? []);
    checkAdjusted(turn, vocabSize);
  } catch (error) {
    throw new InputError(`generate() was given a setting that is not allowed: ${describe(error)}`);
  }
  return { ...run, ...turn, maxNewTokens: Math.min(run.maxNewTokens, turn.maxNewTokens ?? Infinity) };
}

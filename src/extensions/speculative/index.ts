/**
 * Speculative decoding: guesses tokens by n-grams, and has one pass check them. Runs with `rollout.speculative` use it:
 * `src/engineParts.ts` provides it to the rollout server.
 */

export { DraftedTokens } from './draftedTokens.ts';

/** Tokens that end an assistant's turn: those of the tokenizer, config.json and generation_config.json. */

import { InputError } from '../../errors.ts';

/** Maximum number of end tokens, which is the number of ids that the sampling kernel compares. */
const MAX_END_TOKENS = 4;

/**
 * Returns each id once, starting with the one that the chat template closes a turn with. Throws InputError for more
 * than 4 ids. @param closingToken returns the token with which the chat template closes a turn; called only if there
 * are several ids
 */
export function endTokens(
  all: readonly number[],
  closingToken: (ids: readonly number[]) => number | null | undefined,
): number[] {
  const ids = [...new Set(all)];
  if (ids.length > MAX_END_TOKENS) {
    throw new InputError(
      `The model ends a turn by the tokens ${ids.join(', ')}. At most ${MAX_END_TOKENS} are supported. Remove those that it ` +
        'never writes from "eos_token_id" in config.json and generation_config.json.',
    );
  }
  const closing = ids.length > 1 ? closingToken(ids) : undefined;
  return ids.sort((a, b) => Number(b === closing) - Number(a === closing));
}

/**
 * Returns the warning that the template closes a turn with `closing`, although the model ends a turn with one of
 * `ends`.
 */
export const endNote = (closing: string, ends: readonly string[]): string =>
  `the chat template closes an assistant's turn with ${closing}, but a turn ends by ${ends.join(', ')}; if samples run on to the ` +
  'longest response, name the template\'s token in "eos_token" of tokenizer_config.json or "eos_token_id" of generation_config.json';

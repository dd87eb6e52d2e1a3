/** Reads a turn from the engine: checks that each token has its values, decodes the text, and converts calls for chat templates. */

import type { CalledTurn, ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { cutAtStop } from '../decode/stopStrings.ts';
import { TURN_FIELDS } from '../tokenLog.ts';
import type { ToolCall } from '../tools/parser.ts';
import type { Generation } from '../types.ts';

/**
 * Returns the text of a turn, truncated at its stop string.
 * @param named control tokens whose names stay in the text, for call formats that use them
 */
export function turnText(
  tokenizer: ChatTokenizer,
  { tokenIds, stopString }: Pick<Generation, 'tokenIds' | 'stopString'>,
  { named, includeStop = false }: { named: boolean; includeStop?: boolean | undefined },
): string {
  const decode = (ids: Uint32Array) => tokenizer.decode(ids, { skipSpecialTokens: !named });
  const text = decode(tokenIds);
  return stopString === undefined ? text : cutAtStop(text, decode(tokenIds.subarray(0, -1)), stopString, includeStop);
}

/**
 * Returns calls with the names and ids that chat templates render.
 * @param before number of tool calls that the sample made before these
 */
export function calledTurn(
  calls: readonly ToolCall[],
  { stopToken, endToken, before }: { stopToken: string; endToken: number | undefined; before: number },
): CalledTurn {
  const named = calls.map(({ name = 'unknown', id }, i) => ({ name, id: id ?? `functions.${name}:${before + i}` }));
  return { calls: named, stopToken, ...(endToken !== undefined && { end: endToken }) };
}

/** Throws RangeError if a token lacks a value. Otherwise the sample would be trained with 0 as that value. */
export function checkGeneration(generation: Generation): void {
  const { length } = generation.tokenIds;
  for (const name of TURN_FIELDS)
    if ((generation[name]?.length ?? length) !== length)
      throw new RangeError(
        `The engine returned ${length} tokens, but ${generation[name]!.length} ${name}. Return one a token.`,
      );
}

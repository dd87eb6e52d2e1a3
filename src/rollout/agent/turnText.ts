/** What a turn that the engine drew holds: a value a token, its text, and what a chat template needs to know of the calls in it. */

import type { CalledTurn, ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { cutAtStop } from '../decode/stopStrings.ts';
import { TURN_FIELDS } from '../tokenLog.ts';
import type { ToolCall } from '../tools/parser.ts';
import type { Generation } from '../types.ts';

/** The text of a turn, cut at its stop string. @param named control tokens are texts in it, as formats of calls that have some ask for */
export function turnText(
  tokenizer: ChatTokenizer,
  { tokenIds, stopString }: Pick<Generation, 'tokenIds' | 'stopString'>,
  { named, includeStop = false }: { named: boolean; includeStop?: boolean | undefined },
): string {
  const decode = (ids: Uint32Array) => tokenizer.decode(ids, { skipSpecialTokens: !named });
  const text = decode(tokenIds);
  return stopString === undefined ? text : cutAtStop(text, decode(tokenIds.subarray(0, -1)), stopString, includeStop);
}

/** Calls with the names and ids that templates render. @param before tool calls of the sample before these */
export function calledTurn(
  calls: readonly ToolCall[],
  { stopToken, endToken, before }: { stopToken: string; endToken: number | undefined; before: number },
): CalledTurn {
  const named = calls.map(({ name = 'unknown', id }, i) => ({ name, id: id ?? `functions.${name}:${before + i}` }));
  return { calls: named, stopToken, ...(endToken !== undefined && { end: endToken }) };
}

/** Throws RangeError: with a value of a token missing, the sample would be trained on 0 in its place. */
export function checkGeneration(generation: Generation): void {
  const { length } = generation.tokenIds;
  for (const name of TURN_FIELDS)
    if ((generation[name]?.length ?? length) !== length)
      throw new RangeError(
        `The engine returned ${length} tokens, but ${generation[name]!.length} ${name}. Return one a token.`,
      );
}

/** Checks requests when they arrive, and limits them to what the server can run. */

import { InputError } from '../../errors.ts';
import { checkAdjusted } from '../decode/adjustments.ts';
import type { DecoderSizes } from '../decode/decoder.ts';
import { checkStopStrings } from '../decode/stopStrings.ts';
import type { GenerateRequest } from '../types.ts';

/**
 * Throws RangeError for a request that the server can never serve, and InputError for more end tokens than the server supports or for a
 * token that the model does not have.
 */
export function checkRequest(request: GenerateRequest, sizes: DecoderSizes, vocabSize: number): void {
  const { contextIds, promptLength, sampling, drawn } = request;
  const { slotCapacity, maxPromptLength } = sizes;
  const ownTokens = contextIds.length - promptLength;
  if (promptLength < 1 || ownTokens < 0)
    throw new RangeError(`promptLength is ${promptLength} of a context of ${contextIds.length} tokens.`);
  if (promptLength > maxPromptLength)
    throw new RangeError(
      `A prompt has ${promptLength} tokens but data.maxPromptLength is ${maxPromptLength}. Raise it or shorten the prompt.`,
    );
  if (ownTokens >= slotCapacity)
    throw new RangeError(`A context has ${ownTokens} tokens after its prompt; a slot holds ${slotCapacity}.`);
  const room = Math.min(sampling.maxNewTokens, slotCapacity - ownTokens);
  if (drawn && drawn.tokenIds.length >= room)
    throw new RangeError(`A turn of at most ${room} tokens already has ${drawn.tokenIds.length} sampled tokens.`);
  if (sampling.stopTokenIds.length > 4)
    throw new InputError(
      `${sampling.stopTokenIds.length} stop token ids were given (${sampling.stopTokenIds.join(', ')}). At most 4 are allowed, those of the ` +
        'model and of its tool format included. Remove those that the model never writes from "eos_token_id" in generation_config.json.',
    );
  const outside = contextIds.find((id) => id >= vocabSize);
  if (outside !== undefined)
    throw new InputError(
      `The context has token ${outside}, but the model's vocabulary has ${vocabSize} tokens. Use the tokenizer of the model.`,
    );
  checkStopStrings(sampling.stop ?? []);
  checkAdjusted(sampling, vocabSize);
}

/**
 * Returns the request with maxNewTokens limited to the space in its slot. A turn has no minNewTokens if its grammar allows no free text after
 * calls or JSON: after the last byte, only end tokens are allowed, or another call.
 */
export function servedRequest(request: GenerateRequest, slotCapacity: number): GenerateRequest {
  const { contextIds, promptLength, sampling } = request;
  const room = slotCapacity - (contextIds.length - promptLength);
  const maxNewTokens = Math.max(1, Math.min(sampling.maxNewTokens, room));
  const { requiredCalls, jsonSchema, toolCalls, toolCallFormat } = sampling;
  const onlyCalls = Boolean(toolCalls?.length) && toolCallFormat === 'llama3_json';
  const endsByGrammar = requiredCalls !== undefined || jsonSchema !== undefined || onlyCalls;
  return { ...request, sampling: { ...sampling, maxNewTokens, ...(endsByGrammar && { minNewTokens: 0 }) } };
}

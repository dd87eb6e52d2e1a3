/**
 * Encodes samples as plain JSON for a checkpoint. Per-token arrays become base64 of their bytes; the times of the
 * sample's events are omitted.
 */

import { UserCodeError } from '../../errors.ts';
import { TOKEN_FIELD_NAMES, TOKEN_FIELDS, type TokenArrays, type TokenFieldName } from '../../rollout/tokenLog.ts';
import { countsOf, type Trajectory } from '../../rollout/types.ts';
import type { Reward } from '../../tasks/task.ts';
import type { Sample } from '../../grpo/update/batch.ts';

type Texts = { [N in TokenFieldName]?: string };

interface EncodedSample extends Omit<Sample, 'trajectory' | 'fault' | 'events' | 'advantage'> {
  trajectory: Omit<Trajectory, TokenFieldName> & Texts;
  fault?: Pick<UserCodeError, 'kind' | 'message'>;
}

/** Returns the per-token arrays of a turn or a sample as base64, without its other fields. */
export function encodeArrays(arrays: Partial<TokenArrays>): Texts {
  const texts: Texts = {};
  for (const name of TOKEN_FIELD_NAMES) if (arrays[name]) texts[name] = toBase64(arrays[name]);
  return texts;
}

/**
 * Decodes the arrays that `encodeArrays` returned. Leaves a text that is not base64 unchanged; `findFault` reports it
 * later.
 */
export function decodeArrays(texts: { [N in TokenFieldName]?: unknown }): Partial<TokenArrays> {
  const arrays: Record<string, unknown> = {};
  for (const name of TOKEN_FIELD_NAMES) if (typeof texts[name] === 'string') arrays[name] = arrayOf(name, texts[name]);
  return arrays;
}

function arrayOf(name: TokenFieldName, text: string): unknown {
  try {
    return new TOKEN_FIELDS[name].Numbers(fromBase64(text).buffer);
  } catch {
    return text;
  }
}

/** Returns a sample as plain JSON, without its events and its advantage. */
export function encodeSample({ trajectory, fault, events: _, advantage: __, ...sample }: Sample): EncodedSample {
  const encoded = { ...countsOf(trajectory), ...encodeArrays(trajectory) };
  return { ...sample, ...(fault && { fault: { kind: fault.kind, message: fault.message } }), trajectory: encoded };
}

/** Restores what `encodeSample` returned. */
export const decodeSample = ({ trajectory, fault, ...sample }: EncodedSample): Sample => ({
  ...sample,
  reward: withMissing(sample.reward),
  ...(fault && { fault: new UserCodeError(fault.kind, fault.message) }),
  trajectory: { ...trajectory, ...decodeArrays(trajectory) } as Trajectory,
});

/** Restores NaN in a reward: JSON writes NaN as null, and no field of a reward can be null otherwise. */
export const withMissing = (reward: Reward): Reward =>
  JSON.parse(JSON.stringify(reward), (_, value: unknown) => (value === null ? NaN : value)) as Reward;

/** Returns the bytes of a view as base64. */
export function toBase64({ buffer, byteOffset, byteLength }: ArrayBufferView): string {
  let text = '';
  for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Throws DOMException if the text is not base64. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

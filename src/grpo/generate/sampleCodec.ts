/** Samples as plain JSON, for a checkpoint: numbers of a token as base64 of their bytes, without the times of the sample's events. */

import type { Trajectory } from '../../rollout/types.ts';
import type { Reward } from '../../tasks/task.ts';
import type { Sample } from '../update/batch.ts';

/** Fields of a trajectory with a number a token, and the array that holds them. */
const ARRAYS = {
  promptIds: Uint32Array,
  responseIds: Uint32Array,
  mask: Uint8Array,
  logProbs: Float32Array,
  logMass: Float32Array,
  weightVersions: Uint32Array,
} as const;
type ArrayName = keyof typeof ARRAYS;

interface EncodedSample extends Omit<Sample, 'trajectory' | 'events' | 'advantage'> {
  trajectory: Omit<Trajectory, ArrayName> & { [N in ArrayName]?: string };
}

export function encodeSample({ problem, group, messages, reward, trajectory, toolRewards }: Sample): EncodedSample {
  const { promptIds, responseIds, mask, logProbs, logMass, weightVersions, ...rest } = trajectory;
  const arrays = { promptIds, responseIds, mask, logProbs, logMass, ...(weightVersions && { weightVersions }) };
  const texts: { [N in ArrayName]?: string } = {};
  for (const [name, numbers] of Object.entries(arrays)) texts[name as ArrayName] = toBase64(numbers);
  return { problem, group, messages, reward, ...(toolRewards && { toolRewards }), trajectory: { ...rest, ...texts } };
}

export function decodeSample({ trajectory, reward, ...sample }: EncodedSample): Sample {
  const fields: Record<string, unknown> = { ...trajectory };
  for (const [name, Numbers] of Object.entries(ARRAYS)) {
    const text = fields[name];
    if (typeof text === 'string') fields[name] = new Numbers(fromBase64(text).buffer);
  }
  return { ...sample, reward: withMissing(reward), trajectory: fields as unknown as Trajectory };
}

/** JSON has no NaN and writes null, here only where a number is missing. */
export const withMissing = (reward: Reward): Reward =>
  JSON.parse(JSON.stringify(reward), (_, value: unknown) => (value === null ? NaN : value)) as Reward;

export function toBase64({ buffer, byteOffset, byteLength }: ArrayBufferView): string {
  let text = '';
  for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Throws DOMException if the text is not base64. */
export const fromBase64 = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** What is to be said above everything else: the adapter, how a run ended, what went wrong, what can be done now. */

import { signal } from '@preact/signals';
import { type FoundAdapter, NoGpuError } from '../engine/adapter.ts';

export interface Message {
  kind: 'info' | 'error';
  title?: string;
  text: string;
}

/** A sentence, and buttons under it by label; with none it only tells. */
interface Offer {
  text: string;
  choices: Record<string, () => void>;
}

/** The GPU; undefined = still looked for, null = there is none. */
export const adapter = signal<FoundAdapter | null | undefined>(undefined);

/** The newest news; a later one takes its place. */
export const message = signal<Message | undefined>(undefined);

/** Why the run is not being saved; undefined = it is. */
export const notSaved = signal<string | undefined>(undefined);

export const offer = signal<Offer | undefined>(undefined);

export const inform = (text: string): void => void (message.value = { kind: 'info', text });

/** An error as a person can act on it. The engine's errors cross from its worker with their names. */
export function complain(error: unknown): void {
  if (error instanceof NoGpuError) adapter.value = null;
  message.value = { kind: 'error', ...explained(error) };
}

function explained(error: unknown): { title: string; text: string } {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  if (error instanceof NoGpuError) return { title: 'This browser cannot train.', text: message };
  if (name === 'InputError' || name === 'RangeError') return { title: 'This cannot run.', text: message };
  if (name === 'NoAdapterError') return { title: 'No GPU found.', text: message };
  if (name === 'OutOfMemoryError') return { title: 'Not enough GPU memory.', text: message };
  if (name === 'DeviceLostError' || /device (was |is )?lost/i.test(message))
    return { title: 'The GPU was lost.', text: 'It failed repeatedly. Restart the browser and try again.' };
  if (name === 'WorkerDiedError') return { title: 'The engine stopped.', text: message };
  return { title: 'Something went wrong.', text: message };
}

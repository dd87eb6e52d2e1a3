/** Notices at the top of the page: the adapter, how a run ended, and errors. */

import { signal } from '@preact/signals';
import { type FoundAdapter, NoGpuError } from '../engine/adapter.ts';
import { noteMissing } from './missingParts.ts';

export interface Message {
  kind: 'info' | 'error';
  title?: string;
  text: string;
}

/** The GPU adapter; undefined = being requested, null = not found. */
export const adapter = signal<FoundAdapter | null | undefined>(undefined);

/** The newest message; replaced by a later one. */
export const message = signal<Message | undefined>(undefined);

/** Reason why the run is not being saved; undefined = it is saved. */
export const notSaved = signal<string | undefined>(undefined);

/** Names of runs that the page deleted because they were old or because it needed their space. */
export const deleted = signal<readonly string[]>([]);

/** Shows an informative message. */
export const inform = (text: string): void => void (message.value = { kind: 'info', text });

/** Shows an error to the visitor. An error from the engine's worker has the name of its class, which selects the words. */
export function complain(error: unknown): void {
  if (error instanceof NoGpuError) adapter.value = null;
  if (noteMissing(error)) return;
  message.value = { kind: 'error', ...explained(error) };
}

function explained(error: unknown): { title?: string; text: string } {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  if (error instanceof NoGpuError) return { title: 'This browser cannot train.', text: message };
  if (name === 'InputError' || name === 'RangeError') return { text: message }; // it says what was found, and what to do
  if (name === 'NoAdapterError') return { title: 'No GPU found.', text: message };
  if (name === 'OutOfMemoryError') return { title: 'Not enough GPU memory.', text: message };
  if (name === 'DeviceLostError' || /device (was |is )?lost/i.test(message))
    return { title: 'The GPU was lost.', text: 'It failed repeatedly. Restart the browser and try again.' };
  if (name === 'WorkerDiedError')
    return { title: 'The engine stopped.', text: `${message} Start again. If it stops again, reload the page.` };
  return {
    title: 'Something went wrong.',
    text: `${message.replace(/[.!]?$/, '.')} Reload the page and try again. Saved runs are kept.`,
  };
}

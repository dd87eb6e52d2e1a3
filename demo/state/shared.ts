/** A shared result from a link. Its curves are shown until a run is started. */

import { effect, signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { SharedResult } from './address/share.ts';
import { message } from './notices.ts';
import { active, config, history } from './page.ts';

/** The shared result; undefined = none, or closed by the visitor. */
export const shared = signal<SharedResult | undefined>(undefined);

/** Shows the result, or an error. @param settings returns the config of the link; throws InputError */
export async function showShared(text: string, settings: () => TrainConfig): Promise<void> {
  try {
    const { decodeResult } = await import('./address/share.ts');
    const result = await decodeResult(text);
    [config.value, history.value, shared.value] = [settings(), result.history, result];
  } catch (error) {
    message.value = { kind: 'error', title: 'In the address:', text: (error as Error).message };
  }
}

/** Closes the shared result. */
export function putSharedAway(): void {
  [shared.value, history.value, config.value] = [undefined, [], undefined];
}

effect(() => {
  if (active.value) shared.value = undefined;
});

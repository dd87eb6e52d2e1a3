/** Opens a shared result from a link. Its curves are shown until a run is started. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { message } from './notices.ts';
import { present } from './present.ts';
import { enter, leave } from './stage.ts';

/** Shows the result, or an error. @param settings returns the config of the link; throws InputError */
export async function showShared(text: string, settings: () => TrainConfig): Promise<void> {
  try {
    const { decodeResult } = await import('./address/share.ts');
    const result = await decodeResult(text);
    present({ config: settings(), ...result });
    enter({ name: 'looking', at: 'shared', result });
  } catch (error) {
    message.value = { kind: 'error', title: 'In the address:', text: (error as Error).message };
  }
}

/** Closes the shared result. */
export function putSharedAway(): void {
  leave();
  present();
}

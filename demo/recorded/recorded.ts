/** Shows a recorded run. Its code and file are loaded on demand. */

import { effect, signal } from '@preact/signals';
import type { Player } from './player.ts';
import type { RecordedName } from './recording.ts';
import { complain } from '../state/notices.ts';
import { present } from '../state/present.ts';
import { active, enter, isRecorded, leave, shared, state } from '../state/stage.ts';

export const player = signal<Player | undefined>(undefined);

let opening = false;

/** Loads and plays a recorded run, by default that of the default recipe. */
export async function watchRecorded(name: RecordedName = 'gsm8k-tool'): Promise<void> {
  if (player.value || opening) return;
  opening = true;
  try {
    const { Player } = await import('./player.ts');
    const opened = await Player.open(name);
    if (active.value) return;
    enter({ name: 'looking', at: 'recorded' });
    present();
    player.value = opened;
    opened.show();
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) opened.at.value = opened.lines;
    else opened.play();
  } catch (error) {
    complain(error);
  } finally {
    opening = false;
  }
}

/** Closes the recorded run. */
export function closeRecorded(): void {
  leave();
  present();
}

// A browser that cannot train shows a recorded training instead.
effect(() => {
  if (state.value === 'no-gpu' && !shared.peek()) void watchRecorded();
});

effect(() => {
  if (isRecorded.value) return;
  player.peek()?.close();
  player.value = undefined;
});

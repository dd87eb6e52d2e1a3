/** The drawer at the right: the settings of the next run, the saved runs, or the settings of a fork. */

import { computed, signal } from '@preact/signals';
import { stage } from './stage.ts';

/** Panel that the visitor opened; undefined = closed. */
export const drawer = signal<'settings' | 'runs' | undefined>(undefined);

/** Content of the drawer. A fork that is being prepared comes first. */
export const inDrawer = computed(() => (stage.value.name === 'forking' ? 'fork' : drawer.value));

/** Closes the drawer, and cancels a fork. The focus moves to the button that opens what was closed. */
export function closeDrawer(): void {
  const was = inDrawer.peek();
  const now = stage.peek();
  if (now.name === 'forking') now.cancel();
  else drawer.value = undefined;
  const opener = was === 'fork' ? '#timeline summary' : `#drawer-buttons [data-opens="${was}"]`;
  document.querySelector<HTMLElement>(opener)?.focus();
}

/**
 * State of the figures in the address. Behind `#` are the controls that a reader moved. `?embed=1.2` shows one figure alone, for slides and
 * frames. `?hide=method,code` hides controls by name.
 */

import { signal } from '@preact/signals';

const query = new URLSearchParams(location.search);

/** Number of the only figure to show; null = the whole lesson. */
export const embedded = query.get('embed');

const hidden = new Set((query.get('hide') ?? '').split(',').filter(Boolean));

/** True if the address hides the control. */
export const isHidden = (control: string): boolean => hidden.has(control);

const moved = signal(new URLSearchParams(location.hash.slice(1)));

/** Returns the value of a control, as moved; undefined if it was not moved. */
export const movedTo = (control: string): string | undefined => moved.value.get(control) ?? undefined;

/** Returns the number of a control, within its limits. */
export function numberOf(control: string, initial: number, least: number, most: number): number {
  const value = Number(movedTo(control) ?? initial);
  return Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : initial;
}

/** Moves controls. undefined removes one from the address. The browser's history gets no entry. */
export function move(controls: Readonly<Record<string, string | number | undefined>>): void {
  const next = new URLSearchParams(moved.value);
  for (const [name, value] of Object.entries(controls)) {
    if (value === undefined) next.delete(name);
    else next.set(name, String(value));
  }
  moved.value = next;
  const text = next.toString();
  history.replaceState(history.state, '', text === '' ? location.pathname + location.search : `#${text}`);
}

addEventListener('hashchange', () => (moved.value = new URLSearchParams(location.hash.slice(1))));

/**
 * State of the figures in the address. The part after `#` has the values of the controls that a reader moved. `?embed=1.2` shows one figure
 * alone, for slides and frames. `?hide=method,code` hides controls by name.
 */

import { signal } from '@preact/signals';

const query = new URLSearchParams(location.search);

/** Number of the only figure to show; null = show the whole lesson. */
export const embedded = query.get('embed');

const hidden = new Set((query.get('hide') ?? '').split(',').filter(Boolean));

/** True if the address hides the control of this name. */
export const isHidden = (control: string): boolean => hidden.has(control);

const moved = signal(new URLSearchParams(location.hash.slice(1)));

/** Returns the value of a control if the reader moved it; undefined otherwise. */
export const movedTo = (control: string): string | undefined => moved.value.get(control) ?? undefined;

/** Returns the numeric value of a control, limited to its range. */
export function numberOf(control: string, initial: number, least: number, most: number): number {
  const value = Number(movedTo(control) ?? initial);
  return Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : initial;
}

/** Moves controls by writing their values to the address; undefined removes a value. Adds no entry to the browser's history. */
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

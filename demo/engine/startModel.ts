/** A run may start from a model that is made first. Apart from warmStart.ts, whose code the page loads when it makes one. */

import { signal } from '@preact/signals';

export interface WarmStartProgress {
  step: number;
  total: number;
  loss: number;
}

/** How far the start model is made; undefined = none is being made. */
export const warmStart = signal<WarmStartProgress | undefined>(undefined);

/** Returns the name of the supervised config that `path`, a run's `model.path`, names; undefined for any other model. */
export const warmStartName = (path: string): string | undefined => /^configs\/([\w-]+)\.yaml$/.exec(path)?.[1];

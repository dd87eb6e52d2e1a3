/** Progress of the training of a start model. Separate from warmStart.ts, whose code the page loads only when it trains one. */

import { signal } from '@preact/signals';

export interface WarmStartProgress {
  step: number;
  total: number;
  loss: number;
}

/** Progress of training the start model; undefined = none is being trained. */
export const warmStart = signal<WarmStartProgress | undefined>(undefined);

/** Returns the name of the supervised config that `path`, a run's `model.path`, names; undefined for any other model. */
export const warmStartName = (path: string): string | undefined => /^configs\/([\w-]+)\.yaml$/.exec(path)?.[1];

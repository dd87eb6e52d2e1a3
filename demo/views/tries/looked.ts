/** The try whose tokens are open. */

import { signal } from '@preact/signals';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';

export const looked = signal<LoggedRollout | undefined>(undefined);

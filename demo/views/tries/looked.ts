/** The try whose tokens are open. */

import { signal } from '@preact/signals';
import type { LoggedRollout } from '../../../src/report/rollouts.ts';

export const looked = signal<LoggedRollout | undefined>(undefined);

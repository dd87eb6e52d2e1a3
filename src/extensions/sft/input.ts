/** The config of a supervised run as a user writes it, printed like src/grpo/config/input.ts. */

import type * as v from 'valibot';
import type { SFT_SCHEMA } from './schema.ts';

/** Config of a supervised run, as a user writes it. */
export type SftConfigInput = v.InferInput<typeof SFT_SCHEMA>;

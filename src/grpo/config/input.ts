/**
 * Types of configs as a user writes them, inferred from the schemas. In the package these types are interfaces with a docstring for each
 * key, which an editor shows: `npm run build` prints them (scripts/lib/printedInputs.ts).
 */

import type * as v from 'valibot';
import type { TRAIN_SCHEMA } from './schema/index.ts';

/** Config of a training run, as a user writes it: the keys of docs/reference/config.md. */
export type TrainConfigInput = v.InferInput<typeof TRAIN_SCHEMA>;

/** `actor` part of a training run's config, as a user writes it. */
export type ActorInput = NonNullable<TrainConfigInput['actor']>;

/** `rollout` part of a training run's config, as a user writes it. */
export type RolloutInput = NonNullable<TrainConfigInput['rollout']>;

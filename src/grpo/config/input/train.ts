/** A training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

import type { ModelInput } from './model.ts';
import type { TaskInput } from './task.ts';
import type { DataInput } from './data.ts';
import type { RolloutInput } from './rollout.ts';
import type { ActorInput } from './actor.ts';
import type { AlgorithmInput } from './algorithm.ts';
import type { RewardInput } from './reward.ts';
import type { TrainerInput } from './trainer.ts';
import type { AsyncTrainingInput } from './asyncTraining.ts';

export interface TrainConfigInput {
  /** Name of the run; letters, digits, ., _ and -. Allowed: text. Required. */
  name: string;
  /** wgsl = own kernels; tfjs = gradients by autodiff, slower, a check. Allowed: wgsl | tfjs. Default: "wgsl". */
  engine?: 'wgsl' | 'tfjs' | undefined;
  /** Everything random follows from it: same seed and adapter, same run. Allowed: integer >= 0. Default: 1. */
  seed?: number | undefined;
  model: ModelInput;
  task?: TaskInput | undefined;
  data?: DataInput | undefined;
  rollout?: RolloutInput | undefined;
  actor?: ActorInput | undefined;
  algorithm?: AlgorithmInput | undefined;
  reward?: RewardInput | undefined;
  trainer?: TrainerInput | undefined;
  asyncTraining?: AsyncTrainingInput | undefined;
}

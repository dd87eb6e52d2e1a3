/** The trainer's engine, the state it keeps from step to step, and the events it reports. */

import type { ModelEngine, TensorMap } from '../model/engine.ts';
import type { ChatTokenizer } from '../model/tokenizer/chat.ts';
import type { RolloutEngine } from '../rollout/types.ts';
import type { RoleBaselines } from './advantages/index.ts';
import type { Metrics } from './metrics.ts';
import type { Sample } from './update/batch.ts';

/** Everything the trainer drives. `reference` holds the frozen start weights and exists when a KL term or a judge needs it. */
export interface TrainerEngine {
  tokenizer: ChatTokenizer;
  model: ModelEngine;
  rollout: RolloutEngine;
  reference?: ModelEngine;
  /** Decodes with the reference's weights; exists where they judge. */
  judge?: RolloutEngine;
}

export type Phase = 'generate' | 'tools' | 'reward' | 'log-probs' | 'update' | 'sync' | 'validate';

export interface TrainerEvents {
  onPhase?(phase: Phase, step: number): void;
  /** Every sample as it is scored, before the step is over. */
  onSample?(sample: Sample, step: number): void;
  /** After each step, and after the evaluation of step 0 (its metrics alone). */
  onStep?(metrics: Metrics, samples: Sample[]): void | Promise<void>;
  /** Sampled answers of each evaluation, problem by problem. */
  onValidation?(samples: Sample[], step: number): void | Promise<void>;
  /** When `saveFreq` asks for one. */
  onCheckpoint?(checkpoint: Checkpoint): void | Promise<void>;
}

/** All that is needed to go on as if nothing had happened. */
export interface Checkpoint {
  state: TrainerState;
  weights: TensorMap;
  optimizer: TensorMap;
  /** Weights of the reference, where it is refreshed on the way. */
  reference?: TensorMap;
}

export interface TrainerState {
  step: number;
  /** Training problems drawn so far; dynamic sampling draws more than trainBatchSize a step. */
  problems: number;
  /** Optimizer steps so far. */
  updates: number;
  /** Coefficient of the KL in the reward, where klCtrl is adaptive and has moved it. */
  klCoef?: number;
  /** Partial rollout: problems of the groups that stood still after the step; a resumed run starts them over. */
  carried?: number[];
  /** Adaptive entropy bonus: its coefficient, and whether the last step's entropy was low enough for it to act. */
  entropy?: { coeff: number; acts: boolean };
  /** rae: running mean reward of each role. */
  roleBaselines?: RoleBaselines;
  /** State of each part that keeps its own (`parts.ts`), by name: plain JSON. */
  parts?: Record<string, unknown>;
}

export interface FitResult {
  state: TrainerState;
  /** Metrics of every step, evaluations among them. */
  history: Metrics[];
  /** True when `stop` ended the run early. */
  stopped: boolean;
  /** Why trainer.stopWhen ended the run, where it did. */
  reached?: string;
}

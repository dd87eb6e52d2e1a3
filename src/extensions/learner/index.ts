/**
 * `webgrpo/learner`: sample, logProbs, forwardBackward, optimStep, saveState and loadState, for a training loop of your own; and a client in
 * the shape of OpenAI's API whose calls are trained on.
 */

export * from '../client/index.ts';
export { Learner } from './learner.ts';
export type { Loss } from './settings.ts';
export type {
  ForwardBackwardResult,
  LearnerOptions,
  LossOptions,
  OptimStepOptions,
  OptimStepResult,
  Prompt,
  Row,
  SampledRow,
  SampleOptions,
  TokenValues,
  TrainRow,
} from './types.ts';

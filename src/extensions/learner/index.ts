/**
 * The package entry `webgrpo/learner`, for programs with their own training loop. Exports the Learner, with the methods sample, logProbs,
 * forwardBackward, optimStep, saveState and loadState, and a client with OpenAI's API whose calls are trained on.
 */

import '../../trainerParts.ts';

export {
  ApiError,
  type ChatCompletion,
  type ChatCompletionChunk,
  type ChatCompletions,
  type ChunkDelta,
  ClientGroups,
  type ClientLimits,
  type ClientStepOptions,
  ClientTrainer,
  type ClientTrainerOptions,
  ClientTrajectory,
  type CompletionParams,
  type FinishReason,
  type Logprobs,
  type MessageShape,
  type RewardOptions,
  type TokenLogprob,
  type ToolCallShape,
  type ToolShape,
  TrainingClient,
  type TrajectoryOptions,
  type Usage,
} from '../client/index.ts';
export { Learner } from './learner.ts';
export type { Loss } from './settings.ts';
export type * from './types.ts';

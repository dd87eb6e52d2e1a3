/** Clients with OpenAI's API whose calls are trained on. Used by `Learner.client()` and `webgrpo serve`. See docs/guides/client.md. */

export { ApiError } from './api/apiError.ts';
export { anthropicError, fromMessages } from './api/anthropic.ts';
export { read, readBody, whole } from './api/read.ts';
export { type CallRequest, readRequest } from './api/request.ts';
export { fromResponses, KeptResponses } from './api/responses.ts';
export { inNamesOf, type NamedEvent, type Translated } from './api/translated.ts';
export { type ChatCompletions, completed, streamed, TrainingClient } from './client.ts';
export { ClientTrainer, type ClientStepOptions, type ClientTrainerOptions } from './clientTrainer.ts';
export { ClientGroups, runOverError } from './groups.ts';
export { checkConfig, type ClientLimits, NO_TASK } from './settings.ts';
export type { RewardOptions } from './api/reward.ts';
export type * from './api/shapes.ts';
export { ClientTrajectory, type TrajectoryOptions } from './trajectory.ts';

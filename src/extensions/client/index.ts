/** Trains an agent through a client in the shape of OpenAI's API: `Learner.client()` and `webgrpo serve`. See docs/client.md. */

export { ApiError } from './api/apiError.ts';
export { type ChatCompletions, TrainingClient } from './client.ts';
export { ClientTrainer, type ClientStepOptions, type ClientTrainerOptions } from './clientTrainer.ts';
export { ClientGroups } from './groups.ts';
export type { ClientLimits } from './settings.ts';
export type { RewardOptions } from './api/reward.ts';
export type * from './api/shapes.ts';
export { ClientTrajectory, type TrajectoryOptions } from './trajectory.ts';

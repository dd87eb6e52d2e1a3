/**
 * Tasks and tools that ship with webgrpo, except GSM8K's templates and the calculator. The command line and the page open them by name.
 * Programs import them from `webgrpo/tasks`.
 */

export { type PromptOptions, prompted } from './gsm8k/prompt.ts';
export { JSONL_REWARD_OPTIONS } from './jsonl/reward.ts';
export { jsonlOptions, type JsonlReward, scored } from './jsonl/task.ts';
export { openShippedTask, readGsm8k, type TaskConfig } from './open.ts';
export { withTools } from './tools.ts';

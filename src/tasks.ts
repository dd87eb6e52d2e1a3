/** Entry `webgrpo/tasks`: more tasks and tools. GSM8K's templates and the calculator are in the main entry. */

export { gsm8kJsonlTask, parseGsm8kJsonl } from './extensions/tasks/gsm8k/jsonl.ts';
export { buildGsm8kTokenizer } from './extensions/sft/tokenizer.ts';
export { type JsonlOptions, type JsonlReward, jsonlTask } from './extensions/tasks/jsonl/task.ts';
export type { JsonlFile, JsonlFiles } from './extensions/tasks/jsonl/file.ts';
export { countdownTask } from './extensions/tasks/countdown.ts';
export { reverseTextTask } from './extensions/tasks/reverseText.ts';
export { engineJudge, type RubricJudge } from './extensions/rewards/rubric/judge.ts';
export { type Criterion, parseRubric, type Rubric, RUBRIC_PROMPT } from './extensions/rewards/rubric/parse.ts';
export type { CriterionInput, RubricInput } from './grpo/config/schema/reward.ts';
export { type RubricOptions, rubricReward } from './extensions/rewards/rubric/reward.ts';
export { transformersJudge } from './extensions/rewards/rubric/transformersJudge.ts';
export { searchQaTask } from './extensions/tasks/searchQa.ts';
export {
  answerTool,
  type Document,
  httpSearch,
  localSearch,
  openTool,
  type Search,
  searchTool,
} from './extensions/tasks/search.ts';
export { type JavascriptLimits, javascriptTool } from './extensions/sandbox/javascript.ts';
export { adventureTask } from './extensions/tasks/adventure.ts';
export { ticTacToeTask } from './extensions/tasks/ticTacToe.ts';
export {
  defineEnvironment,
  type Environment,
  type ResetContext,
  type Start,
} from './tasks/environments/environment.ts';
export { environmentTask } from './tasks/environments/environmentTask.ts';

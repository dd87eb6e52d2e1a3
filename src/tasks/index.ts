/** Entry `webgrpo/tasks`: more tasks and tools. GSM8K's templates and the calculator are in the main entry. */

export { gsm8kJsonlTask, parseGsm8kJsonl } from './gsm8k/jsonl.ts';
export { buildGsm8kTokenizer } from './gsm8k/tokenizer.ts';
export { type JsonlOptions, type JsonlReward, jsonlTask } from './jsonl/task.ts';
export type { JsonlFile, JsonlFiles } from './jsonl/file.ts';
export { countdownTask } from './countdown.ts';
export { reverseTextTask } from './reverseText.ts';
export { engineJudge, type RubricJudge } from './rewards/rubric/judge.ts';
export {
  type Criterion,
  type CriterionInput,
  parseRubric,
  type Rubric,
  type RubricInput,
  RUBRIC_PROMPT,
} from './rewards/rubric/parse.ts';
export { type RubricOptions, rubricReward } from './rewards/rubric/reward.ts';
export { transformersJudge } from './rewards/rubric/transformersJudge.ts';
export { searchQaTask } from './searchQa.ts';
export {
  answerTool,
  type Document,
  httpSearch,
  localSearch,
  openTool,
  type Search,
  searchTool,
} from './tools/search.ts';
export { type JavascriptLimits, javascriptTool } from './tools/javascript.ts';
export { adventureTask } from './environments/adventure.ts';
export { ticTacToeTask } from './environments/ticTacToe.ts';
export { defineEnvironment, type Environment, type ResetContext, type Start } from './environments/environment.ts';
export { environmentTask } from './environments/environmentTask.ts';

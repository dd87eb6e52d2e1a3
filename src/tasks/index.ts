/** `webgrpo/tasks`: tasks and tools beside GSM8K's templates and the calculator, which the library itself brings. */

export { gsm8kJsonlTask, parseGsm8kJsonl } from './gsm8k/jsonl.ts';
export { buildGsm8kTokenizer } from './gsm8k/tokenizer.ts';
export { countdownTask } from './countdown.ts';
export { reverseTextTask } from './reverseText.ts';
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

/** `webgrpo/tasks`: the tasks and tools beside GSM8K and the calculator, which the library itself brings. */

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

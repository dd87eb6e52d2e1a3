/**
 * Checks before a run: whether the chat template drops parts of the prompts, whether held-out problems are missing or trained on, a first
 * group of samples, and the duration of a step. Used by the command line, the page and its lessons.
 */

export { firstGroup, timedStep } from './firstGroup.ts';
export {
  checkedCount,
  checkFirstPrompts,
  checkTemplate,
  heldOutNotes,
  promptLosses,
  requestLosses,
} from './firstProblems.ts';

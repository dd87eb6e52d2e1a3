/**
 * Checks before a run: whether the chat template keeps what a prompt has, the first group, and the seconds of a step. Used by the command
 * line, the page and its lessons.
 */

export { firstGroup, timedStep } from './firstGroup.ts';
export { checkFirstPrompts, checkTemplate, promptLosses, requestLosses } from './templateCheck.ts';

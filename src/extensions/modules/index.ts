/**
 * Task modules and the page's rules: reads a module's source from a URL, and runs rewards, losses and tools that a user writes in an
 * editor, in a QuickJS sandbox. Tasks in a sandbox are in `isolated.ts`, which the page imports only when it opens one.
 */

export { checkTask } from './described.ts';
export { Rule, RuleError, type RuleLosses, type RuleTokens, type RuleTry, toolOf } from './rule.ts';
export type { RuleKind } from './rulePrograms.ts';
export { fetchSource, isUrl, moduleUrl, sha256Of } from './source.ts';

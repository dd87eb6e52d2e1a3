/**
 * `task.module` and the page's rules use it. It reads a task's program from elsewhere and runs rewards, losses and tools of an editor in
 * QuickJS. A task in a sandbox is in `isolated.ts`, which the page imports when one is opened.
 */

export { checkTask } from './described.ts';
export { Rule, RuleError, type RuleLosses, type RuleTokens, type RuleTry, toolOf } from './rule.ts';
export type { RuleKind } from './rulePrograms.ts';
export { fetchSource, isUrl, moduleUrl, sha256Of } from './source.ts';

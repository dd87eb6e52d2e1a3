/**
 * Code of users: losses, advantages and recipes registered by name; task modules read from a URL; and the page's rules (rewards, losses
 * and tools from an editor), which run in a QuickJS sandbox. Tasks in a sandbox are in `isolated.ts`, which the page imports only when it opens one.
 */

export { checkTask, OWN_CALL_MS } from './described.ts';
export { registerAdvantage, registerPolicyLoss, registerRecipe } from './register.ts';
export { Rule, RuleError, type RuleLosses, type RuleTokens, type RuleTry, toolOf } from './rule.ts';
export type { RuleKind } from './rulePrograms.ts';
export { fetchSource, isUrl, moduleUrl, sha256Of } from './source.ts';

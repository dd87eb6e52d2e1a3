/** Changes during a run, as in its changes.jsonl: settings, rules, and rules that failed, each with its step. */

import type { LiveSettings } from '../../src/grpo/live.ts';
import type { LiveChange } from '../../src/grpo/types.ts';
import type { RuleKind } from '../../src/extensions/modules/index.ts';

export const RULE_KINDS: readonly RuleKind[] = ['reward', 'loss', 'tool'];

/** Words for the reward, loss and tools of a run without custom rules. */
export const OWN_RULES: Readonly<Record<RuleKind, string>> = {
  reward: "the task's own reward",
  loss: "the run's own loss",
  tool: "the task's own tools",
};

/** A rule's text, and the name of its preset if it is one. */
export interface AskedRule {
  name: string;
  code: string;
}

/** Rules by kind; undefined = return to the task's own, or the run's own loss. */
export type AskedRules = Partial<Record<RuleKind, AskedRule | undefined>>;

/** A change of the run's reward or loss by a rule that the visitor wrote or chose. */
export interface RuleChange {
  /** The first step that used the rule. */
  step: number;
  rule: RuleKind;
  name: string;
  /** Undefined = return to the task's own, or the run's own loss. */
  code?: string;
}

/** A rule that failed during a step. Which tries it had scored by then depends on timing. */
interface RuleFailure {
  step: number;
  failed: RuleKind;
}

export type RunChange = LiveChange | RuleChange | RuleFailure;

/** True if the changes contain code of a rule, even of a rule that failed. */
export const hasCode = (changes: readonly RunChange[]): boolean => changes.some((of) => 'code' in of);

/** Returns the rules that are in force at a step. The result has a key for every kind of rule. */
export function rulesAt(changes: readonly RunChange[], step: number): AskedRules {
  const until = changes.filter((of) => of.step <= step);
  return Object.fromEntries(RULE_KINDS.map((kind) => [kind, newest(until, kind)]));
}

/** Returns the changes applied at step `step`; undefined = no changes. */
export function changesAt(
  changes: readonly RunChange[],
  step: number,
): { settings: LiveSettings; rules: AskedRules } | undefined {
  const now = changes.filter((of) => of.step === step);
  const settings = now.flatMap((of) => ('key' in of ? [[of.key, of.to]] : []));
  const kinds = RULE_KINDS.filter((kind) => now.some((of) => 'rule' in of && of.rule === kind));
  if (settings.length + kinds.length === 0) return undefined;
  return {
    settings: Object.fromEntries(settings) as LiveSettings,
    rules: Object.fromEntries(kinds.map((kind) => [kind, newest(now, kind)])),
  };
}

/**
 * Returns the value of a live setting at a step, from its value in the run's config. Like in `withChanges`, a config that was edited since a
 * change wins over it. The trainer alone knows the number of "auto", so each change replaces "auto".
 */
export const valueInForce = <T>(changes: readonly RunChange[], step: number, key: string, own: T): T | number =>
  changes.reduce<T | number>(
    (now, of) =>
      'key' in of && of.key === key && of.step <= step && (of.from === now || now === 'auto') ? of.to : now,
    own,
  );

export const LR = 'actor.optim.lr';

/** Returns the changes that do not set the learning rate. */
export const withoutRate = <C extends RunChange>(changes: readonly C[]): C[] =>
  changes.filter((of) => !('key' in of && of.key === LR));

function newest(changes: readonly RunChange[], kind: RuleKind): AskedRule | undefined {
  const last = changes.findLast((of) => 'rule' in of && of.rule === kind) as RuleChange | undefined;
  return last?.code === undefined ? undefined : { name: last.name, code: last.code };
}

/** Returns the changes from step `step` on that are not changes of rules. */
export function withoutRules(changes: readonly RunChange[], step: number): RunChange[] {
  const inForce = rulesAt(changes, step);
  return [
    ...changes.filter((of) => of.step < step || !('rule' in of)),
    ...RULE_KINDS.filter((kind) => inForce[kind]).map((rule) => ({ step, rule, name: OWN_RULES[rule] })),
  ];
}

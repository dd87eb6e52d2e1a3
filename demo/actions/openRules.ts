/** Opens rules in the sandbox, tests them on what the page shows, and passes them to the trainer. Loaded when the editor is opened. */

import { signal } from '@preact/signals';
import { describe } from '../../src/errors.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { type Rule, RuleError, type RuleKind } from '../../src/extensions/modules/index.ts';
import type { Task } from '../../src/tasks/task.ts';
import type { Session } from '../engine/session.ts';
import { shownTries } from '../state/tries/shown.ts';
import { asked, dropLater, live, recordChange, stand, standing, whenItApplies } from '../state/rules.ts';
import { type AskedRule, type AskedRules, OWN_RULES as OWN, RULE_KINDS } from '../storage/runChanges.ts';
import { type OpenRule, openRule, rulesOf, tokensToTry, tryOf, withTool } from '../training/ruleParts.ts';

/** The shown tries, and the scores that a new reward would give them, in the same order. Undefined if the reward was not tested on them. */
export const trial = signal<{ tries: readonly LoggedRollout[]; scores: readonly number[] } | undefined>(undefined);

/**
 * Rules that are requested or in force (`current`), and rules that were in force before them (`earlier`). If a rule fails, the earlier one
 * replaces it.
 */
const [current, earlier] = [new Map<RuleKind, OpenRule>(), new Map<RuleKind, OpenRule>()];

/** Loads a rule and tests it once: a reward on the shown tries, a loss on some tokens. Returns undefined after an error, which is shown. */
async function opened(kind: RuleKind, of: AskedRule): Promise<OpenRule | undefined> {
  stand(kind, { state: 'checking', text: 'Checking...' });
  let open: OpenRule | undefined;
  try {
    open = await openRule(kind, of);
    if (kind === 'reward') await tryReward(open.rule as Rule<'reward'>);
    if (kind === 'loss') await (open.rule as Rule<'loss'>).run(tokensToTry());
    return open;
  } catch (error) {
    open?.rule.close();
    refuse(kind, 'Not applied', error);
    return undefined;
  }
}

async function tryReward(rule: Rule<'reward'>): Promise<void> {
  const shown = shownTries.value;
  trial.value = { tries: shown, scores: await rule.run(shown.map(tryOf)) };
}

function refuse(kind: RuleKind, how: string, error: unknown, after = '', code?: string): void {
  const { line, column } = error instanceof RuleError ? error : {};
  const where = line === undefined ? '' : `Line ${line}: `;
  stand(kind, { state: 'refused', text: `${how}. ${where}${describe(error)}${after}`, line, column, code });
}

/** Tests the rule, and shows what a reward would do to the shown tries. Does not apply the rule. */
export async function tryRule(kind: RuleKind, of: AskedRule): Promise<void> {
  const open = await opened(kind, of);
  if (!open) return;
  open.rule.close();
  stand(kind, { state: 'tried', text: 'Works on the tries shown. Not applied yet.' });
}

/** Applies the rule from the next step on, or from the first step of the next run. */
export async function applyRule(kind: RuleKind, of: AskedRule): Promise<void> {
  const open = await opened(kind, of);
  if (open) await use(kind, open);
}

/** Returns to the task's own rule, or the run's own loss. */
export async function applyOwn(kind: RuleKind): Promise<void> {
  trial.value = undefined;
  await use(kind, undefined);
}

async function use(kind: RuleKind, open: OpenRule | undefined): Promise<void> {
  const was = current.get(kind);
  const [all, wasAsked] = [new Map(current), asked.value];
  try {
    put(kind, open);
    if (live.value) give(live.value.trainer, live.value.session);
  } catch (error) {
    asked.value = wasAsked;
    current.clear();
    for (const [key, rule] of all) current.set(key, rule);
    open?.rule.close();
    return refuse(kind, 'Not applied', error);
  }
  if (was) earlier.set(kind, was);
  else earlier.delete(kind);
  dropLater((of) => 'rule' in of && of.rule === kind);
  stand(kind, { state: 'asked', text: `${open ? sentence(open.of.name) : sentence(OWN[kind])}. ${whenItApplies()}` });
}

function put(kind: RuleKind, open: OpenRule | undefined): void {
  const rest = { ...asked.value };
  delete rest[kind];
  asked.value = open ? { ...rest, [kind]: open.of } : rest;
  if (open) current.set(kind, open);
  else current.delete(kind);
}

const sentence = (text: string): string => text[0].toUpperCase() + text.slice(1);

/** Takes over the rules of a resumed run, except rules of a kind that the visitor has changed since. */
export async function adopt(rules: AskedRules, step: number): Promise<void> {
  for (const kind of RULE_KINDS) {
    const [of, now] = [rules[kind], current.get(kind)];
    if (!(kind in rules) || standing.value[kind]?.state === 'asked') continue;
    if (of && of.code === now?.of.code && !now.failed) continue;
    put(kind, of && (await openRule(kind, of)));
    earlier.delete(kind);
    if (of || now) stand(kind, { state: 'applied', text: `Active since step ${step}: ${of?.name ?? OWN[kind]}.` });
  }
}

/** Sets the rules of a trainer. A run without rules uses its task's own. Throws InputError. */
export function give(trainer: GrpoTrainer, { task }: Session): void {
  const rules = rulesOf(trainer, task, current, (of, error) => void hasFailed(of, error));
  if (current.size > 0 || given.has(trainer)) trainer.replace(rules);
  given.add(trainer);
}

/** Returns the task with the tool that a rule adds or replaces. Throws InputError. */
export function withOpenTool(task: Task): Task {
  const tool = current.get('tool')?.tool;
  return tool ? { ...task, tools: withTool(task, tool) } : task;
}

/** Trainers on which rules were set. */
const given = new WeakSet<GrpoTrainer>();

/** Called when a rule fails during a step. Samples that it could not score are skipped, and the earlier rule replaces it. */
async function hasFailed(failing: OpenRule, error: unknown): Promise<void> {
  const { kind } = failing;
  if (failing.failed) return;
  failing.failed = true;
  failing.rule.close();
  if (current.get(kind) !== failing) return;
  const last = earlier.get(kind);
  earlier.delete(kind);
  put(kind, last?.failed ? undefined : last);
  const goesOn = asked.value[kind]?.name ?? OWN[kind];
  const now = live.value;
  const step = (now?.trainer.state.step ?? 0) + 1;
  if (now) give(now.trainer, now.session);
  recordChange({ step, failed: kind });
  recordChange({ step: step + 1, rule: kind, name: OWN[kind], ...asked.value[kind] });
  const left = ` Unscored tries are not trained on. The next step uses ${goesOn}.`;
  refuse(kind, `Failed at step ${step}`, error, left, failing.of.code);
}

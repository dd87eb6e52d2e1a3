/** Applies the rules that were requested or recorded for a run. The code that executes rules is loaded when there are rules. */

import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { RuleKind } from '../../src/extensions/modules/index.ts';
import type { Session } from '../engine/session.ts';
import { asked, live, record, setLive } from '../state/rules.ts';
import { type AskedRules, changesAt, hasCode, rulesAt } from '../storage/runChanges.ts';

/**
 * Called whenever a run gets an engine: at its start, and again after a device loss. Applies the rules that the run has at its next step.
 * If the run repeats steps, `repeatChanges` later applies the changes that were recorded for each step.
 */
export async function beginRules(trainer: GrpoTrainer, session: Session): Promise<void> {
  const changes = setLive(trainer, session);
  const step = trainer.state.step + 1;
  if (hasCode(changes) || Object.keys(asked.value).length > 0)
    await use(rulesAt(changes, step), step, trainer, session);
}

/** Called before the step after `step`. Applies the changes recorded for that step. */
export async function repeatChanges(step: number): Promise<void> {
  const [due, now] = [changesAt(record.value, step + 1), live.value];
  if (!due || !now) return;
  now.trainer.change(due.settings);
  if (Object.keys(due.rules).length > 0) await use(due.rules, step + 1, now.trainer, now.session);
}

/** Returns to the task's own rules and the run's own loss. */
export async function restoreRules(kinds: readonly RuleKind[]): Promise<void> {
  const { applyOwn } = await import('./openRules.ts');
  for (const kind of kinds) await applyOwn(kind);
}

async function use(rules: AskedRules, step: number, trainer: GrpoTrainer, session: Session): Promise<void> {
  const { adopt, give } = await import('./openRules.ts');
  await adopt(rules, step);
  give(trainer, session);
}

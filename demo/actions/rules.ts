/** Gives a run the rules that were requested or recorded. The code that runs them is loaded when there is one. */

import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Session } from '../engine/session.ts';
import { asked, live, record, setLive } from '../state/rules.ts';
import { type AskedRules, changesAt, hasCode, rulesAt } from '../storage/runChanges.ts';

/** A run has an engine, perhaps its second, and continues as it had begun: what came in at a later step does so again. */
export async function beginRules(trainer: GrpoTrainer, session: Session): Promise<void> {
  const changes = setLive(trainer, session);
  const step = trainer.state.step + 1;
  if (hasCode(changes) || Object.keys(asked.value).length > 0)
    await use(rulesAt(changes, step), step, trainer, session);
}

/** Before the step after `step`: what came in there when it was done first. */
export async function repeatChanges(step: number): Promise<void> {
  const [due, now] = [changesAt(record.value, step + 1), live.value];
  if (!due || !now) return;
  now.trainer.change(due.settings);
  if (Object.keys(due.rules).length > 0) await use(due.rules, step + 1, now.trainer, now.session);
}

async function use(rules: AskedRules, step: number, trainer: GrpoTrainer, session: Session): Promise<void> {
  const { adopt, give } = await import('./openRules.ts');
  await adopt(rules, step);
  give(trainer, session);
}

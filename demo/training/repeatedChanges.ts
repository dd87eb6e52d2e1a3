/** Repeats the changes of a run at the same steps, for its replay. */

import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { RuleKind } from '../../src/extensions/modules/index.ts';
import type { Task } from '../../src/tasks/task.ts';
import { type OpenRule, openRule, rulesOf } from './ruleParts.ts';
import { type AskedRules, changesAt, RULE_KINDS, rulesAt, type RunChange } from '../storage/runChanges.ts';

/** Applies recorded changes to a trainer, step by step. */
export class RepeatedChanges {
  readonly #changes: readonly RunChange[];
  readonly #open = new Map<RuleKind, OpenRule>();
  readonly #opened: OpenRule[] = [];

  constructor(changes: readonly RunChange[]) {
    this.#changes = changes;
  }

  /** Applies the rules in force to a trainer that resumes from a state. The state contains the settings, except those of the next step. */
  async begin(trainer: GrpoTrainer, task: Task): Promise<void> {
    const step = trainer.state.step + 1;
    trainer.change({ ...changesAt(this.#changes, step)?.settings });
    await this.#use(rulesAt(this.#changes, step), trainer, task);
  }

  /** Called after step `step`. Applies the changes recorded for the next step. */
  async goOn(step: number, trainer: GrpoTrainer, task: Task): Promise<void> {
    const due = changesAt(this.#changes, step + 1);
    if (!due) return;
    trainer.change(due.settings);
    await this.#use(due.rules, trainer, task);
  }

  async #use(rules: AskedRules, trainer: GrpoTrainer, task: Task): Promise<void> {
    for (const kind of RULE_KINDS.filter((kind) => kind in rules)) {
      const of = rules[kind];
      const open = of && (await openRule(kind, of));
      if (!open) this.#open.delete(kind);
      else {
        this.#open.set(kind, open);
        this.#opened.push(open);
      }
    }
    // A rule that fails only in the replay returns no scores, and the step then differs.
    const fails = (of: OpenRule) => void (of.failed = true);
    if (this.#opened.length > 0) trainer.replace(rulesOf(trainer, task, this.#open, fails));
  }

  close(): void {
    for (const { rule } of this.#opened) rule.close();
  }
}

/** Questions that the visitor must answer before the page runs code from elsewhere. Pressing Stop counts as no. */

import { hasCode, type RuleChange } from '../storage/runChanges.ts';
import { savedRuns } from '../storage/saved.ts';
import type { SavedRun } from '../storage/savedRuns.ts';
import { progress, state } from '../state/stage.ts';

/** Resolves to true if the visitor agrees. @param yes label of the button that permits @param no label of the other button */
export function permission(text: string, yes: string, no: string): Promise<boolean> {
  const answered = new Promise<boolean>((answer) => {
    progress({ question: { text, choices: { [yes]: () => answer(true), [no]: () => answer(false) } } });
    const unsubscribe = state.subscribe((now) => {
      if (now !== 'stopping') return;
      answer(false);
      queueMicrotask(() => unsubscribe());
    });
  });
  return answered.finally(() => progress({ question: undefined }));
}

/** Returns true if the rules of a run may be executed. Rules from a run's files need the visitor's permission first. */
export async function rulesLetIn({ id, record, changes }: SavedRun, no: string): Promise<boolean> {
  if (!record.foreign || !hasCode(changes)) return true;
  const rules = changes.filter((of): of is RuleChange => 'code' in of).map(({ rule, name }) => `${rule}: ${name}`);
  const text =
    `This run contains custom rules (${[...new Set(rules)].join('; ').slice(0, 300)}). They have not run yet. They run in a sandbox ` +
    'without network, storage or access to this page. Run them?';
  if (!(await permission(text, 'Run its rules', no))) return false;
  await (await savedRuns())?.updateRecord(id, { foreign: false });
  return true;
}

/** Writes and parses changes.jsonl. The page's first paint does not load this code. */

import { InputError } from '../../src/errors.ts';
import { LIVE_SETTINGS } from '../../src/grpo/live.ts';
import { RULE_KINDS, type RunChange } from './runChanges.ts';

/** Returns the text of changes.jsonl. */
export const changesText = (changes: readonly RunChange[]): string =>
  changes.map((of) => `${JSON.stringify(of)}\n`).join('');

/** Parses changes.jsonl. Throws InputError for an invalid line, because the file is untrusted. */
export function readChanges(text: string, source: string): RunChange[] {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line, i) => {
      const change = parsed(line);
      if (isChange(change)) return change;
      throw new InputError(
        `${source}, line ${i + 1} is not a change of a run. A line needs a step and a setting, or a step and a rule (${RULE_KINDS.join(', ')}) with its name and code.`,
      );
    });
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function isChange(of: unknown): of is RunChange {
  if (typeof of !== 'object' || of === null) return false;
  const { step, key, from, to, rule, name, code, failed } = of as Record<string, unknown>;
  if (!Number.isSafeInteger(step) || (step as number) < 1) return false;
  const isKind = (kind: unknown) => RULE_KINDS.some((one) => one === kind);
  if (rule !== undefined)
    return isKind(rule) && typeof name === 'string' && ['string', 'undefined'].includes(typeof code);
  if (failed !== undefined) return isKind(failed);
  return LIVE_SETTINGS.some((one) => one === key) && [from, to].every(Number.isFinite);
}

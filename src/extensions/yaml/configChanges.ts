/** Reports, key by key, how the config of a resumed run differs from the config before the resume. */

import { parse } from 'yaml';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseTrainConfig } from './text.ts';
import { isTree, leaves, show } from '../../grpo/config/tree.ts';

/** Matches keys that may differ between any two commands that continue one run. */
const OF_THE_COMMAND = /^(name$|model\.lowerToFit$|trainer\.(resume|defaultLocalDir$))/;

/** Matches keys of evaluation, logging and checkpoints. They do not change the policy after a step. */
const OF_THE_RECORD = /^(trainer\.(?!total|ref)|data\.val|rollout\.valKwargs)/;

/** Maximum number of lines to report. */
const MOST = 10;

/** A key with its values in two configs. A value is undefined if its config lacks the key. */
export interface ChangedKey {
  key: string;
  before: unknown;
  after: unknown;
}

/**
 * Returns the keys whose values differ, without those that may differ between any two commands of one run. `before` is the text of
 * config.yaml.
 */
export function changedKeys(before: string, after: TrainConfig): ChangedKey[] {
  const then = new Map(leaves(treeOf(before)));
  // Leaves out keys that are not set, because config.yaml leaves them out too.
  const now = new Map(leaves(after).filter(([, value]) => value !== undefined));
  const keys = [...new Set([...then.keys(), ...now.keys()])];
  return keys
    .map((key) => ({ key, before: then.get(key), after: now.get(key) }))
    .filter(({ key, before, after }) => !OF_THE_COMMAND.test(key) && JSON.stringify(before) !== JSON.stringify(after));
}

/** Returns lines that report how the config changes after step `step`; [] without changes. `before` is the text of config.yaml. */
export function configChanges(before: string, after: TrainConfig, step: number): string[] {
  const changed = changedKeys(before, after);
  if (changed.length === 0) return [];
  const shown = (value: unknown) => (value === undefined ? 'absent' : show(value));
  const lines = changed
    .slice(0, MOST)
    .map((change) => `  ${change.key}: ${shown(change.before)} -> ${shown(change.after)}`);
  return [
    `the config differs from that of the steps up to ${step}:`,
    ...lines,
    ...(changed.length > MOST ? [`  and ${changed.length - MOST} more`] : []),
    ...(trainsOtherwise(changed, after)
      ? ['what follows is neither that run nor one of this config from its start']
      : []),
  ];
}

/** True if one of the changed keys changes the policy after a step. */
export const trainsOtherwise = (changed: readonly ChangedKey[], after: TrainConfig): boolean =>
  changed.some(({ key }) => !OF_THE_RECORD.test(key) && !(isLength(key) && hasNoEnd(after)));

/** Fills in the defaults of this version, which the config of an earlier version can lack. */
function treeOf(text: string): object {
  try {
    return parseTrainConfig(text, { source: 'config.yaml', note: () => {} });
  } catch {
    const tree: unknown = parse(text);
    return isTree(tree) ? tree : {};
  }
}

const isLength = (key: string): boolean => key.startsWith('trainer.total');

/** True if the learning rate of a step does not depend on the number of steps. */
const hasNoEnd = ({ actor: { optim } }: TrainConfig): boolean =>
  optim.lrSchedulerType === 'constant' && !(optim.lrWarmupStepsRatio > 0);

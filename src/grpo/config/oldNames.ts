/**
 * Names that keys had before they were verl's. They are read, with a warning, for one version; then this table goes.
 * A name counts only where the schema has the new one: `data.valSize` is in both YAMLs, `actor.lossMode` in one.
 */

import { InputError } from '../../errors.ts';
import { copyOf, deleteAt, setAt, type Tree, valueAt } from './tree.ts';

/** Old name -> new name; a part moves with all that is in it. */
export const OLD_NAMES: Readonly<Record<string, string>> = {
  'actor.lossMode': 'actor.policyLoss.lossMode',
  'actor.maxTokenLen': 'actor.ppoMaxTokenLenPerGpu',
  'actor.ppoMicroBatchSize': 'actor.ppoMicroBatchSizePerGpu',
  'actor.optim.lrScheduler': 'actor.optim.lrSchedulerType',
  'algorithm.overlongBuffer': 'reward.overlongBuffer',
  'data.valSize': 'data.valMaxSamples',
  'rollout.maxSlots': 'rollout.maxNumSeqs',
  'reward.judge.maxSlots': 'reward.judge.maxNumSeqs',
  'trainer.outDir': 'trainer.defaultLocalDir',
  // Keys of webgrpo sft.
  'data.maxTokenLen': 'data.maxTokenLenPerGpu',
  'optim.lrScheduler': 'optim.lrSchedulerType',
};

/** Second names of a key, which stay: no warning. */
const ALSO: Readonly<Record<string, string>> = { 'trainer.experimentName': 'name' };

export interface Renamed {
  from: string;
  to: string;
  /** False for a second name that stays. */
  isOld: boolean;
}

/** The name of today of a key or of one inside a part that moved; undefined if it has not changed. */
export function newNameOf(path: string, known: ReadonlySet<string>): Renamed | undefined {
  for (const [from, to] of Object.entries({ ...OLD_NAMES, ...ALSO })) {
    if (!known.has(to) || known.has(from)) continue;
    const isOld = Object.hasOwn(OLD_NAMES, from);
    if (path === from) return { from, to, isOld };
    if (path.startsWith(`${from}.`)) return { from: path, to: to + path.slice(from.length), isOld };
  }
  return undefined;
}

/**
 * The tree under the names of today, and what was renamed. Throws InputError if a key is there under both.
 * @param known keys and parts of the schema
 */
export function withNewNames(
  tree: Tree,
  source: string,
  known: ReadonlySet<string>,
): { tree: Tree; renamed: Renamed[] } {
  const today = copyOf(tree);
  const renamed: Renamed[] = [];
  for (const path of Object.keys({ ...OLD_NAMES, ...ALSO })) {
    const value = valueAt(tree, path);
    const name = newNameOf(path, known);
    if (value === undefined || name === undefined) continue;
    if (valueAt(tree, name.to) !== undefined)
      throw new InputError(
        `${source}: "${path}" and "${name.to}" are one setting, and both are given; leave out "${path}".`,
      );
    deleteAt(today, path);
    setAt(today, name.to, value);
    renamed.push(name);
  }
  return { tree: today, renamed };
}

/** What is said of old names, in a line; undefined if there are none. */
export function oldNamesNote(source: string, renamed: readonly Renamed[]): string | undefined {
  const pairs = new Set(renamed.flatMap(({ from, to, isOld }) => (isOld ? [`${from} is ${to} now`] : [])));
  if (pairs.size === 0) return undefined;
  return `${source}: ${[...pairs].join(', ')}; old names are read in this version, not in the next.`;
}

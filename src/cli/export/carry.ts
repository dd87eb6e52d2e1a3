/**
 * Writes our settings under the names that verl or TRL uses (src/grpo/config/peerNames.ts), and lists the settings that an export loses.
 */

import { keyDocs } from '../../grpo/config/keys.ts';
import { PEER_NAMES } from '../../grpo/config/peerNames.ts';
import { RECIPES, VERL_DEFAULTS } from '../../grpo/config/recipes.ts';
import { TRAIN_SCHEMA } from '../../grpo/config/schema/index.ts';
import { leaves, show, valueAt } from '../../grpo/config/tree.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { policyLossOf } from '../../grpo/losses/index.ts';

/** A value in the config of verl or TRL. */
export type Setting =
  | string
  | number
  | boolean
  | null
  | readonly (string | number)[]
  | { readonly [name: string]: Setting };

/** A peer trainer (verl or TRL), and how our settings are converted to its own. */
export interface Peer {
  name: 'verl' | 'TRL';
  /** By our key: the value to write, for keys whose value means something else to the peer; undefined = the key is not written. */
  values: Readonly<Record<string, (config: TrainConfig) => Setting | undefined>>;
  /** Keys that this conversion skips, because another setting covers them or because they concern only this machine. */
  elsewhere: RegExp;
  /** Keys of this config that the peer lacks (true) or interprets differently (a string that explains the difference). */
  lost(config: TrainConfig): Readonly<Record<string, boolean | string>>;
}

/** Keys that affect how our program runs, not what it computes. A report of lost settings omits them. */
const OF_THIS_PROGRAM =
  /^(name|engine|algorithm\.name|model\.|task\.|trainer\.(?!ref)|asyncTraining\.|rollout\.(speculative|preemption|valKwargs|agent)|data\.val|actor\.policyLoss\.)/;

/** Returns the settings under the peer's names, and one sentence per setting that the export loses. */
export function carry(config: TrainConfig, { name, values, elsewhere, lost }: Peer) {
  const written = PEER_NAMES.flatMap(({ key, verl, trl }): [key: string, name: string, value: Setting][] => {
    const theirs = name === 'verl' ? verl : trl;
    if (theirs === undefined || elsewhere.test(key) || !isRead(config, key)) return [];
    const value = key in values ? values[key](config) : (valueAt(config, key) as Setting | undefined);
    return value === undefined ? [] : [[key, theirs, value]];
  });
  const said = Object.entries(lost(config)).filter(([, applies]) => applies !== false);
  // A key in `values` is not reported as lost even if nothing is written for it: the peer's default applies, or this run does not use the
  // key.
  const known = [...[...said, ...written].map(([key]) => key), ...Object.keys(values)];
  const unnamed = changedKeys(config).filter((key) => !known.includes(key) && !elsewhere.test(key));
  const sentence = (key: string, why: string | boolean) => {
    const value = valueAt(config, key);
    const shown = value === undefined ? '' : ` ${typeof value === 'string' ? value : show(value)}`;
    return `${key}${shown}: ${why === true ? `${name} has no such setting` : why}.`;
  };
  return {
    settings: written.map(([, theirs, value]): [name: string, value: Setting] => [theirs, value]),
    notCarried: [
      ...said.map(([key, why]) => sentence(key, why)),
      ...unnamed.filter((key) => !OF_THIS_PROGRAM.test(key)).map((key) => sentence(key, true)),
      'The random state is not exported, so the same seed draws other samples. Nor is the optimizer state: its moments start at zero.',
    ],
  };
}

/** False for a setting of a policy loss other than this run's. */
function isRead({ actor }: TrainConfig, key: string): boolean {
  const [, number] = /^actor\.policyLoss\.(?!lossMode)(\w+)/.exec(key) ?? [];
  return number === undefined || number in (policyLossOf(actor.policyLoss.lossMode).numbers ?? {});
}

/** Returns the keys whose value differs from the default. */
function changedKeys(config: TrainConfig): string[] {
  const byDefault = new Map([
    ...keyDocs(TRAIN_SCHEMA).map((doc) => [doc.path, doc.default] as const),
    ...leaves(VERL_DEFAULTS),
    ...leaves(RECIPES[config.algorithm.name as keyof typeof RECIPES] ?? {}),
  ]);
  return [...byDefault.keys()].filter((key) => {
    const value = valueAt(config, key);
    return value !== undefined && JSON.stringify(value) !== JSON.stringify(byDefault.get(key));
  });
}

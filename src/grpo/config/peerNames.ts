/**
 * Names of our settings in verl (0.9.0) and TRL (GRPOConfig of 1.10, TrainingArguments, PEFT's LoraConfig), collected
 * from the schema. `webgrpo export` writes these names, hints at unknown keys read them, and
 * docs/reference/from-trl-verl.md is printed from them.
 */

import { type DocumentedKey, keyDocs } from './keys.ts';
import { TRAIN_SCHEMA } from './schema/index.ts';
import { isTree, leaves } from './tree.ts';

type PeerName = { key: string } & Pick<DocumentedKey, 'verl' | 'trl' | 'note'>;

const snake = (key: string) => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (key: string) => key.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/**
 * Returns verl's path by the rule: our key in snake_case, with `actor_rollout_ref.` in front for actor, rollout and
 * model.
 */
const verlPath = (key: string) =>
  /^(actor|rollout|model)\./.test(key) ? `actor_rollout_ref.${snake(key)}` : snake(key);

/** Our keys that have a name in verl or TRL, with that name. */
export const PEER_NAMES: readonly PeerName[] = keyDocs(TRAIN_SCHEMA).flatMap(({ path: key, verl, trl, note }) =>
  verl === undefined && trl === undefined
    ? []
    : [{ key, ...(verl && { verl: verl === '=' ? verlPath(key) : verl }), ...(trl && { trl }), ...(note && { note }) }],
);

/**
 * Settings of TRL and verl that correspond to a part of one of our keys, or to several values of it. Key '' means that
 * webgrpo has no such setting, for the given reason.
 */
export const OTHER_NAMES: readonly (readonly [peer: string, name: string, key: string, why?: string])[] = [
  ['TRL', 'adam_beta2', 'actor.optim.betas'],
  ['TRL', 'importance_sampling_level', 'actor.policyLoss.lossMode'],
  ['TRL', 'bf16', 'model.dtype'],
  ['TRL', 'fp16', 'model.dtype'],
  ['TRL', 'eval_strategy', 'trainer.testFreq'],
  ['TRL', 'save_strategy', 'trainer.saveFreq'],
  ['vLLM', 'max_tokens', 'data.maxResponseLength'],
  ['vLLM', 'async_scheduling', '', 'each pass is read before the next one starts'],
  ['Tinker', 'group_size', 'rollout.n'],
  ['TRL', 'use_vllm', '', 'the trainer samples itself'],
  ['TRL', 'vllm_mode', '', 'the trainer samples itself'],
  ['verl', 'n_gpus_per_node', '', 'a run has one device, or two by trainer.placement'],
  ['verl', 'nnodes', '', 'a run has one device, or two by trainer.placement'],
  ['verl', 'tensor_model_parallel_size', '', 'a run has one device, or two by trainer.placement'],
];

/**
 * Finds our key for a name of TRL, vLLM or Tinker, or for an override path of verl, ignoring case and with or without
 * its first part. Also returns the trainer or server that uses the name, and the reason if we have no such key.
 * Undefined if none uses it.
 */
export function ofPeer(
  path: string,
  known: ReadonlySet<string>,
): { key: string; peer: string; why?: string } | undefined {
  const plain = (name: string) => camel(name).replace(/^actorRolloutRef\./, '');
  for (const peer of ['verl', 'TRL'] as const) {
    const row = PEER_NAMES.find(({ key, verl, trl }) => {
      const name = peer === 'verl' ? verl : trl;
      return name !== undefined && plain(name) === plain(path) && known.has(key);
    });
    if (row) return { key: row.key, peer };
  }
  const last = plain(path).split('.').at(-1);
  // A name of TRL in one of our parts, such as actor.optim.learning_rate.
  const inner = PEER_NAMES.filter(
    ({ key, trl }) => trl !== undefined && camel(trl) === last && key.split('.').at(-1) !== last && known.has(key),
  );
  if (inner.length === 1) return { key: inner[0].key, peer: 'TRL' };
  const other = OTHER_NAMES.find(([, name, key]) => camel(name) === last && (key === '' || known.has(key)));
  return other && { peer: other[0], key: other[2], ...(other[3] && { why: other[3] }) };
}

/**
 * The first key inside an unknown part, as the user wrote it: `actor_rollout_ref.actor.lr` for `actor_rollout_ref`.
 */
export const firstKeyOf = (path: string, value: unknown): string =>
  isTree(value) ? (leaves(value, `${path}.`)[0]?.[0] ?? path) : path;

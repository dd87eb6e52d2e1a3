/** Describes what differs between two runs: "learning rate 0.0001 \u2192 0.0003", or as a name "lr 3e\u22124, reward guessing". */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { show } from '../../src/grpo/config/tree.ts';
import { changedKeys, parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import { type RunChange, rulesAt } from '../storage/runChanges.ts';
import { algorithmName } from './settings/fields.ts';
import { nameOf } from '../storage/saved.ts';
import type { SavedRun } from '../storage/savedRuns.ts';

const NAMES: Record<string, string> = {
  'algorithm.name': 'algorithm',
  'actor.policyLoss.lossMode': 'loss',
  'actor.optim.lr': 'learning rate',
  'trainer.totalTrainingSteps': 'steps',
  'rollout.n': 'tries per problem',
  'rollout.temperature': 'temperature',
  'data.trainBatchSize': 'problems per step',
  'data.maxResponseLength': 'tokens per try',
  'actor.clipRatioLow': 'clip below',
  'actor.clipRatioHigh': 'clip above',
  'actor.klLossCoef': 'KL coefficient',
  'task.name': 'task',
  'model.path': 'model',
  seed: 'seed',
};

/** Keys whose changes are listed first, in this order. A change of recipe also changes many other keys. */
const ORDER = Object.keys(NAMES);

/** Returns the differences, most important first. `before` is the text of config.yaml. */
export const changeWords = (before: string, after: TrainConfig): string[] =>
  sorted(before, after).map(
    ({ key, before, after }) => `${NAMES[key] ?? key} ${word(key, before)} \u2192 ${word(key, after)}`,
  );

function sorted(before: string, after: TrainConfig) {
  const rank = (key: string) => (ORDER.includes(key) ? ORDER.indexOf(key) : ORDER.length);
  return changedKeys(before, after).sort((a, b) => rank(a.key) - rank(b.key));
}

/** Configs by the text of config.yaml. Saved runs are read again after every checkpoint. */
const parsed = new Map<string, TrainConfig | undefined>();

/** Returns the config of a saved run; undefined if this version cannot read it. */
export function configOf({ config }: SavedRun): TrainConfig | undefined {
  if (!parsed.has(config)) parsed.set(config, read(config));
  return parsed.get(config);
}

function read(text: string): TrainConfig | undefined {
  try {
    return parseTrainConfig(text, { source: 'config.yaml', note: () => {} });
  } catch {
    return undefined;
  }
}

/** Short names of settings in the name of a run. */
const SHORT: Record<string, string> = { 'actor.optim.lr': 'lr', 'rollout.n': 'tries', 'task.name': 'task' };

/** Maximum number of changes in the name of a run. */
const MOST_IN_NAME = 3;

/**
 * Returns a name made of what a run changes: settings that differ from the run `before`, and rules. Returns the visitor's own name for the
 * run if there is one. Without a change, returns the run's start time.
 */
export function runName(run: SavedRun, before: SavedRun | undefined): string {
  const config = configOf(run);
  if (run.record.name !== undefined || !config) return nameOf(run);
  const changes = [...(before ? settingsIn(before.config, config) : []), ...rulesIn(run.changes)];
  if (changes.length === 0) return nameOf(run);
  const more = changes.length > MOST_IN_NAME ? `, ${changes.length - MOST_IN_NAME} more` : '';
  return `${changes.slice(0, MOST_IN_NAME).join(', ')}${more}`;
}

/** Cache of the words for changed settings, by the text of both configs. */
const compared = new Map<string, string[]>();

function settingsIn(before: string, after: TrainConfig): string[] {
  const key = `${before}\n---\n${JSON.stringify(after)}`;
  if (!compared.has(key))
    compared.set(
      key,
      sorted(before, after).map(
        ({ key, after }) => `${SHORT[key] ?? NAMES[key] ?? key.split('.').at(-1)} ${word(key, after)}`,
      ),
    );
  return compared.get(key)!;
}

/** Returns names of the custom rules that are in force at the end of a run. */
const rulesIn = (changes: readonly RunChange[]): string[] =>
  Object.values(rulesAt(changes, Infinity)).flatMap((rule) => (rule ? [rule.name] : []));

function word(key: string, value: unknown): string {
  if (value === undefined) return 'none';
  if (typeof value === 'number' && value !== 0 && Math.abs(value) < 0.001)
    return value.toExponential().replace('e-', 'e\u2212');
  if (typeof value !== 'string') return show(value);
  return key === 'algorithm.name' ? algorithmName(value) : value;
}

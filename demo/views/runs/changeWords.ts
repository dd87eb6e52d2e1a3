/** Describes the differences between the settings of two runs: "learning rate 0.0001 \u2192 0.0003". */

import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { show } from '../../../src/grpo/config/tree.ts';
import { changedKeys } from '../../../src/runs/configChanges.ts';

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

/** Order of the changes. A recipe changes many keys after its name. */
const ORDER = Object.keys(NAMES);

/** Returns the differences, most important first. `before` is the text of config.yaml. */
export function changeWords(before: string, after: TrainConfig): string[] {
  const rank = (key: string) => (ORDER.includes(key) ? ORDER.indexOf(key) : ORDER.length);
  return changedKeys(before, after)
    .sort((a, b) => rank(a.key) - rank(b.key))
    .map(({ key, before, after }) => `${NAMES[key] ?? key} ${word(before)} \u2192 ${word(after)}`);
}

function word(value: unknown): string {
  if (value === undefined) return 'none';
  if (typeof value === 'number' && value !== 0 && Math.abs(value) < 0.001)
    return value.toExponential().replace('e-', 'e\u2212');
  return typeof value === 'string' ? value : show(value);
}

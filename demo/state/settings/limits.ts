/** Limits on the runs that the page can show and store. The command line has no such limits. */

import { ConfigError } from '../../../src/errors.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { isKeptGguf, isRemote } from '../../../src/model/checkpoint/address.ts';
import { isShipped } from '../../engine/configs.ts';
import { warmStartName } from '../../engine/startModel.ts';

/** Maximum number of tries of a step, because all tries of the newest step are stored for viewing. */
const MAX_TRIES = 4096;

/** Maximum number of steps, because every step is a point of every curve. */
const MAX_STEPS = 10_000;

const whole = (n: number): string => n.toLocaleString('en');

/** Throws ConfigError for a run beyond the limits. @param source name of the recipe in the error */
export function refuseBeyondPage({ data, model, rollout, trainer }: TrainConfig, source: string): void {
  const { path } = model;
  if (!(isShipped(path) || isRemote(path) || isKeptGguf(path) || warmStartName(path)))
    throw new ConfigError(
      source,
      ['model.path'],
      `"model.path" is "${path}", but a page reads no folders of this machine. Use org/name of the Hugging Face Hub, or choose a .gguf file ` +
        'under "Your model".',
    );
  if (model.loraAdapterPath !== undefined)
    throw new ConfigError(
      source,
      ['model.loraAdapterPath'],
      `"model.loraAdapterPath" is "${model.loraAdapterPath}", but a page loads no adapter. Merge it into its model with "webgrpo merge", or ` +
        'use the command line.',
    );
  const [problems, steps] = [data.trainBatchSize, trainer.totalTrainingSteps];
  if (steps < 1 || steps > MAX_STEPS)
    throw new ConfigError(
      source,
      ['trainer.totalTrainingSteps'],
      `"trainer.totalTrainingSteps" is ${steps}, but the page allows 1 to ${whole(MAX_STEPS)}. The command line has no limit.`,
    );
  if (problems * rollout.n <= MAX_TRIES) return;
  const most = Math.max(1, Math.floor(MAX_TRIES / problems));
  throw new ConfigError(
    source,
    ['rollout.n', 'data.trainBatchSize'],
    `"rollout.n" is ${rollout.n}: ${whole(problems)} problems \u00d7 ${whole(rollout.n)} tries are ${whole(problems * rollout.n)} per step, but the ` +
      `page shows up to ${whole(MAX_TRIES)}. Use up to ${most}, or the command line.`,
  );
}

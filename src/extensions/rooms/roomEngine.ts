/** The engine of a worker: generates groups by agent loops with the task's tools, and loads new weights. */

import type { TrainConfig } from '../../grpo/config/types.ts';
import { generateOptions, type GenerationContext } from '../../grpo/generate/options.ts';
import { startGroups } from '../../grpo/generate/samples.ts';
import { recordsOf } from '../pipelines/index.ts';
import type { TrainerEngine } from '../../grpo/types.ts';
import { readSafetensors } from '../../model/checkpoint/safetensors.ts';
import { withRewardWeights } from '../../tasks/rewards/combine.ts';
import type { RoomEngine } from './joinRoom.ts';

/** Wraps an existing engine as a RoomEngine, which applies reward.weights to the task. `destroy` must destroy that engine. */
export function roomEngine(
  { config, engine, task: own }: GenerationContext & { engine: Pick<TrainerEngine, 'rollout' | 'tokenizer' | 'model'> },
  { adapter, destroy }: Pick<RoomEngine, 'adapter' | 'destroy'>,
): RoomEngine {
  const { rollout, model } = engine;
  const task = withRewardWeights(own, config.reward.weights);
  return {
    adapter,
    destroy,
    groupsAtOnce: groupsAtOnce(config),
    async useWeights(version, file) {
      await rollout.pause();
      await model.importWeights(readSafetensors(file, `weights of version ${version}`));
      await rollout.resetCache(version);
      await rollout.resume();
    },
    async generate({ uid, n, number, step, problem }, worker, put, signal) {
      const options = generateOptions({ config, engine, task }, step, n);
      const { groups, outside } = startGroups([problem], { ...options, firstGroup: number, globalStep: step, signal });
      const samples = await groups[0];
      signal.throwIfAborted();
      await Promise.all(recordsOf(samples, outside, { uid, worker }).map(put));
    },
  };
}

/** Number of groups whose samples fill the slots of the engine, plus one more, whose samples take the slots that become free. */
export const groupsAtOnce = ({ rollout }: TrainConfig): number => Math.ceil(rollout.maxNumSeqs / rollout.n) + 1;

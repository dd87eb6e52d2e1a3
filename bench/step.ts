/** Measures a complete GRPO step of the default recipe: seconds by phase, and how long the device was idle. */

import type { Gpu } from '../src/gpu/device.ts';
import type { TrainConfig } from '../src/grpo/config/types.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import { GrpoTrainer } from '../src/grpo/trainer.ts';
import type { ModelCheckpoint } from '../src/model/checkpoint/checkpoint.ts';
import { loadModel, type Weights } from '../src/model/weights/load.ts';
import { modelTokenizer } from '../src/model/tokenizer/modelTokenizer.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { type RolloutOptions, WgslRolloutEngine } from '../src/rollout/server/server.ts';
import type { Task } from '../src/tasks/task.ts';
import { engineSizes } from '../src/workers/engineSpec.ts';
import { busySeconds } from './busy.ts';
import type { Report } from './report.ts';

/** Smaller settings for --quick. */
export const QUICK_STEP = ['data.trainBatchSize=4', 'actor.ppoMiniBatchSize=2', 'rollout.n=4'];

/** The default recipe: its config, task and checkpoint, loaded by the caller. */
export interface StepInputs {
  config: TrainConfig;
  task: Task;
  loaded: Omit<ModelCheckpoint, 'weights'> & {
    weights: Weights;
    tokenizerJson: Record<string, unknown>;
    tokenizerConfigJson: Record<string, unknown>;
  };
  weights: 'checkpoint' | 'random';
}

/** Creates a trainer of the recipe on a new model. */
export async function recipeTrainer(
  gpu: Gpu,
  { config, task, loaded }: StepInputs,
  options: RolloutOptions = {},
): Promise<GrpoTrainer> {
  const sizes = engineSizes(config);
  const model = await loadModel(gpu, loaded.config, sizes.maxPositions, loaded.weights);
  const engine = {
    tokenizer: modelTokenizer(loaded),
    model: new WgslEngine(gpu, model, sizes.maxTokenLen),
    rollout: new WgslRolloutEngine(gpu, model, sizes.rollout, options),
  };
  return new GrpoTrainer({ config, task, engine });
}

export async function benchStep(gpu: Gpu, inputs: StepInputs): Promise<NonNullable<Report['step']>> {
  const { weights } = inputs;
  const trainer = await recipeTrainer(gpu, inputs);
  await trainer.step(); // compiles kernels and grows buffers
  let metrics: Metrics = {};
  const busy = await busySeconds(gpu, async () => void ({ metrics } = await trainer.step()));
  const phases = Object.fromEntries(
    Object.entries(metrics).flatMap(([name, s]) =>
      name.startsWith('timing_s/') && s > 0 ? [[name.slice('timing_s/'.length), s]] : [],
    ),
  );
  return {
    weights,
    phases,
    generatedTokensPerSecond: metrics['perf/gen_tokens_per_s'],
    ...(busy !== undefined && { idleShare: Math.max(0, 1 - busy / phases['step']) }),
  };
}

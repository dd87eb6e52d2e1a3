/** A whole GRPO step of the default recipe: by phase, and how long the device had nothing to do. */

import { readFileSync } from 'node:fs';
import { type LoadedModel, loadModel } from '../src/cli/checkpoints.ts';
import { openTask } from '../src/cli/openTask.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { parseTrainConfig } from '../src/grpo/config.ts';
import type { Metrics } from '../src/grpo/metrics.ts';
import { GrpoTrainer } from '../src/grpo/trainer.ts';
import { InputError } from '../src/model/errors.ts';
import { loadModel as loadOnto } from '../src/model/loadModel.ts';
import { initWeights } from '../src/model/params.ts';
import { ChatTokenizer } from '../src/model/tokenizer.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../src/rollout/engine.ts';
import { engineSizes } from '../src/workers/localEngine.ts';
import { busySeconds } from './busy.ts';
import { HEADLINE } from './models.ts';
import type { Report } from './report.ts';

const CONFIG = 'configs/gsm8k-tool.yaml';
const QUICK = ['data.trainBatchSize=4', 'actor.ppoMiniBatchSize=2', 'rollout.n=4'];

export async function benchStep(gpu: Gpu, quick: boolean): Promise<NonNullable<Report['step']>> {
  const config = parseTrainConfig(readFileSync(CONFIG, 'utf8'), { source: CONFIG, overrides: quick ? QUICK : [] });
  const { loaded, weights } = await modelOf(config.model.path);
  const sizes = engineSizes(config);
  const model = await loadOnto(gpu, loaded.config, sizes.maxPositions, loaded.weights);
  const engine = {
    tokenizer: new ChatTokenizer(loaded.tokenizerJson, loaded.tokenizerConfigJson),
    model: new WgslEngine(gpu, model, sizes.maxTokenLen),
    rollout: new WgslRolloutEngine(gpu, model, sizes.rollout),
  };
  const trainer = new GrpoTrainer({ config, task: await openTask(config.task), engine });
  await trainer.step(); // compiles, and grows what grows
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

/** The recipe's checkpoint, or random weights of its shape, which never stop before the limit. */
async function modelOf(path: string): Promise<{ loaded: LoadedModel; weights: 'checkpoint' | 'random' }> {
  try {
    return { loaded: await loadModel(path), weights: 'checkpoint' };
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    const config = { ...HEADLINE, hiddenSize: 96, intermediateSize: 288, numHiddenLayers: 3, headDim: 24 };
    const json = (name: string) => JSON.parse(readFileSync(`${path}/${name}`, 'utf8')) as Record<string, unknown>;
    const [tokenizerJson, tokenizerConfigJson] = [json('tokenizer.json'), json('tokenizer_config.json')];
    return {
      loaded: { config, weights: initWeights(config, 1), tokenizerJson, tokenizerConfigJson },
      weights: 'random',
    };
  }
}

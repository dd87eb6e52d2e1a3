/** Reads the default recipe from the files of a checkout. */

import { readFileSync } from 'node:fs';
import { type LoadedModel, loadModelFiles } from '../src/cli/run/checkpoints.ts';
import { openTask } from '../src/cli/run/openTask.ts';
import { parseTrainConfig } from '../src/extensions/yaml/index.ts';
import { InputError } from '../src/errors.ts';
import { initWeights } from '../src/model/params.ts';
import { HEADLINE } from './models.ts';
import { QUICK_STEP, type StepInputs } from './step.ts';

const CONFIG = 'configs/gsm8k-tool.yaml';

export async function loadStep(quick: boolean): Promise<StepInputs> {
  const overrides = quick ? QUICK_STEP : [];
  const config = parseTrainConfig(readFileSync(CONFIG, 'utf8'), { source: CONFIG, overrides });
  return { config, task: await openTask(config.task), ...(await modelOf(config.model.path)) };
}

/** Returns the recipe's checkpoint, or a model of its shape with random weights, whose samples always reach the token limit. */
async function modelOf(path: string): Promise<{ loaded: LoadedModel; weights: 'checkpoint' | 'random' }> {
  try {
    return { loaded: await loadModelFiles(path), weights: 'checkpoint' };
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

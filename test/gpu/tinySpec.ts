/** An engine's spec with a random tiny model, whose vocabulary is that of the GSM8K tokenizer. */
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { tinyConfig } from './tinyModel.ts';

/** A model of one layer, which is enough for tests of what happens around a model. */
export const chatConfig: ModelConfig = { ...tinyConfig, vocabSize: 512, numHiddenLayers: 1 };

export function tinySpec(config: TrainConfig, model = chatConfig, seed = 3) {
  const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
  const files = { weights: initWeights(model, seed), tokenizerJson, tokenizerConfigJson };
  return { ...engineSizes(config), config: model, ...files };
}

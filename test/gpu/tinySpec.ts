/** An engine's spec with a random tiny model, whose vocabulary is that of the GSM8K tokenizer. */
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import { buildGsm8kTokenizer } from '../../src/extensions/sft/tokenizer.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { tinyConfig } from './tinyModel.ts';

export const chatConfig: ModelConfig = { ...tinyConfig, vocabSize: 512 };

export function tinySpec(config: TrainConfig, model = chatConfig, seed = 3) {
  const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();
  const files = { weights: initWeights(model, seed), tokenizerJson, tokenizerConfigJson };
  return { ...engineSizes(config), config: model, ...files };
}

/** A tiny random model with the example's config, for tests of Learner. */
import { config } from '../../examples/grpo-loop.ts';
import { initWeights } from '../../src/model/params.ts';
import { buildGsm8kTokenizer } from '../../src/tasks/gsm8k/tokenizer.ts';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { engineSizes } from '../../src/workers/localEngine.ts';
import { tinyConfig } from './tinyModel.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();

export function learnerSpec(more: Partial<EngineSpec> = {}): EngineSpec {
  const model = { ...tinyConfig, vocabSize: 512, initializerRange: 0.1 };
  const weights = initWeights(model, 9);
  return { ...engineSizes(config), config: model, weights, tokenizerJson, tokenizerConfigJson, ...more };
}

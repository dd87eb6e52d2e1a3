/**
 * Supervised training on demonstrations, which makes start models for GRPO. Used by `webgrpo sft`, by GRPO runs whose `model.path` is the
 * config of a supervised run (on the command line and in the page), and by programs through the library.
 */

export { freshModelConfig, type SftExample, type SftOptions, trainSupervised } from './sft.ts';
export { exampleStream, freshModel, generatedTokenizer, type TokenizerOnly } from './startModel.ts';
export { buildTokenizer } from './tokenizer.ts';
export { taskTokenizer } from './taskExamples.ts';
export { isGsm8k, SFT_SCHEMA, type SftConfig } from './schema.ts';
export { parseSftConfig } from './text.ts';

/** Creates a start model for GRPO from the config of a supervised run: new random weights, trained on a task's demonstrations. */

import type { CheckpointWithTokenizer } from '../../model/checkpoint/checkpoint.ts';
import { initWeights } from '../../model/params.ts';
import { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { buildGsm8kTokenizer, type TokenizerFiles } from './tokenizer.ts';
import type { Gsm8kProblem } from '../../tasks/gsm8k/task.ts';
import { keyedRng } from '../../tasks/random.ts';
import { demonstration, demonstrationTokens, swapOnlyIn } from './demonstrations.ts';
import { exampleOf, taskTokenizer } from './taskExamples.ts';
import type { Task } from '../../tasks/task.ts';
import { isGsm8k, type SftConfig } from './schema.ts';
import { freshModelConfig, type SftExample } from './sft.ts';

/** Trains a tokenizer on the text of a task whose problems are generated. */
export async function generatedTokenizer({ model, task }: SftConfig, opened: Task): Promise<TokenizerFiles> {
  return isGsm8k(task) ? buildGsm8kTokenizer(model.vocabSize) : taskTokenizer(opened, model.vocabSize);
}

/** The files of a tokenizer, without a model. */
export type TokenizerOnly = Omit<CheckpointWithTokenizer, 'config' | 'weights'>;

/** Creates a model with new random weights of the config's sizes, and the given tokenizer. */
export function freshModel(config: SftConfig, tokenizer: TokenizerOnly): CheckpointWithTokenizer {
  const { vocabSize } = new ChatTokenizer(tokenizer.tokenizerJson, tokenizer.tokenizerConfigJson);
  const model = freshModelConfig(config, vocabSize);
  return { config: model, weights: initWeights(model, config.seed), ...tokenizer };
}

/**
 * Returns a function of a demonstration's number, for any number from 0: it takes the task's problem of this number and demonstrates its
 * solution, with mistakes at the config's rates.
 */
export function exampleStream(
  { task, seed, data }: SftConfig,
  tokenizer: ChatTokenizer,
  source: Task,
): (index: number) => Promise<SftExample> {
  const { guessRate, firstOperationErrorRate, laterErrorRate, swappedTemplates } = data.demonstrations;
  if (!isGsm8k(task)) return (index) => exampleOf(source, tokenizer, seed, index, laterErrorRate);
  const rates = { guessed: guessRate, firstSwapped: firstOperationErrorRate, laterWrong: laterErrorRate };
  const errors = swapOnlyIn(rates, swappedTemplates ?? '');
  return async (index) => {
    const problem = (await source.train(index, seed)) as Gsm8kProblem;
    return demonstrationTokens(
      tokenizer,
      problem,
      demonstration(problem, keyedRng('sft-mistakes', seed, index), errors),
    );
  };
}

/**
 * Supervised training on demonstrations, to make a start model for GRPO. The loss is the mean negative log-likelihood of the trained
 * tokens.
 */

import { NotFiniteError } from '../../errors.ts';
import { type ModelConfig, parseModelConfig } from '../../model/config.ts';
import type { ModelEngine } from '../../model/engine.ts';
import { packGroups } from '../../model/packing.ts';
import type { RolloutEngine } from '../../rollout/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { lrFactor, warmupSteps } from '../../grpo/update/learningRate.ts';
import type { SftConfig } from './schema.ts';

/** A demonstration to imitate: prompt tokens, then T response tokens. The mask selects the trained ones. */
export interface SftExample {
  /** Prompt tokens; they are not trained on. */
  promptIds: Uint32Array;
  /** [T] tokens after the prompt, including tool outputs. */
  responseIds: Uint32Array;
  /** [T] 1 = the token is trained on; 0 for tool outputs. */
  mask: Uint8Array;
}

/** Options of `trainSupervised`. */
export interface SftOptions {
  /** Result of `resolveSftConfig`, with batch size, learning rate and number of steps. */
  config: SftConfig;
  /** The model to train, or a complete engine. The KV cache of a complete engine is cleared at the end. */
  engine: ModelEngine | { model: ModelEngine; rollout: Pick<RolloutEngine, 'resetCache'> };
  /** Returns demonstration number `index`, for any index from 0. */
  example(index: number): SftExample | Promise<SftExample>;
  /** Called with the metrics of each step. The next step starts when the returned promise has resolved. */
  onStep?(metrics: Metrics): void | Promise<void>;
  /** Called before each step; the training ends if it returns true. */
  shouldStop?(): boolean;
}

/**
 * Trains on `trainBatchSize` demonstrations per step, for totalTrainingSteps or until `shouldStop` returns true. Throws RangeError for a
 * demonstration longer than data.maxLength.
 */
export async function trainSupervised({
  config,
  engine: given,
  example,
  onStep,
  shouldStop,
}: SftOptions): Promise<void> {
  const engine = 'model' in given ? given.model : given;
  const { data, optim, trainer } = config;
  const { optimizer, betas, eps, weightDecay, gradClip, lrSchedulerType } = optim;
  const { totalTrainingSteps } = trainer;
  const lrWarmupSteps = warmupSteps(optim, totalTrainingSteps);
  const schedule = { lrSchedulerType, lrWarmupSteps, totalTrainingSteps, minLrRatio: 0, numCycles: 0.5 };
  for (let step = 0; step < totalTrainingSteps && !shouldStop?.(); step++) {
    const started = performance.now();
    const first = step * data.trainBatchSize;
    const { loss, tokens } = await accumulate(
      engine,
      await exampleBatch(example, first, config),
      data.maxTokenLenPerGpu,
    );
    const lr = optim.lr * lrFactor(schedule, step);
    const options = { optimizer, lr, beta1: betas[0], beta2: betas[1], eps, weightDecay, gradClip };
    const { gradNorm } = await engine.optimizerStep(options);
    if (!Number.isFinite(loss))
      throw new NotFiniteError(step + 1, `The loss is ${loss} at step ${step + 1}. Lower optim.lr (${optim.lr}).`);
    const seconds = (performance.now() - started) / 1000;
    await onStep?.({
      'training/global_step': step + 1,
      'train/loss': loss,
      'train/grad_norm': gradNorm,
      'train/lr': lr,
      'perf/trained_tokens': tokens,
      'timing_s/step': seconds,
    });
  }
  if ('model' in given) await given.rollout.resetCache();
}

/**
 * Returns the model config of a Llama with the sizes in `model` and the given vocabulary size. `initWeights` creates weights for it. Throws
 * InputError if the sizes do not fit together.
 */
export function freshModelConfig({ model }: Pick<SftConfig, 'model'>, vocabSize: number): ModelConfig {
  return parseModelConfig({
    architectures: ['LlamaForCausalLM'],
    vocab_size: vocabSize,
    hidden_size: model.hiddenSize,
    intermediate_size: model.intermediateSize,
    num_hidden_layers: model.numHiddenLayers,
    num_attention_heads: model.numAttentionHeads,
    num_key_value_heads: model.numKeyValueHeads,
    max_position_embeddings: model.maxPositionEmbeddings,
    initializer_range: model.initializerRange,
    tie_word_embeddings: true,
  });
}

async function exampleBatch(example: SftOptions['example'], first: number, { data }: SftConfig): Promise<SftExample[]> {
  const examples = await Promise.all(Array.from({ length: data.trainBatchSize }, async (_, i) => example(first + i)));
  examples.forEach((made, i) => {
    const length = made.promptIds.length + made.responseIds.length;
    if (length > data.maxLength)
      throw new RangeError(
        `Trace ${first + i} has ${length} tokens but data.maxLength is ${data.maxLength}. Raise it.`,
      );
  });
  return examples;
}

/** Runs forward and backward passes over a batch. Every trained token has the same weight. Returns the mean loss in nats. */
async function accumulate(engine: ModelEngine, examples: SftExample[], maxTokenLen: number) {
  const groups = examples.map(({ promptIds, responseIds, mask }) => ({
    prompt: promptIds,
    samples: [{ tokens: responseIds, mask }],
  }));
  const microBatches = packGroups(groups, maxTokenLen);
  const tokens = microBatches.reduce((sum, { batch }) => sum + batch.targets.length, 0);
  let loss = 0;
  for (const { batch } of microBatches) {
    const weights = new Float32Array(batch.targets.length).fill(1 / tokens);
    const { logProbs } = await engine.forwardBackward(batch, { kind: 'nll', weights }, { temperature: 1 });
    for (const logProb of logProbs) loss -= logProb / tokens;
  }
  return { loss, tokens };
}

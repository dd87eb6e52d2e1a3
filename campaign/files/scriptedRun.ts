/** A run of the real trainer into a real folder, over an engine that computes in microseconds what depends on all that it has seen. */

import { readFileSync } from 'node:fs';
import { RunFolder } from '../../src/runs/runFolder.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { newestCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { firstAttempt } from '../../src/cli/run/freshDevice.ts';
import { TrainingRun } from '../../src/cli/commands/train.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainerEngine } from '../../src/grpo/types.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { ModelEngine, TensorMap } from '../../src/model/engine.ts';
import { initWeights } from '../../src/model/params.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import type { GenerateRequest, RolloutEngine } from '../../src/rollout/types.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import type { Task } from '../../src/tasks/task.ts';

const MODEL: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 512,
  hiddenSize: 8,
  intermediateSize: 8,
  numHiddenLayers: 1,
  numAttentionHeads: 2,
  numKeyValueHeads: 1,
  headDim: 4,
  rmsNormEps: 1e-6,
  ropeTheta: 10000,
  ropeScaling: null,
  maxPositionEmbeddings: 256,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.3,
};

const readJson = (path: string) => JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
const TOKENIZER = new ChatTokenizer(
  readJson('checkpoints/gsm8k-tool/tokenizer.json'),
  readJson('checkpoints/gsm8k-tool/tokenizer_config.json'),
);

/** Weights, moments and updates; what it says and learns follows from them, bit by bit. */
export class TinyEngine {
  weights: TensorMap = initWeights(MODEL, 1);
  moments: TensorMap = new Map(
    [...this.weights].map(([name, { shape, data }]) => [name, { shape, data: data.map(() => 0) }]),
  );
  steps = 0;
  gradient = 0;

  get state(): number {
    return this.weights
      .get('model.embed_tokens.weight')!
      .data.reduce((sum, value) => Math.fround(sum * 0.9 + value), 0);
  }

  get model(): ModelEngine {
    const copy = (tensors: TensorMap): TensorMap =>
      new Map([...tensors].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]));
    const suffixed = (suffix: string) =>
      [...copy(this.moments)].map(([name, tensor]) => [`${name}.${suffix}`, tensor] as const);
    return {
      name: 'wgsl',
      config: MODEL,
      forwardBackward: async (batch, loss) => {
        if (loss.kind !== 'policy') throw new Error('not used here');
        const { oldLogProbs, advantages } = loss.inputs;
        advantages.forEach((advantage, i) => (this.gradient += advantage * (1 + (batch.targets[i] % 5))));
        return { logProbs: oldLogProbs.slice(), entropy: oldLogProbs.map(() => 0.5) };
      },
      optimizerStep: async ({ lr }) => {
        const gradNorm = Math.abs(this.gradient);
        for (const [name, { data }] of this.weights) {
          const moment = this.moments.get(name)!.data;
          data.forEach((_, i) => {
            moment[i] = 0.9 * moment[i] + Math.abs(this.gradient) * 0.01 + i * 1e-3;
            data[i] -= lr * moment[i] * Math.sin(this.steps + i);
          });
        }
        this.steps++;
        this.gradient = 0;
        return { gradNorm, skipped: false };
      },
      exportWeights: async () => copy(this.weights),
      importWeights: async (tensors) => void (this.weights = copy(tensors)),
      exportOptimizer: async () =>
        new Map([
          ['step', { shape: [1], data: Float32Array.of(this.steps) }],
          ...suffixed('exp_avg'),
          ...suffixed('exp_avg_sq'),
        ]),
      importOptimizer: async (tensors) => {
        this.steps = tensors.get('step')!.data[0];
        for (const [name, { shape }] of this.moments)
          this.moments.set(name, { shape, data: tensors.get(`${name}.exp_avg`)!.data.slice() });
      },
    } satisfies Partial<ModelEngine> as unknown as ModelEngine;
  }

  get rollout(): RolloutEngine {
    return {
      generate: async ({ key, sampling }: GenerateRequest) => {
        const rng = keyedRng('says', key[0], key[1] + Math.round(this.state * 1e4));
        const said = TOKENIZER.encode(`#### ${Math.floor(rng.uniform() * 50)}`);
        const tokenIds = Uint32Array.from([...said, sampling.stopTokenIds[0]]);
        return { tokenIds, logProbs: Float32Array.from(tokenIds, () => -rng.uniform()), stopReason: 'stop' };
      },
      release: () => {},
      abort: () => {},
      resetCache: () => {},
      takeStats: async () => ({
        ...{ generatedTokens: 1, prefillTokens: 1, cachedTokens: 0, decodeSteps: 1, wastedRows: 0, liveRows: 1 },
        ...{ preemptions: 0, draftTokens: 0, acceptedTokens: 0, verifications: 0 },
      }),
    };
  }
}

/** Moves its own difficulty, so that a checkpoint has a part of its own. */
function tinyTask(): Task {
  let seen = 0;
  const problem = (index: number) => ({
    id: `tiny-${index}`,
    messages: [{ role: 'user' as const, content: `What is ${index} + ${seen % 7}?` }],
    answer: String(index),
    dataSource: 'tiny',
  });
  return {
    name: 'tiny',
    train: (index) => problem(index),
    heldOut: (count) => Array.from({ length: count }, (_, i) => problem(1000 + i)),
    reward: ({ response }) => {
      const score = (Number(/\d+/.exec(response)?.[0] ?? 0) % 5) / 4;
      return { score, acc: Math.round(score) };
    },
    observe: () => void seen++,
    state: () => seen,
    restore: (state) => void (seen = state as number),
  };
}

/** Runs until done, from the checkpoint folder `from`, or the newest whole one where there is one. */
export async function runOn(files: FileSystem, path: string, trainer: object, from?: string): Promise<void> {
  const config = resolveTrainConfig({
    name: 'run',
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxPromptLength: 64, maxResponseLength: 32, valMaxSamples: 2 },
    rollout: { n: 2 },
    actor: { ppoMiniBatchSize: 2, optim: { lr: 0.01 } },
    trainer: {
      totalTrainingSteps: 8,
      saveFreq: 2,
      testFreq: 4,
      valBeforeTrain: true,
      profile: false,
      logger: ['jsonl'],
      ...trainer,
    },
  });
  const tiny = new TinyEngine();
  const engine: TrainerEngine = { tokenizer: TOKENIZER, model: tiny.model, rollout: tiny.rollout };
  const model = {
    config: MODEL,
    weights: tiny.weights,
    tokenizerJson: {},
    tokenizerConfigJson: {},
    base: 'in memory',
  };
  const attempt = firstAttempt(from ?? (await newestCheckpoint(files, path, 'trainer')));
  const run = new TrainingRun(config, { model, task: tinyTask(), engine }, RunFolder.open(files, path), attempt);
  await run.prepare();
  await run.fit();
}

/** `webgrpo sft`: supervised training on the task's demonstrations, from fresh weights or from a checkpoint. */

import { join } from 'node:path';
import { parseSftConfig, resolveTrainConfig } from '../../grpo/config.ts';
import { trainSupervised } from '../../grpo/sft.ts';
import type { SftConfig } from '../../grpo/sftSchema.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import { type ModelConfig, parseModelConfig } from '../../model/config.ts';
import { initWeights, parameterCount } from '../../model/params.ts';
import { ChatTokenizer } from '../../model/tokenizer.ts';
import { demonstration, demonstrationTokens, swapOnlyIn } from '../../tasks/demonstrations.ts';
import type { Gsm8kProblem } from '../../tasks/gsm8k.ts';
import { buildGsm8kTokenizer, buildTokenizer } from '../../tasks/gsm8kTokenizer.ts';
import { keyedRng } from '../../tasks/random.ts';
import { exampleOf, taskTokenizer } from '../../tasks/warmStart.ts';
import { engineSizes } from '../../workers/localEngine.ts';
import { oneFile } from '../args.ts';
import { type LoadedModel, loadModel, saveModel } from '../checkpoints.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { readJson, readText } from '../files.ts';
import { onInterrupt } from '../interrupt.ts';
import { openTask, readGsm8k } from '../openTask.ts';
import { greedyAcc, passAt1, say } from '../progress.ts';
import { RunFolder } from '../runFolder.ts';
import { openEngine } from '../session.ts';

export const sft: Command = {
  summary: 'supervised training on demonstrations: the warm start of GRPO',
  usage: ['sft configs/gsm8k-sft.yaml', 'sft configs/gsm8k-sft.yaml trainer.totalTrainingSteps=100'],
  flags: JSON_FLAG,
  async run({ positionals, overrides }, io) {
    const source = oneFile(positionals, 'config');
    const config = parseSftConfig(await readText(source), { source, overrides });
    const model = await startModel(config);
    const path = join(config.trainer.outDir, config.name);
    const { folder, moved } = await RunFolder.create(path, config);
    if (moved) say(`an earlier run of that name is kept as ${moved}`);
    const losses = await runSft(config, model, folder);
    const after = await evaluate(config, model);
    await folder.appendMetrics({ 'training/global_step': losses.length, ...after });
    io.text(
      `  ${losses.length} steps: loss ${losses[0]?.toFixed(3)} -> ${losses.at(-1)?.toFixed(3)}, ` +
        `pass@1 ${passAt1(after)?.toFixed(3)}, greedy ${greedyAcc(after)?.toFixed(3)}\n  model: ${path}`,
    );
    io.result({
      run: path,
      steps: losses.length,
      loss: losses.at(-1) ?? null,
      passAt1: passAt1(after),
      greedy: greedyAcc(after),
    });
  },
};

/** Fresh weights and a tokenizer trained on the task's text, unless the config names some. */
async function startModel(config: SftConfig): Promise<LoadedModel> {
  if (config.model.path !== undefined) return loadModel(config.model.path);
  const { tokenizerJson, tokenizerConfigJson } = await startTokenizer(config);
  const { vocabSize } = new ChatTokenizer(tokenizerJson, tokenizerConfigJson);
  const model = freshModelConfig(config, vocabSize);
  say(`model: fresh, ${(parameterCount(model) / 1e6).toFixed(2)} M parameters, vocabulary ${vocabSize}`);
  return { config: model, weights: initWeights(model, config.seed), tokenizerJson, tokenizerConfigJson };
}

async function startTokenizer({ model, task }: SftConfig) {
  if (model.tokenizerPath !== undefined) {
    const read = async (name: string) => (await readJson(join(model.tokenizerPath!, name))) as Record<string, unknown>;
    return { tokenizerJson: await read('tokenizer.json'), tokenizerConfigJson: await read('tokenizer_config.json') };
  }
  const files = await trainTokenizer(task, model.vocabSize);
  return { tokenizerJson: files.tokenizer, tokenizerConfigJson: files.config };
}

async function trainTokenizer(task: SftConfig['task'], vocabSize: number) {
  if (task.name !== 'gsm8k') return taskTokenizer(await openTask(task), vocabSize);
  if (task.path === undefined) return buildGsm8kTokenizer(vocabSize);
  return buildTokenizer((await readGsm8k(task)).train, vocabSize);
}

function freshModelConfig({ model }: SftConfig, vocabSize: number): ModelConfig {
  return parseModelConfig({
    architectures: ['LlamaForCausalLM'],
    vocab_size: vocabSize,
    hidden_size: model.hiddenSize,
    intermediate_size: model.intermediateSize,
    num_hidden_layers: model.numHiddenLayers,
    num_attention_heads: model.numAttentionHeads,
    num_key_value_heads: model.numKeyValueHeads,
    max_position_embeddings: model.maxPositionEmbeddings,
    tie_word_embeddings: true,
  });
}

/** Trains, writes metrics and the final checkpoint, and puts the weights into `model`. Returns the loss of each step. */
async function runSft(config: SftConfig, model: LoadedModel, folder: RunFolder): Promise<number[]> {
  const { engine: name, data, trainer } = config;
  const engine = await openEngine(model, { engine: name, maxTokenLen: data.maxTokenLen, maxPositions: data.maxLength });
  const losses: number[] = [];
  let stopped = false;
  const removeHandler = onInterrupt(() => {
    stopped = true;
    say('Stopping after this step; press Ctrl-C again to quit without saving.');
  });
  try {
    await trainSupervised({
      config,
      engine: engine.model,
      example: await exampleStream(config, engine.tokenizer),
      shouldStop: () => stopped,
      onStep: async (metrics) => {
        losses.push(metrics['train/loss']);
        await folder.appendMetrics(metrics);
        const speed = metrics['perf/trained_tokens'] / metrics['timing_s/step'];
        const step = metrics['training/global_step'];
        if (step % 10 === 0 || step === 1)
          say(
            `step ${step}/${trainer.totalTrainingSteps}  loss ${losses.at(-1)!.toFixed(4)}  tokens/s ${speed.toFixed(0)}`,
          );
      },
    });
    const weights = await engine.model.exportWeights();
    model.weights = weights;
    await saveModel(folder.checkpoint(losses.length), { ...model, weights });
    return losses;
  } finally {
    removeHandler();
    engine.destroy();
  }
}

/** Demonstration `index` of an endless stream: the task's problem of that number, with its own mistakes. */
async function exampleStream({ task, seed, data }: SftConfig, tokenizer: ChatTokenizer) {
  const source = await openTask(task);
  if (task.name !== 'gsm8k')
    return (index: number) => exampleOf(source, tokenizer, seed, index, data.demonstrations.laterErrorRate);
  const { guessRate, firstOperationErrorRate, laterErrorRate, swappedTemplates } = data.demonstrations;
  const rates = { guessed: guessRate, firstSwapped: firstOperationErrorRate, laterWrong: laterErrorRate };
  const errors = swapOnlyIn(rates, swappedTemplates ?? '');
  return (index: number) => {
    const problem = source.train(index, seed) as Gsm8kProblem;
    const rng = keyedRng('sft-mistakes', seed, index);
    return demonstrationTokens(tokenizer, problem, demonstration(problem, rng, errors));
  };
}

/** Room for every task's demonstrations. */
const MANY_TURNS = { maxAssistantTurns: 12, maxToolCalls: 12, maxToolResponseLength: 256 };

/** Held-out accuracy of the trained model, sampled as the GRPO recipe samples. */
async function evaluate(config: SftConfig, model: LoadedModel) {
  const half = Math.floor(config.data.maxLength / 2);
  const evalConfig = resolveTrainConfig({
    name: config.name,
    seed: config.seed,
    model: { path: 'in memory' },
    data: { valSize: config.data.valSize, maxPromptLength: half, maxResponseLength: config.data.maxLength - half },
    ...(config.task.name !== 'gsm8k' && { rollout: { multiTurn: MANY_TURNS } }),
  });
  const engine = await openEngine(model, engineSizes(evalConfig));
  try {
    const trainer = new GrpoTrainer({ config: evalConfig, task: await openTask(config.task), engine });
    return await trainer.validate({ greedy: true });
  } finally {
    engine.destroy();
  }
}

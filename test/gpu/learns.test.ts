/**
 * A model of random weights learns reverse-text with the shipped configs. In the everyday tests, a run in the page shows that the reward
 * rises (train.spec.ts).
 */
import { expect, test } from 'vitest';
import grpoYaml from '../../configs/reverse-text.yaml?raw';
import sftYaml from '../../configs/reverse-text-sft.yaml?raw';
import { parseSftConfig } from '../../src/extensions/sft/text.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { freshModelConfig, trainSupervised } from '../../src/extensions/sft/sft.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { optimizerOf } from '../../src/model/optimizer/spec.ts';
import { initWeights } from '../../src/model/params.ts';
import { reverseTextTask } from '../../src/extensions/tasks/reverseText.ts';
import { exampleOf, taskTokenizer } from '../../src/extensions/sft/taskExamples.ts';
import { createLocalEngine, engineSizes } from '../../src/workers/localEngine.ts';
import { isFull } from './full.ts';

const STEPS = 24;
/** Number of steps at the start and at the end whose mean rewards are compared. */
const SPAN = 6;

test.runIf(isFull)(
  'reverse-text: imitation from random weights, then a reward that GRPO raises by far more than chance',
  async () => {
    const task = reverseTextTask();
    const sft = parseSftConfig(sftYaml, { source: 'reverse-text-sft.yaml' });
    const files = await taskTokenizer(task, sft.model.vocabSize);
    const model = freshModelConfig(sft, sft.model.vocabSize);
    const spec = { config: model, tokenizerJson: files.tokenizer, tokenizerConfigJson: files.config };

    const { maxTokenLenPerGpu: maxTokenLen, maxLength } = sft.data;
    const teacher = await createLocalEngine({
      ...spec,
      engine: 'wgsl',
      weights: initWeights(model, sft.seed),
      maxTokenLen,
      maxPositions: maxLength,
    });
    const losses: number[] = [];
    await trainSupervised({
      config: sft,
      engine: teacher.model,
      example: (index) => exampleOf(task, teacher.tokenizer, sft.seed, index, 0),
      onStep: (metrics) => void losses.push(metrics['train/loss']),
    });
    expect(losses[0]).toBeGreaterThan(5);
    expect(losses.at(-1)).toBeLessThan(1);
    const weights = await teacher.model.exportWeights();
    teacher.destroy();

    const overrides = [`trainer.totalTrainingSteps=${STEPS}`, 'trainer.valBeforeTrain=false', 'data.valMaxSamples=8'];
    const config = parseTrainConfig(grpoYaml, { source: 'reverse-text.yaml', overrides });
    const engine = await createLocalEngine({ ...engineSizes(config), ...spec, weights });
    const { history } = await new GrpoTrainer({ config, task, engine }).fit();
    engine.destroy();
    const rewards = history.map((metrics) => metrics['critic/score/mean']);
    const [first, last] = [meanOf(rewards.slice(0, SPAN)), meanOf(rewards.slice(-SPAN))];
    expect(last.mean - first.mean, `rewards ${rewards.join(', ')}`).toBeGreaterThan(
      3 * Math.hypot(first.error, last.error),
    );
    expect(last.mean - first.mean).toBeGreaterThan(0.08);
    expect(Math.max(...history.map((metrics) => metrics['training/rollout_probs_diff_max'] ?? 0))).toBeLessThanOrEqual(
      1e-6,
    );
  },
);

/** Tests that each optimizer learns. optimizers.test.ts compares their numbers to float64. */
test.runIf(isFull).each([
  ['Muon', 3e-3],
  ['SignSGD', 1e-3],
  ['SGD', 0.3],
] as const)('imitation by %s, its rate falling from %d, gets far below the loss of a guess', async (optimizer, lr) => {
  const task = reverseTextTask();
  const steps = 40;
  const momentum = optimizer === 'SGD' ? ['optim.momentum=0.9'] : [];
  const overrides = [
    `optim.optimizer=${optimizer.toLowerCase()}`,
    `optim.lr=${lr}`,
    'optim.lrWarmupSteps=5',
    `trainer.totalTrainingSteps=${steps}`,
    'data.trainBatchSize=24',
    ...momentum,
  ];
  const sft = parseSftConfig(sftYaml, { source: 'reverse-text-sft.yaml', overrides });
  const files = await taskTokenizer(task, sft.model.vocabSize);
  const model = freshModelConfig(sft, sft.model.vocabSize);
  const engine = await createLocalEngine({
    engine: 'wgsl',
    config: model,
    weights: initWeights(model, sft.seed),
    tokenizerJson: files.tokenizer,
    tokenizerConfigJson: files.config,
    maxTokenLen: sft.data.maxTokenLenPerGpu,
    maxPositions: sft.data.maxLength,
    optimizer: optimizerOf(sft.optim),
  });
  const losses: number[] = [];
  await trainSupervised({
    config: sft,
    engine: engine.model,
    example: (index) => exampleOf(task, engine.tokenizer, sft.seed, index, 0),
    onStep: (metrics) => void losses.push(metrics['train/loss']),
  });
  engine.destroy();
  expect(losses[0]).toBeGreaterThan(5);
  // A model that knows only that answers consist of letters, each equally likely, has a loss of ln 26 = 3.26 nats.
  expect(losses.at(-1), losses.map((loss) => loss.toFixed(2)).join(' ')).toBeLessThan(2.6);
});

/** Returns the mean with its standard error. */
function meanOf(values: number[]): { mean: number; error: number } {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
  return { mean, error: Math.sqrt(variance / values.length) };
}

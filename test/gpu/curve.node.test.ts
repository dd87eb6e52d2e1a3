/**
 * Compares 20 steps of a tiny model (every day 3), and fewer steps of some variants, to stored curves, on SwiftShader. A refactoring must keep every
 * number of test/fixtures/curve.json bit for bit. A commit that changes numbers on purpose writes the file again and explains why:
 *
 *   WRITE_CURVE=1 npm test -- gpu curve
 *
 * Other adapters round differently, so the test is skipped there.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  createLocalEngine,
  GrpoTrainer,
  gsm8kToolTask,
  type Metrics,
  type ModelConfig,
  resolveTrainConfig,
  type Sample,
} from '../../src/index.ts';
import { isFull } from './full.ts';
import { tinyConfig } from './tinyModel.ts';
import { tinySpec } from './tinySpec.ts';
import { throughJson } from '../json.ts';

const FILE = 'test/fixtures/curve.json';

const MODEL: ModelConfig = {
  ...tinyConfig,
  vocabSize: 512,
  hiddenSize: 48,
  intermediateSize: 72,
  numAttentionHeads: 3,
  numKeyValueHeads: 1,
  headDim: 16,
  initializerRange: 0.1,
};

interface Case {
  /** Steps of the stored curve. */
  steps: number;
  model?: Partial<ModelConfig>;
  config: Record<string, Record<string, unknown>>;
}

const CASES: Record<string, Case> = {
  grpo: { steps: 20, config: { rollout: { n: 4, maxNumSeqs: 13 } } },
  // Runs only with --full. Its stored numbers are older than the setting skipZeroAdvantages.
  'grpo, every sample computed': {
    steps: 20,
    config: { rollout: { n: 4, maxNumSeqs: 13 }, actor: { skipZeroAdvantages: false } },
  },
  'dapo, filtered groups, Qwen2 biases, top-p': {
    steps: 3,
    model: { architecture: 'Qwen2ForCausalLM', qkvBias: true, headDim: 24 },
    config: { algorithm: { name: 'dapo' }, rollout: { n: 4, topP: 0.9, repetitionPenalty: 1.1 } },
  },
  'sapo, LoRA, KL to the reference, checkpointing, untied Qwen3': {
    steps: 3,
    model: { architecture: 'Qwen3ForCausalLM', qkNorm: true, tieWordEmbeddings: false, headDim: 10 },
    config: {
      model: { loraRank: 4, enableGradientCheckpointing: true },
      algorithm: { name: 'sapo' },
      actor: { useKlLoss: true, klLossCoef: 0.05, ppoEpochs: 2, optim: { lr: 2.5e-4 } },
      rollout: { n: 4 },
    },
  },
  'gspo, rloo, entropy bonus, stop strings': {
    steps: 3,
    config: {
      algorithm: { name: 'gspo', advEstimator: 'rloo' },
      actor: { entropyCoeff: 0.01 },
      rollout: { n: 4, stop: ['7', '3'] },
    },
  },
};

/** Metrics of a step that the stored curve contains. All metrics of held-out evaluations are also compared. */
const KEYS = [
  'critic/score/mean',
  'critic/advantages/max',
  'actor/pg_loss',
  'actor/kl_loss',
  'actor/entropy',
  'actor/grad_norm',
  'training/rollout_probs_diff_max',
];
const isHeld = (key: string) => KEYS.includes(key) || key.startsWith('val-core/');

async function curve({ steps, model: change = {}, config: asked }: Case) {
  const config = resolveTrainConfig({
    name: 'curve',
    seed: 5,
    ...asked,
    model: { path: 'in memory', ...asked['model'] },
    data: { trainBatchSize: 4, maxResponseLength: 24, maxPromptLength: 64, valMaxSamples: 8 },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256, ...asked['actor'] },
    trainer: { totalTrainingSteps: steps, testFreq: 10 },
  });
  const model = { ...MODEL, ...change };
  const engine = await createLocalEngine(tinySpec(config, model, 9));
  // A random model answers nothing correctly. Any reward that differs between samples produces gradients.
  const task = gsm8kToolTask();
  const reward: typeof task.reward = ({ response }) => ({ score: response.length % 7, acc: response.length % 2 });
  const rows: Record<string, number | string>[] = [];
  const onStep = (metrics: Metrics, samples: Sample[]) => {
    const held = Object.entries(metrics).filter(([key]) => isHeld(key));
    rows.push({ ...Object.fromEntries(held), samples: checksum(samples) });
  };
  await new GrpoTrainer({ config, task: { ...task, reward }, engine, onStep }).fit();
  const trained = checksumOf([...(await engine.model.exportWeights()).values()].map(({ data }) => bitsOf(data)));
  engine.destroy();
  return { rows, weights: trained };
}

const bitsOf = (data: ArrayBufferView) => new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);

/** Returns a checksum of every sampled token and of the bits of its log-prob. */
const checksum = (samples: Sample[]): string =>
  checksumOf(
    samples.flatMap(({ trajectory }) => [
      bitsOf(Uint32Array.from(trajectory.responseIds)),
      bitsOf(Float32Array.from(trajectory.logProbs)),
    ]),
  );

/** FNV-1a, 32 bits, as hex. */
function checksumOf(parts: Uint8Array[]): string {
  let hash = 0x811c9dc5;
  for (const part of parts) for (const byte of part) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, '0');
}

const adapter = await navigator.gpu.requestAdapter();
const onSwiftShader = /swiftshader/i.test(`${adapter?.info.architecture} ${adapter?.info.description}`);
/** Steps that the everyday tests compare: of 20 steps 3, of 3 steps 2. Later ones run the same code, and --full compares them. */
const everyday = (steps: number) => (steps > 3 ? 3 : 2);

const stored = () => JSON.parse(readFileSync(FILE, 'utf8')) as Record<string, Awaited<ReturnType<typeof curve>>>;

if (process.env['WRITE_CURVE']) {
  test('writes the curve', async () => {
    const made: Record<string, unknown> = {};
    for (const [name, one] of Object.entries(CASES)) made[name] = await curve(one);
    writeFileSync(FILE, `${JSON.stringify(made, null, 2)}\n`);
  });
} else {
  for (const [name, one] of Object.entries(CASES)) {
    test.runIf(onSwiftShader && (isFull || one.config['actor']?.['skipZeroAdvantages'] !== false))(
      `${name}: the stored curve, bit for bit`,
      async () => {
        const { rows, weights } = stored()[name];
        const steps = isFull ? one.steps : everyday(one.steps);
        const made = await curve({ ...one, steps });
        // The result is converted to JSON and back, which keeps every bit of a finite number.
        const seen = throughJson(made);
        if (steps === one.steps) expect(seen).toEqual({ rows, weights });
        // A run that ends earlier evaluates its last step more. Its weights are compared through the samples of the next step.
        else expect(seen.rows).toMatchObject(rows.slice(0, steps + 1));
      },
    );
  }
}

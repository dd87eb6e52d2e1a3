/** Benchmarks training steps: the headline step by kernel, scaling, and the gain from sharing a prompt. */

import type { Gpu } from '../src/gpu/device.ts';
import type { ModelConfig } from '../src/model/config.ts';
import type { ModelEngine, PackedBatch, TensorMap } from '../src/model/engine.ts';
import type { SequenceGroup } from '../src/model/packing.ts';
import { parameterCount } from '../src/model/params.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import {
  ADAMW,
  HEADLINE,
  meanNll,
  packOne,
  plainBatch,
  randomModel,
  sampleOf,
  tokenIds,
  trainShape,
} from './models.ts';
import { kernelTimes, outsideProducts } from './profile.ts';
import type { Rate, Report, TrainResult } from './report.ts';
import type { Effort } from '../src/extensions/limits/index.ts';
import { bestSeconds } from './timing.ts';

/** Runs forward, backward and AdamW. Reads back log-probs and gradient norm, as training does. */
export async function trainStep(engine: ModelEngine, batch: PackedBatch): Promise<void> {
  await engine.forwardBackward(batch, meanNll(batch), { temperature: 1 });
  await engine.optimizerStep(ADAMW);
}

export function trainRate(config: ModelConfig, { tokens }: PackedBatch, seconds: number): Rate {
  const flops = 6 * parameterCount(config) * tokens.length;
  return { tokensPerSecond: tokens.length / seconds, gflops: flops / seconds / 1e9 };
}

/** Returns webgrpo's side of the headline comparison. The caller can repeat the step. */
export async function headlineTrainer(gpu: Gpu, quick: boolean) {
  const batch = plainBatch(...trainShape(quick), HEADLINE.vocabSize);
  const engine = new WgslEngine(gpu, randomModel(gpu, HEADLINE), batch.tokens.length);
  // Log-probs before the first step, from the initial weights that a peer also uses.
  const { logProbs } = await engine.logProbs(batch, { temperature: 1 });
  const step = () => trainStep(engine, batch);
  const rate = async (rounds: number) => trainRate(HEADLINE, batch, await bestSeconds(step, rounds, 2));
  return { engine, batch, logProbs, step, rate };
}

/** Measures the headline step, and its time by kernel. */
export async function benchTrain(gpu: Gpu, quick: boolean, rounds: number, effort: Effort): Promise<TrainResult> {
  const { engine, batch, step, rate } = await headlineTrainer(gpu, quick);
  const measured = await rate(rounds);
  const kernels = await kernelTimes(gpu, step, effort);
  const shareOutsideProducts = outsideProducts(kernels);
  return { ...measured, encodeMs: await encodeMs(engine, batch), kernels, shareOutsideProducts };
}

/**
 * Returns the milliseconds that the host needs to record a step. An async function runs synchronously up to its first await, which here is
 * the read-back.
 */
async function encodeMs(engine: ModelEngine, batch: PackedBatch): Promise<number> {
  let best = Infinity;
  for (let i = 0; i < 3; i++) {
    const started = performance.now();
    const forwardBackward = engine.forwardBackward(batch, meanNll(batch), { temperature: 1 });
    const between = performance.now() - started;
    await forwardBackward;
    const again = performance.now();
    const step = engine.optimizerStep(ADAMW);
    best = Math.min(best, between + performance.now() - again);
    await step;
  }
  return best;
}

/** Returns `groups` groups, each with a prompt of 64 tokens, computed once, and `n` samples of 32 tokens. */
function groupBatch(groups: number, n: number): PackedBatch {
  const { vocabSize } = HEADLINE;
  return packOne(
    Array.from({ length: groups }, (_, g) => ({
      prompt: tokenIds(64, vocabSize, g + 1),
      samples: Array.from({ length: n }, (_, s) => sampleOf(tokenIds(32, vocabSize, 100 * (g + 1) + s))),
    })),
  );
}

/** Variants of the model, each with one change. */
const CHANGES: [string, Partial<ModelConfig>, [number, number]][] = [
  ['4 x 64 tokens', {}, [4, 64]],
  ['4 x 256 tokens', {}, [4, 256]],
  ['hidden 256, MLP 768', { hiddenSize: 256, intermediateSize: 768, headDim: 64 }, [16, 64]],
  ['8 layers', { numHiddenLayers: 8 }, [16, 64]],
  ['vocabulary 4096', { vocabSize: 4096 }, [16, 64]],
];

/** Numbers of groups and of samples per group: always 32 samples in all, so that only the number of prompts changes. */
const GROUPS: [number, number][] = [
  [16, 2],
  [8, 4],
  [4, 8],
  [2, 16],
];

export async function benchScaling(gpu: Gpu, quick: boolean): Promise<NonNullable<Report['scaling']>> {
  const results: NonNullable<Report['scaling']> = [];
  const measure = async (change: string, config: ModelConfig, batch: PackedBatch) => {
    const engine = new WgslEngine(gpu, randomModel(gpu, config), batch.tokens.length);
    results.push({ change, ...trainRate(config, batch, await bestSeconds(() => trainStep(engine, batch), 2)) });
  };
  for (const [change, part, shape] of quick ? CHANGES.slice(0, 1) : CHANGES) {
    const config = { ...HEADLINE, ...part };
    await measure(change, config, plainBatch(...shape, config.vocabSize));
  }
  for (const [groups, n] of quick ? GROUPS.slice(-1) : GROUPS)
    await measure(`${groups} groups of ${n} on 64 tokens, 32 each`, HEADLINE, groupBatch(groups, n));
  return results;
}

/** Measures a group of 8 on a 256-token prompt with 64-token responses: one shared prompt against one prompt per sample. */
export async function benchPrefixSharing(
  gpu: Gpu,
  quick: boolean,
  rounds: number,
): Promise<NonNullable<Report['prefixSharing']>> {
  const [promptLength, n, length] = quick ? [64, 4, 16] : [256, 8, 64];
  const prompt = tokenIds(promptLength, HEADLINE.vocabSize);
  const samples = Array.from({ length: n }, (_, s) => sampleOf(tokenIds(length, HEADLINE.vocabSize, s + 2)));
  const shared = await gradientsAndSeconds(gpu, [{ prompt, samples }], rounds);
  const apart = samples.map((sample) => ({ prompt, samples: [sample] }));
  const without = await gradientsAndSeconds(gpu, apart, rounds);
  return {
    speedup: without.seconds / shared.seconds,
    rows: shared.rows,
    rowsWithout: without.rows,
    gradientDifference: largestDifference(shared.gradients, without.gradients),
  };
}

async function gradientsAndSeconds(gpu: Gpu, groups: SequenceGroup[], rounds: number) {
  const batch = packOne(groups);
  const engine = new WgslEngine(gpu, randomModel(gpu, HEADLINE), batch.tokens.length);
  await engine.forwardBackward(batch, meanNll(batch), { temperature: 1 });
  const gradients = await engine.exportGradients();
  const seconds = await bestSeconds(() => trainStep(engine, batch), rounds);
  return { gradients, seconds, rows: batch.tokens.length };
}

/** Returns the largest difference between two gradients of a tensor, relative to the largest element of that tensor's gradient. */
function largestDifference(a: TensorMap, b: TensorMap): number {
  let largest = 0;
  for (const [name, { data }] of a) {
    const other = b.get(name)!.data;
    const scale = data.reduce((top, x) => Math.max(top, Math.abs(x)), 0);
    const difference = data.reduce((top, x, i) => Math.max(top, Math.abs(x - other[i])), 0);
    largest = Math.max(largest, difference / Math.max(scale, 1e-30));
  }
  return largest;
}

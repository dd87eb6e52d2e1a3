/** Checks a complete model on the current adapter against the float64 reference, with every kernel of a training step. */

import { Gpu } from '../../gpu/device.ts';
import type { ModelConfig } from '../../model/config.ts';
import { createModel } from '../../model/llama.ts';
import { packGroups } from '../../model/packing.ts';
import { initWeights } from '../../model/params.ts';
import { referenceBackward, referenceForward, toFloat64 } from './reference/model.ts';
import { WgslEngine } from '../../model/wgslEngine.ts';
import { keyedRng } from '../../tasks/random.ts';
import { tinyConfig } from './tinyConfig.ts';
import { type Check, relativeError, verifyLossKernels, verifyProducts, worst } from './kernels.ts';

/** The checked models: changes to `tinyConfig`, by name. */
const MODELS: Record<string, Partial<ModelConfig>> = {
  'Llama, tied head': {},
  'Qwen2, q/k/v bias': { architecture: 'Qwen2ForCausalLM', qkvBias: true, tieWordEmbeddings: false },
};

/** Checks matmuls, losses and complete models on the current adapter. Throws NoAdapterError without an adapter. */
export async function verifyAdapter(): Promise<{ adapter: string; checks: Check[] }> {
  const gpu = await Gpu.create();
  try {
    const checks: Check[] = [await verifyProducts(gpu), ...(await verifyLossKernels(gpu))];
    for (const [name, changes] of Object.entries(MODELS))
      checks.push(...(await checkOne(gpu, name, { ...tinyConfig, ...changes })));
    return { adapter: gpu.adapter.description || gpu.adapter.vendor, checks };
  } finally {
    gpu.destroy();
  }
}

async function checkOne(gpu: Gpu, name: string, config: ModelConfig): Promise<Check[]> {
  const weights = initWeights(config, 3);
  const model = createModel(gpu, config, 128);
  model.weights.importTensors(weights);
  const engine = new WgslEngine(gpu, model, 64);
  const rng = keyedRng('verify', name);
  const [{ batch }] = packGroups(exampleGroups(config, rng.uniform), 4096);
  const dLogProbs = Float32Array.from(batch.targets, () => 2 * rng.uniform() - 1);
  const options = { temperature: 0.7 };
  const got = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, options);
  const wide = toFloat64(weights);
  const forward = referenceForward(config, wide, batch, options);
  const want = referenceBackward(config, wide, batch, forward, { dLogProbs }, options);
  const gradients = await engine.exportGradients();
  const gradientErrors = [...gradients].map(([tensor, { data }]) => relativeError(data, want.get(tensor)!));
  return [
    { name: `${name}: log-probs`, error: largestDifference(got.logProbs, forward.logProbs), limit: 1e-4 },
    { name: `${name}: entropies`, error: largestDifference(got.entropy, forward.entropy), limit: 1e-4 },
    { name: `${name}: gradients of ${gradients.size} tensors`, error: Math.max(...gradientErrors), limit: 1e-3 },
  ];
}

/** Returns two groups of samples that share a prompt. Some tokens are excluded by the mask. */
function exampleGroups({ vocabSize }: ModelConfig, uniform: () => number) {
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(uniform() * vocabSize));
  const sample = (n: number) => ({
    tokens: ids(n),
    mask: Uint8Array.from({ length: n }, (_, t) => Number(t % 5 !== 3)),
  });
  return [
    { prompt: ids(7), samples: [sample(5), sample(9), sample(1)] },
    { prompt: ids(3), samples: [sample(11), sample(6)] },
  ];
}

/** Returns the largest absolute difference; NaN if any difference is NaN. */
function largestDifference(got: ArrayLike<number>, want: ArrayLike<number>): number {
  return worst(Array.from(got, (value, i) => Math.abs(value - want[i])));
}

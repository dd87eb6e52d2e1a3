/** Tests that the fused policy loss in a training step equals the float64 gradient of the same loss passed to the engine. */
import { expect, test } from 'vitest';
import { computePolicyLoss } from '../../src/grpo/losses/index.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { TensorMap, TrainLoss } from '../../src/model/engine.ts';
import { createModel } from '../../src/model/llama.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { expectClose } from '../close.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { testGpu, withGpu } from './gpu.ts';

const config: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 37,
  hiddenSize: 12,
  intermediateSize: 20,
  numHiddenLayers: 1,
  numAttentionHeads: 2,
  numKeyValueHeads: 1,
  headDim: 6,
  rmsNormEps: 1e-6,
  ropeTheta: 10000,
  ropeScaling: null,
  maxPositionEmbeddings: 64,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.3,
};

test.each(['dapo', 'gspo', 'gmpo', 'vespo'])('%s with KL and entropy bonus', (algorithm) =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = createModel(gpu, config, 128);
    model.weights.importTensors(initWeights(config, 3));
    const engine = new WgslEngine(gpu, model, 64);
    const r = rng(7);
    const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * config.vocabSize));
    const sample = (n: number) => ({
      tokens: ids(n),
      mask: Uint8Array.from({ length: n }, (_, t) => (t % 4 === 2 ? 0 : 1)),
    });
    const [{ batch }] = packGroups([{ prompt: ids(5), samples: [sample(4), sample(9), sample(1)] }], 4096);
    const E = batch.targets.length;
    const { logProbs } = await engine.logProbs(batch, { temperature: 1 });
    const inputs = {
      oldLogProbs: logProbs.map((x) => x + 0.2 * r.normals(1)[0]),
      refLogProbs: logProbs.map((x) => x + r.normals(1)[0]),
      advantages: new Float32Array(E).map((_, e) => (e < batch.seqStart[1] ? 1.5 : -0.7)),
      weights: new Float32Array(E).fill(1 / E),
      klWeights: r.normals(E).map(Math.abs),
      mask: new Float32Array(E).map((_, e) => (e % 6 === 1 ? 0 : 1)),
    };
    const spec = recipeSpec(algorithm, { klLossCoef: 0.1, entropyCoeff: 0.05 });
    const rows = {
      ...inputs,
      logp: logProbs,
      oldLogp: inputs.oldLogProbs,
      refLogp: inputs.refLogProbs,
      seqStart: batch.seqStart,
    };
    const dLogProbs = Float32Array.from(computePolicyLoss(spec, rows).grad);
    const dEntropy = inputs.klWeights.map((w) => -0.05 * w);

    const fused = await gradients(engine, batch, { kind: 'policy', spec, inputs });
    const direct = await gradients(engine, batch, { kind: 'coefficients', dLogProbs, dEntropy });
    let norm = 0;
    for (const [name, { data }] of direct) {
      const scale = data.reduce((max, x) => Math.max(max, Math.abs(x)), 0);
      expectClose(fused.get(name)!.data, data, { rtol: 1e-4, atol: 1e-5 * scale });
      norm += scale;
    }
    expect(norm).toBeGreaterThan(1e-3);
  }),
);

async function gradients(
  engine: WgslEngine,
  batch: Parameters<WgslEngine['logProbs']>[0],
  loss: TrainLoss,
): Promise<TensorMap> {
  await engine.forwardBackward(batch, loss, { temperature: 1 });
  const grads = await engine.exportGradients();
  await engine.optimizerStep({ lr: 0, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 0 });
  return grads;
}

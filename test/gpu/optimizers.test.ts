/** Compares complete steps of SGD, SignSGD and Muon, and their checkpoints, to float64. */
import { expect, test } from 'vitest';
import type { OptimizerOptions, TensorMap } from '../../src/model/engine.ts';
import { createModel } from '../../src/model/llama.ts';
import type { OptimizerSpec } from '../../src/model/optimizer/spec.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { newState, referenceStep } from './referenceOptimizers.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { expectSame, expectWithin, f64, orthogonalError, U } from './check.ts';
import { isFull } from './full.ts';
import { testGpu, withGpu } from './gpu.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

const OPTIONS: OptimizerOptions = { lr: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, gradClip: 1 };

const SPECS: OptimizerSpec[] = [
  { name: 'SGD', momentum: 0, nesterov: false },
  { name: 'SGD', momentum: 0.9, nesterov: false },
  { name: 'SGD', momentum: 0.9, nesterov: true },
  { name: 'SignSGD' },
  { name: 'Muon', momentum: 0.95, nesterov: true, adjustLrFn: 'match_rms_adamw' },
  { name: 'Muon', momentum: 0.5, nesterov: false, adjustLrFn: 'original' },
];
const MUON = SPECS[4];
/** One spec for each kind of state. The settings of an optimizer change only the step, which the everyday tests take by every spec. */
const CHOSEN = isFull ? SPECS : [SPECS[1], SPECS[3], MUON];

const lora = loraOf(3);
const config = { ...tinyConfig, tieWordEmbeddings: false, qkvBias: true, qkNorm: true };
const ids = (n: number, seed: number) =>
  Uint32Array.from({ length: n }, (_, i) => (i * 17 + seed * 29) % config.vocabSize);
const [{ batch }] = packGroups(
  [{ prompt: ids(6, 1), samples: [{ tokens: ids(9, 2), mask: new Uint8Array(9).fill(1) }] }],
  64,
);
const weights = new Float32Array(batch.targets.length).fill(1 / batch.targets.length);

async function engineOf(optimizer: OptimizerSpec | undefined, adapters = false): Promise<WgslEngine> {
  const gpu = await testGpu();
  const model = createModel(gpu, config, 64, adapters ? { lora } : {});
  model.weights.importTensors(initWeights(config, 3));
  return new WgslEngine(gpu, model, 64, { optimizer });
}
const backward = (engine: WgslEngine) => engine.forwardBackward(batch, { kind: 'nll', weights }, { temperature: 1 });
const f64s = (tensors: TensorMap) => new Map(Array.from(tensors, ([name, { data }]) => [name, f64(data)]));

/** Returns the matrices that PyTorch users give to Muon: 2-D weights of the layers, without embeddings and head. */
const matricesOf = (tensors: TensorMap) =>
  new Map(
    Array.from(tensors, ([name, { shape }]) => [name, shape] as const).filter(
      ([name, shape]) => shape.length === 2 && !/embed_tokens|lm_head/.test(name),
    ),
  );

test.each([...SPECS.map((spec) => ({ spec, adapters: false })), ...CHOSEN.map((spec) => ({ spec, adapters: true }))])(
  '$spec, adapters $adapters: three steps of every weight of a model',
  ({ spec, adapters }) =>
    withGpu(async () => {
      const engine = await engineOf(spec, adapters);
      const start = await engine.exportWeights();
      const want = f64s(start);
      const state = newState(want);
      for (let step = 0; step < 3; step++) {
        await backward(engine);
        const gradients = f64s(await engine.exportGradients());
        const { gradNorm: norm } = await engine.optimizerStep(OPTIONS);
        expect(norm).toBeCloseTo(referenceStep(spec, want, gradients, state, OPTIONS, matricesOf(start)), 4);
      }
      for (const [name, { data, shape }] of await engine.exportWeights()) {
        const side = shape.length === 2 ? Math.max(...shape) : 1;
        const muon = spec.name === 'Muon' ? 3 * OPTIONS.lr * Math.sqrt(side) * orthogonalError(side) : 0;
        const bound = (i: number) => 40 * U * (Math.abs(want.get(name)![i]) + 1) + muon;
        expectWithin(data, want.get(name)!, bound);
      }
    }),
);

test.each(CHOSEN)('$name: a resumed run has the bits of one that never stopped', (spec) =>
  withGpu(async () => {
    const [straight, first, resumed] = [await engineOf(spec), await engineOf(spec), await engineOf(spec)];
    const step = async (engine: WgslEngine) => {
      await backward(engine);
      await engine.optimizerStep(OPTIONS);
    };
    for (let i = 0; i < 3; i++) await step(straight);
    for (let i = 0; i < 2; i++) await step(first);
    await resumed.importWeights(await first.exportWeights());
    await resumed.importOptimizer(await first.exportOptimizer());
    await step(resumed);
    const want = await straight.exportWeights();
    for (const [name, { data }] of await resumed.exportWeights()) expectSame(data, want.get(name)!.data);
  }),
);

test('the state of another optimizer is refused by both names, and so is a step of another', () =>
  withGpu(async () => {
    const [adamw, muon, plain] = [await engineOf(undefined), await engineOf(MUON), await engineOf(SPECS[0])];
    const heavy = await engineOf(SPECS[1]);
    const states = { adamw: await adamw.exportOptimizer(), muon: await muon.exportOptimizer() };
    await expect(adamw.importOptimizer(states.muon)).rejects.toThrow(
      "The checkpoint has the optimizer state of Muon, but this run's optimizer is AdamW. Set actor.optim.optimizer=Muon to resume",
    );
    await expect(muon.importOptimizer(states.adamw)).rejects.toThrow("of AdamW, but this run's optimizer is Muon");
    await expect(heavy.importOptimizer(await plain.exportOptimizer())).rejects.toThrow(
      "The checkpoint's optimizer state has no momentum_buffer, which SGD needs here",
    );
    await expect(adamw.optimizerStep({ ...OPTIONS, optimizer: 'Muon' })).rejects.toThrow(
      "The config's optimizer is Muon, but the engine was made with AdamW",
    );
  }));

import { expect, test } from 'vitest';
import {
  initLora,
  loraGroups,
  loraModules,
  loraScale,
  type LoraConfig,
  peftName,
} from '../../src/model/lora/weights.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { loraMerge, loraMergeBwd } from '../../src/extensions/verify/reference/ops.ts';
import { referenceBackward, referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { rng } from '../random.ts';
import { TINY_CONFIG as config } from '../tinyConfig.ts';

const lora: LoraConfig = {
  rank: 2,
  alpha: 3,
  dropout: 0,
  useRslora: false,
  targetModules: loraModules('all-linear'),
  seed: 1,
};

test('gradients of A and B against finite differences, in float64', () => {
  const r = rng(4);
  const base = toFloat64(initWeights(config, 2));
  const adapter = new Map(
    [...initLora(config, lora)].map(([name, { data }]) => [name, Float64Array.from(r.normals(data.length, 0.3))]),
  );
  const batch = packGroups(
    [{ prompt: Uint32Array.of(1, 5), samples: [{ tokens: Uint32Array.of(3, 4, 7), mask: Uint8Array.of(1, 1, 1) }] }],
    99,
  )[0].batch;
  const dLogProbs = r.normals(3);
  const places = loraGroups(config, lora.targetModules).flatMap(({ I, modules }) =>
    [0, 1].flatMap((l) => modules.map(({ name }) => ({ l, name, I }))),
  );
  const merged = () => {
    const weights = new Map(base);
    for (const { l, name, I } of places) {
      const [a, b] = [adapter.get(peftName(l, name, 'A'))!, adapter.get(peftName(l, name, 'B'))!];
      const target = `model.layers.${l}.${name}.weight`;
      weights.set(target, loraMerge(base.get(target)!, a, b, I, loraScale(lora)));
    }
    return weights;
  };
  const loss = () =>
    referenceForward(config, merged(), batch).logProbs.reduce((sum, p, e) => sum + p * dLogProbs[e], 0);
  const weights = merged();
  const dense = referenceBackward(config, weights, batch, referenceForward(config, weights, batch), { dLogProbs });
  for (const { l, name, I } of places) {
    const [a, b] = [adapter.get(peftName(l, name, 'A'))!, adapter.get(peftName(l, name, 'B'))!];
    const { da, db } = loraMergeBwd(dense.get(`model.layers.${l}.${name}.weight`)!, a, b, I, loraScale(lora));
    for (const [values, gradient] of [
      [a, da],
      [b, db],
    ] as const) {
      for (const i of [0, values.length - 1]) {
        const kept = values[i];
        const at = (value: number) => {
          values[i] = value;
          return loss();
        };
        const slope = (at(kept + 1e-5) - at(kept - 1e-5)) / 2e-5;
        values[i] = kept;
        expect(Math.abs(slope - gradient[i]), `${l}.${name} [${i}]`).toBeLessThan(1e-8);
      }
    }
  }
});

test("PEFT's names and shapes; A is spread as wide as PEFT spreads it, B is zero", () => {
  const tensors = initLora(config, { ...lora, targetModules: ['q_proj', 'v_proj', 'down_proj'] });
  const shapes = Object.fromEntries([...tensors].map(([name, { shape }]) => [name, shape]));
  const first = 'base_model.model.model.layers.0';
  expect(Object.keys(shapes)).toHaveLength(2 * 6);
  expect(shapes).toMatchObject({
    [`${first}.self_attn.q_proj.lora_A.weight`]: [2, 6],
    [`${first}.self_attn.q_proj.lora_B.weight`]: [8, 2],
    [`${first}.self_attn.v_proj.lora_B.weight`]: [4, 2],
    [`${first}.mlp.down_proj.lora_A.weight`]: [2, 7],
    'base_model.model.model.layers.1.mlp.down_proj.lora_B.weight': [6, 2],
  });
  for (const [name, { data, shape }] of tensors) {
    const largest = Math.max(...data.map(Math.abs));
    if (name.includes('lora_B')) expect(largest).toBe(0);
    else expect(largest / (1 / Math.sqrt(shape[1]))).toBeGreaterThan(0.7);
    expect(largest).toBeLessThanOrEqual(1 / Math.sqrt(shape[1]));
  }
});

test('scale, with and without rank stabilisation', () => {
  expect(loraScale({ ...lora, rank: 16, alpha: 32 })).toBe(2);
  expect(loraScale({ ...lora, rank: 16, alpha: 32, useRslora: true })).toBe(8);
});

test('module names', () => {
  expect(loraModules(['v_proj', 'q_proj'])).toEqual(['q_proj', 'v_proj']);
  expect(() => loraModules(['query'])).toThrow(
    'LoRA target module "query" is unknown; allowed: all-linear, or some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj.',
  );
  expect(() => loraModules([])).toThrow('LoRA target module list is empty; allowed: all-linear');
});

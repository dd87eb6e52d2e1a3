import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parseModelConfig } from '../../src/model/config.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { PackedBatch } from '../../src/model/engine.ts';
import { packGroups } from '../../src/model/packing.ts';
import type { SequenceGroup } from '../../src/model/packing.ts';
import { parameterSpecs } from '../../src/model/params.ts';
import {
  newAdamWState,
  referenceAdamW,
  referenceBackward,
  referenceForward,
  toFloat64,
  type Weights64,
} from '../../src/extensions/verify/reference/model.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { rng } from '../random.ts';

const GOLDENS = '../shared/goldens/checkpoints';

interface Golden {
  sequences: number[][];
  logprobs: number[][];
  coefficients: number[][];
  gradNorms: Record<string, number>;
  gradSamples: Record<string, [number, number][]>;
}

/** Returns a batch in which every token after the first of each sequence is predicted. */
function batchOf(sequences: number[][]): PackedBatch {
  const groups = sequences.map(([first, ...rest]) => {
    return {
      prompt: Uint32Array.of(first),
      samples: [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }],
    };
  });
  const [{ batch }] = packGroups(groups, 1e6);
  return batch;
}

describe.skipIf(!existsSync(GOLDENS))(`stored float64 goldens (skipped where ${GOLDENS} is absent)`, () => {
  const names = existsSync(GOLDENS) ? readdirSync(GOLDENS) : [];
  test.each(names)('%s', (name) => {
    const read = (file: string) => readFileSync(`${GOLDENS}/${name}/${file}`);
    const config = parseModelConfig(JSON.parse(read('config.json').toString()));
    const golden = JSON.parse(read('goldens.json').toString()) as Golden;
    const weights = toFloat64(readSafetensors(read('model.safetensors')));
    const batch = batchOf(golden.sequences);
    const forward = referenceForward(config, weights, batch);
    expectAllClose(forward.logProbs, golden.logprobs.flat(), 6e-10, 'log-probs'); // stored with 9 decimals
    const gradients = referenceBackward(config, weights, batch, forward, { dLogProbs: golden.coefficients.flat() });
    expect([...gradients.keys()].sort()).toEqual(Object.keys(golden.gradNorms).sort());
    for (const [tensor, norm] of Object.entries(golden.gradNorms)) {
      const gradient = gradients.get(tensor)!;
      expectAllClose([Math.hypot(...gradient)], [norm], 1e-9 * norm, `norm of ${tensor}`);
      const samples = golden.gradSamples[tensor];
      expectAllClose(
        samples.map(([i]) => gradient[i]),
        samples.map(([, g]) => g),
        1e-9 * norm,
        tensor,
      );
    }
  });
});

/** A model with all features together: q/k norm, bias, untied head, grouped queries, head dim other than C / H, scaled RoPE. */
const EVERYTHING: ModelConfig = {
  architecture: 'Qwen3ForCausalLM',
  vocabSize: 11,
  hiddenSize: 6,
  intermediateSize: 7,
  numHiddenLayers: 2,
  numAttentionHeads: 4,
  numKeyValueHeads: 2,
  headDim: 4,
  rmsNormEps: 1e-6,
  ropeTheta: 100,
  ropeScaling: {
    ropeType: 'llama3',
    factor: 4,
    lowFreqFactor: 1,
    highFreqFactor: 4,
    originalMaxPositionEmbeddings: 32,
  },
  maxPositionEmbeddings: 64,
  tieWordEmbeddings: false,
  qkvBias: true,
  qkNorm: true,
  initializerRange: 0.5,
};

/** Two groups. The first has a tool's token, and a response whose first tokens are not trained on. */
const GROUPS: SequenceGroup[] = [
  {
    prompt: Uint32Array.of(1, 5, 2),
    samples: [
      { tokens: Uint32Array.of(3, 4, 7), mask: Uint8Array.of(1, 1, 1) },
      { tokens: Uint32Array.of(9, 0, 10, 4), mask: Uint8Array.of(1, 0, 1, 1) },
      { tokens: Uint32Array.of(8, 8), mask: Uint8Array.of(0, 1) },
    ],
  },
  { prompt: Uint32Array.of(6), samples: [{ tokens: Uint32Array.of(2, 2, 5), mask: Uint8Array.of(1, 1, 1) }] },
];

function randomWeights(config: ModelConfig, seed: number): Weights64 {
  const random = rng(seed);
  return new Map(
    parameterSpecs(config).map(({ name, shape }) => {
      const values = random.normals(
        shape.reduce((a, b) => a * b, 1),
        config.initializerRange,
      );
      return [name, Float64Array.from(values, (v) => v + (name.endsWith('norm.weight') ? 1 : 0))];
    }),
  );
}

const VARIANTS: [string, Partial<ModelConfig>][] = [
  ['everything on', {}],
  ['tied head, no bias, no q/k norm', { tieWordEmbeddings: true, qkvBias: false, qkNorm: false }],
  ['a bias on every product', { oBias: true, mlpBias: true, numHiddenLayers: 1 }],
  ['as many key/value heads as query heads', { numKeyValueHeads: 4, numHiddenLayers: 1 }],
];

describe('gradients against central differences', () => {
  test.each(VARIANTS)('%s', (_, change) => {
    const config = { ...EVERYTHING, ...change };
    const weights = randomWeights(config, 3);
    const [{ batch }] = packGroups(GROUPS, 100);
    // Every element with --full. Every day, every second one of the first variant, and every seventh of the others.
    const everyday = change === VARIANTS[0][1] ? 2 : 7;
    const every = process.env['FULL_TESTS'] === '1' ? 1 : everyday;
    const E = batch.targets.length;
    const [dLogProbs, dEntropy] = [rng(5).normals(E), rng(6).normals(E)];
    const temperature = 0.7;
    const loss = () => {
      const { logProbs, entropy } = referenceForward(config, weights, batch, { temperature });
      return logProbs.reduce((sum, logp, e) => sum + dLogProbs[e] * logp + dEntropy[e] * entropy[e], 0);
    };
    const forward = referenceForward(config, weights, batch, { temperature });
    const gradients = referenceBackward(config, weights, batch, forward, { dLogProbs, dEntropy }, { temperature });
    for (const [name, w] of weights) {
      const tried = Array.from({ length: Math.ceil(w.length / every) }, (_, k) => k * every);
      const numeric = tried.map((i) => {
        const value = w[i];
        const at = (step: number) => {
          w[i] = value + step;
          const result = loss();
          w[i] = value;
          return result;
        };
        const h = 2e-4; // Fourth order: the error is O(h^4) plus rounding of about 1e-15 * loss / h.
        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      });
      expectAllClose(
        tried.map((i) => gradients.get(name)![i]),
        numeric,
        2e-8,
        name,
      );
      expect(Math.max(...gradients.get(name)!.map(Math.abs)), `${name} has a gradient`).toBeGreaterThan(1e-4);
    }
  });
});

describe('packing does not change results', () => {
  const weights = randomWeights(EVERYTHING, 4);
  const run = (groups: SequenceGroup[], maxTokenLen: number) => {
    const values = new Map<string, number>();
    let total: Weights64 = new Map();
    for (const { batch, entryGroup, entrySample, entryPosition } of packGroups(groups, maxTokenLen)) {
      const forward = referenceForward(EVERYTHING, weights, batch);
      const keys = Array.from(entryGroup, (g, e) => `${g}/${entrySample[e]}/${entryPosition[e]}`);
      keys.forEach((key, e) => values.set(key, forward.logProbs[e]));
      const dLogProbs = keys.map((key) => Math.sin(7 * Number(key.replaceAll('/', '')) + 1));
      const part = referenceBackward(EVERYTHING, weights, batch, forward, { dLogProbs });
      total = new Map(Array.from(part, ([name, g]) => [name, g.map((x, i) => x + (total.get(name)?.[i] ?? 0))]));
    }
    return { values, total };
  };

  test('a shared prompt gives the results of separate prompts, split or not', () => {
    const together = run(GROUPS, 100);
    for (const maxTokenLen of [6, 7, 11]) {
      const split = run(GROUPS, maxTokenLen);
      expect([...split.values.keys()]).toEqual([...together.values.keys()]);
      expectAllClose([...split.values.values()], [...together.values.values()], 1e-13, 'log-probs');
      for (const [name, g] of together.total) expectAllClose(split.total.get(name)!, g, 1e-12, name);
    }
  });

  test('a sample does not see its siblings or other groups', () => {
    const alone = run([{ prompt: GROUPS[0].prompt, samples: [GROUPS[0].samples[1]] }], 100).values;
    const among = run(GROUPS, 100).values;
    expect(alone.get('0/0/3')).toBeCloseTo(among.get('0/1/3')!, 13);
  });
});

describe('head at a temperature', () => {
  test('probabilities of a row sum to one and the entropy is theirs', () => {
    const weights = randomWeights(EVERYTHING, 8);
    const all = Array.from({ length: 11 }, (_, token) => ({ tokens: Uint32Array.of(token), mask: Uint8Array.of(1) }));
    const [{ batch }] = packGroups([{ prompt: Uint32Array.of(4, 1), samples: all }], 100);
    for (const temperature of [0.3, 1, 2]) {
      const { logProbs, entropy } = referenceForward(EVERYTHING, weights, batch, { temperature });
      expect(logProbs.reduce((sum, logp) => sum + Math.exp(logp), 0)).toBeCloseTo(1, 12);
      expect(entropy[0]).toBeCloseTo(-logProbs.reduce((sum, logp) => sum + Math.exp(logp) * logp, 0), 12);
    }
  });
});

describe('AdamW', () => {
  const options = { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-8, weightDecay: 0.5, gradClip: 1 };

  test('two steps worked by hand, the first one clipped', () => {
    const weights: Weights64 = new Map([['w', Float64Array.of(2, -1)]]);
    const state = newAdamWState(weights);
    const norm = referenceAdamW(weights, new Map([['w', Float64Array.of(3, 4)]]), state, options);
    expect(norm).toBe(5);
    // Betas are clipped to (0.6, 0.8). The first step changes weights by lr times the sign of the gradient, after a weight decay of 5%.
    expectAllClose(weights.get('w')!, [2 * 0.95 - 0.1, -1 * 0.95 - 0.1], 1e-8, 'after one step');
    const before = weights.get('w')!.slice();
    referenceAdamW(weights, new Map([['w', Float64Array.of(0, 0.5)]]), state, options);
    const scale = 1 / (5 + 1e-6);
    const m = [0.9 * 0.1 * 3 * scale, 0.9 * 0.1 * 4 * scale + 0.1 * 0.5];
    const v = [0.99 * 0.01 * (3 * scale) ** 2, 0.99 * 0.01 * (4 * scale) ** 2 + 0.01 * 0.25];
    const expected = m.map((mi, i) => before[i] * 0.95 - (0.1 * (mi / 0.19)) / (Math.sqrt(v[i] / 0.0199) + 1e-8));
    expectAllClose(weights.get('w')!, expected, 1e-12, 'after two steps');
  });

  test('a norm that is not finite changes no weight', () => {
    const weights: Weights64 = new Map([['w', Float64Array.of(2)]]);
    const state = newAdamWState(weights);
    expect(referenceAdamW(weights, new Map([['w', Float64Array.of(NaN)]]), state, options)).toBeNaN();
    expect(weights.get('w')).toEqual(Float64Array.of(2));
    expect(state.step).toBe(0);
  });
});

/** Expects |actual - expected| <= tolerance for every element; NaN never passes. */
function expectAllClose(actual: ArrayLike<number>, expected: ArrayLike<number>, tolerance: number, what: string): void {
  expect(actual.length, what).toBe(expected.length);
  for (let i = 0; i < actual.length; i++) {
    if (Math.abs(actual[i] - expected[i]) <= tolerance) continue;
    expect.fail(`${what}[${i}] is ${actual[i]}, expected ${expected[i]} within ${tolerance}`);
  }
}

/**
 * Two tiny random checkpoints of this repository, for clones without the ../shared folder. They have the format of the goldens in that
 * folder, but their numbers come from the float64 reference model (which reference.test.ts checks). They detect changes, and the GPU
 * engines are compared with their numbers. `UPDATE_FIXTURES=1 npm test -- unit fixtures` creates them again.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { loadCheckpoint, saveCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import type { ModelCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { referenceBackward, referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { rng } from '../random.ts';

const COMMON = { hidden_size: 20, intermediate_size: 28, num_hidden_layers: 2, initializer_range: 0.3 };
const CONFIGS: Record<string, object> = {
  'tiny-qwen2': {
    ...COMMON,
    architectures: ['Qwen2ForCausalLM'],
    vocab_size: 53,
    num_attention_heads: 5,
    num_key_value_heads: 1,
    max_position_embeddings: 128,
    rope_theta: 10000,
    tie_word_embeddings: true,
  },
  'tiny-qwen3': {
    ...COMMON,
    architectures: ['Qwen3ForCausalLM'],
    vocab_size: 61,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 6,
    max_position_embeddings: 128,
    tie_word_embeddings: false,
    rope_parameters: {
      rope_type: 'llama3',
      rope_theta: 10000,
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 64,
    },
  },
};

const pathOf = (name: string, file: string) => `test/fixtures/${name}/${file}`;

function makeCheckpoint(json: object): ModelCheckpoint {
  const config = parseModelConfig(json);
  const weights = initWeights(config, 11);
  const random = rng(12);
  for (const [name, { data }] of weights) {
    if (!/norm\.weight$|bias$/.test(name)) continue;
    random.normals(data.length, 0.3).forEach((x, i) => (data[i] += x));
  }
  return { config, weights };
}

/** Returns sequences of odd lengths, one of them with two tokens, and a random loss coefficient for every predicted token. */
function makeGoldens({ config, weights }: ModelCheckpoint) {
  const random = rng(13);
  const sequences = [2, 17, 31].map((length) =>
    Array.from({ length }, () => Math.floor(random.uniform() * config.vocabSize)),
  );
  const coefficients = sequences.map(({ length }) => Array.from(random.normals(length - 1)));
  const groups = sequences.map(([first, ...rest]) => ({
    prompt: Uint32Array.of(first),
    samples: [{ tokens: Uint32Array.from(rest), mask: new Uint8Array(rest.length).fill(1) }],
  }));
  const [{ batch }] = packGroups(groups, 1000);
  const w = toFloat64(weights);
  const forward = referenceForward(config, w, batch);
  const gradients = [...referenceBackward(config, w, batch, forward, { dLogProbs: coefficients.flat() })];
  let next = 0;
  return {
    sequences,
    logprobs: coefficients.map((c) => c.map(() => forward.logProbs[next++])),
    coefficients,
    gradNorms: Object.fromEntries(gradients.map(([name, g]) => [name, Math.hypot(...g)])),
    gradSamples: Object.fromEntries(
      gradients.map(([name, g]) => {
        const at = Array.from({ length: 6 }, () => Math.floor(random.uniform() * g.length));
        return [name, at.map((i) => [i, g[i]])];
      }),
    ),
    note:
      'Made by webgrpo from its own float64 reference model, not by PyTorch. logprobs[i][t] = log p(sequence[t+1] | ' +
      'sequence[:t+1]); gradients are of sum_i,t coefficients[i][t]*logprobs[i][t]',
  };
}

test.runIf(process.env['UPDATE_FIXTURES'])('writes the fixtures', () => {
  for (const [name, json] of Object.entries(CONFIGS)) {
    mkdirSync(`test/fixtures/${name}`, { recursive: true });
    const checkpoint = makeCheckpoint(json);
    for (const [file, bytes] of saveCheckpoint(checkpoint)) writeFileSync(pathOf(name, file), bytes);
    writeFileSync(pathOf(name, 'goldens.json'), `${JSON.stringify(makeGoldens(checkpoint), null, 1)}\n`);
  }
});

test.each(Object.keys(CONFIGS))('%s still gives the stored numbers', async (name) => {
  const source = (file: string) => {
    if (!['config.json', 'model.safetensors'].includes(file)) return Promise.resolve(undefined);
    return Promise.resolve(new Uint8Array(readFileSync(pathOf(name, file))));
  };
  const stored: unknown = JSON.parse(readFileSync(pathOf(name, 'goldens.json'), 'utf8'));
  expectNear(makeGoldens(await loadCheckpoint(source)), stored, 'goldens');
});

/** Expects that two numbers are equal except for their last digits, because Math.exp rounds differently on other machines. */
function expectNear(actual: unknown, expected: unknown, at: string): void {
  if (typeof actual === 'number' && typeof expected === 'number') {
    const tolerance = 1e-10 * Math.max(1, Math.abs(expected));
    if (!(Math.abs(actual - expected) <= tolerance)) expect.fail(`${at} is ${actual}, stored ${expected}`);
  } else if (typeof actual === 'object' && actual !== null && typeof expected === 'object' && expected !== null) {
    expect(Object.keys(actual), at).toEqual(Object.keys(expected));
    for (const [key, value] of Object.entries(actual)) {
      expectNear(value, (expected as Record<string, unknown>)[key], `${at}.${key}`);
    }
  } else expect(actual, at).toBe(expected);
}

/** Tests that speculative decoding is lossless: the same tokens and bits as plain decoding, and the right distribution. */
import { expect, test } from 'vitest';
import { packGroups } from '../../src/model/packing.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { type Preemption, WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { isFull } from './full.ts';
import { testGpu, withGpu } from './gpu.ts';
import { ids, prompts, request, run, runFreeing, SIZES } from './rolloutCases.ts';
import { tinyModel } from './tinyModel.ts';

const SPECULATIVE = { maxDraftTokens: 6, minNgram: 1, history: 8, adapt: false };
const TOOL = [ids(4), ids(2)];
/** Sampling settings of the samples: defaults, and settings that must still be applied after a wrong draft token. */
const kinds: Partial<SamplingParams>[] = [
  {},
  { temperature: 0 },
  { frequencyPenalty: 0.8, repetitionPenalty: 1.2, minNewTokens: 5, entropy: true, topLogprobs: 2 },
  { temperature: 0.7, topK: 20, topP: 0.9 },
];
const samples = [0, 1].flatMap((p) => kinds.map((kind, s) => request(p, s, { maxNewTokens: 15, ...kind })));

async function twoTurns(engine: WgslRolloutEngine, q: GenerateRequest): Promise<Generation[]> {
  const first = await engine.generate(q);
  const contextIds = Uint32Array.from([...q.contextIds, ...first.tokenIds, ...TOOL[q.key[1] % 2]]);
  const second = await engine.generate({ ...q, contextIds });
  engine.release(q.requestId);
  return [first, second];
}

const cases: [Preemption, number, number][] = [
  ['latest', 3, 16],
  ['parked', 16, 24],
];

// Every day with preemption of the latest; rolloutPreemption.test.ts parks samples.
test.each(isFull ? cases : cases.slice(0, 1))(
  'tokens, log-probs, masses and details are those of plain decoding: %s, %i slots, %i rows',
  (...c) =>
    withGpu(async () => {
      const [preemption, maxNumSeqs, verifyRows] = c;
      const gpu = await testGpu();
      const model = tinyModel(gpu);
      const plain = new WgslRolloutEngine(gpu, model, SIZES);
      const want: Generation[][] = [];
      for (const q of samples) want.push(await twoTurns(plain, q));
      const sizes = { ...SIZES, maxNumSeqs, verifyRows };
      const engine = new WgslRolloutEngine(gpu, model, sizes, { preemption, speculative: SPECULATIVE });
      // In the second round, the drafts from the history are right.
      for (const requests of [samples, [...samples].reverse()])
        expect(await Promise.all(requests.map((q) => twoTurns(engine, q)))).toEqual(
          requests.map((q) => want[samples.indexOf(q)]),
        );
      const { draftTokens, acceptedTokens, wastedRows, liveRows } = await engine.takeStats();
      expect(acceptedTokens).toBeGreaterThan(50);
      expect(draftTokens - acceptedTokens).toBeGreaterThan(20);
      expect(wastedRows / liveRows).toBeLessThan(0.2);
    }),
);

test('speculation allocates nothing when off, and nothing more in a steady state when on', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const plain = new WgslRolloutEngine(gpu, model, SIZES);
    await run(plain, samples);
    const { buffers } = gpu.counters;
    await run(plain, samples);
    expect(gpu.counters.buffers).toBe(buffers);
    const engine = new WgslRolloutEngine(gpu, model, SIZES, { speculative: SPECULATIVE });
    for (let round = 0; round < 3; round++) await run(engine, samples);
    const after = { ...gpu.counters };
    await run(engine, samples);
    const { buffers: now, bindGroups, pipelines } = gpu.counters;
    expect({ buffers: now, bindGroups, pipelines }).toEqual({
      buffers: after.buffers,
      bindGroups: after.bindGroups,
      pipelines: after.pipelines,
    });
  }));

/** Returns Pearson's statistic of counts against probabilities. Bins that expect less than 5 are merged. */
function chiSquare(counts: number[], probabilities: number[]): { statistic: number; bins: number } {
  const n = counts.reduce((a, b) => a + b, 0);
  let [statistic, bins, restCount, restExpected] = [0, 0, 0, 0];
  const add = (count: number, expected: number) => {
    statistic += (count - expected) ** 2 / expected;
    bins++;
  };
  counts.forEach((count, i) => {
    const expected = n * probabilities[i];
    if (expected >= 5) add(count, expected);
    else [restCount, restExpected] = [restCount + count, restExpected + expected];
  });
  if (restExpected > 0) add(restCount, restExpected);
  return { statistic, bins };
}

/**
 * Returns the probability of each pair of second and third token after a prompt, summed over all first tokens, computed with the trainer's
 * forward pass.
 */
async function pairProbabilities(trainer: WgslEngine, prompt: Uint32Array, V: number): Promise<number[]> {
  const tokensOf = (i: number) => Uint32Array.of(Math.floor(i / V / V), Math.floor(i / V) % V, i % V);
  const samples = Array.from({ length: V ** 3 }, (_, i) => ({ tokens: tokensOf(i), mask: Uint8Array.of(1, 1, 1) }));
  const logProbs = new Float64Array(V ** 3);
  for (const { batch, entrySample } of packGroups([{ prompt, samples }], 1024)) {
    const out = await trainer.logProbs(batch, { temperature: 1 });
    out.logProbs.forEach((logProb, e) => (logProbs[entrySample[e]] += logProb));
  }
  const probabilities = new Array<number>(V * V).fill(0);
  logProbs.forEach((logProb, i) => (probabilities[i % (V * V)] += Math.exp(logProb)));
  return probabilities;
}

// The third token is sampled from a row that was computed with a draft of the second. It may be accepted only if that draft was right.
test('pairs of tokens, one mostly guessed and often wrongly, have the model’s distribution: chi-square', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const V = 11;
    const model = tinyModel(gpu, { numHiddenLayers: 1, vocabSize: V });
    const prompt = prompts[1].map((id) => id % V);
    const probabilities = await pairProbabilities(new WgslEngine(gpu, model, 1024), prompt, V);
    expect(Math.abs(probabilities.reduce((a, b) => a + b, 0) - 1)).toBeLessThan(1e-4);
    const sizes = { ...SIZES, maxNumSeqs: 128, slotCapacity: 4, verifyRows: 256 };
    const engine = new WgslRolloutEngine(gpu, model, sizes, { speculative: { ...SPECULATIVE, maxDraftTokens: 1 } });
    const counts = new Array<number>(V * V).fill(0);
    const N = 2048;
    const requests = Array.from({ length: N }, (_, i) => ({
      ...request(1, i, { maxNewTokens: 3, stopTokenIds: [] }),
      requestId: `${i}`,
      contextIds: prompt,
    }));
    for (const { tokenIds } of await runFreeing(engine, requests)) counts[tokenIds[1] * V + tokenIds[2]]++;
    const { draftTokens, acceptedTokens } = await engine.takeStats();
    expect(draftTokens).toBeGreaterThan(N / 2);
    expect(acceptedTokens).toBeGreaterThan(draftTokens / 20);
    expect(acceptedTokens).toBeLessThan(draftTokens / 2);
    const { statistic, bins } = chiSquare(counts, probabilities);
    // Chi-square: the mean is bins - 1, and the variance twice that. A deviation of four standard deviations has p < 0.001.
    expect(bins).toBeGreaterThan(20);
    expect(statistic).toBeLessThan(bins - 1 + 4 * Math.sqrt(2 * (bins - 1)));
  }));

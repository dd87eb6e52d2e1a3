/** Tests sampling settings other than temperature, top-k, top-p and min-p through the complete engine. */
import { expect, test } from 'vitest';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { adjustedLogits } from './adjustReference.ts';
import { testGpu, withGpu } from './gpu.ts';
import { ids, prompts, request, run, SIZES } from './rolloutCases.ts';
import { keptTokens, logProbsOf } from './sampleReference.ts';
import { tinyConfig, tinyModel } from './tinyModel.ts';

const all = prompts.flatMap((_, p) => [0, 1, 2].map((s) => request(p, s)));
const asking = (more: Partial<SamplingParams>) => all.map((q) => ({ ...q, sampling: { ...q.sampling, ...more } }));

async function newEngine(sizes = SIZES) {
  const gpu = await testGpu();
  return { gpu, engine: new WgslRolloutEngine(gpu, tinyModel(gpu), sizes) };
}

/** Returns what the engine generates for one request. */
async function generate(engine: WgslRolloutEngine, asked: GenerateRequest): Promise<Generation> {
  const [generation] = (await run(engine, [asked])).values();
  return generation;
}

test('requesting entropy and alternatives changes neither tokens nor log-probs; without a request nothing is allocated for them', () =>
  withGpu(async () => {
    const { gpu, engine } = await newEngine();
    const plain = await run(engine, all);
    const before = gpu.counters.buffers;
    await run(engine, all);
    expect(gpu.counters.buffers).toBe(before);
    const detailed = await run(engine, asking({ entropy: true, topLogprobs: 3 }));
    expect(gpu.counters.buffers).toBeGreaterThan(before);
    for (const [id, want] of plain) {
      const { entropies = new Float32Array(), alternatives = [], ...rest } = detailed.get(id)!;
      expect(rest).toEqual(want);
      expect(want).not.toHaveProperty('entropies');
      expect(entropies.length).toBe(want.tokenIds.length);
      expect(entropies.every((h) => h > 0 && h < Math.log(tinyConfig.vocabSize))).toBe(true);
      want.tokenIds.forEach((token, t) => {
        expect(alternatives[t].length).toBe(3);
        const logProbs = alternatives[t].map((a) => a.logProb);
        expect(logProbs).toEqual([...logProbs].sort((a, b) => b - a));
        const same = alternatives[t].find((a) => a.tokenId === token);
        if (same) expect(same.logProb).toBe(want.logProbs[t]);
        else expect(want.logProbs[t]).toBeLessThanOrEqual(logProbs[2]);
      });
    }
  }));

/** Returns log-probs of the complete vocabulary after a context. A bias forces each token in turn, and the engine reports its log-prob. */
async function wholeLogProbs(engine: WgslRolloutEngine, contextIds: Uint32Array, promptLength: number) {
  const logProbs = new Float64Array(tinyConfig.vocabSize).fill(NaN);
  const requests = Array.from({ length: tinyConfig.vocabSize }, (_, token) => ({
    requestId: `whole.${token}`,
    contextIds,
    promptLength,
    key: [1, 1] as const,
    // A bias this large forces the token. The reported log-prob does not include the bias.
    sampling: { ...request(0, 0).sampling, maxNewTokens: 1, logitBias: [[token, 1e4] as const] },
  }));
  for (let i = 0; i < requests.length; i += 16) {
    const part = requests.slice(i, i + 16);
    for (const [
      id,
      {
        tokenIds,
        logProbs: [logProb],
      },
    ] of await run(engine, part)) {
      expect(`whole.${tokenIds[0]}`).toBe(id);
      logProbs[tokenIds[0]] = logProb;
    }
  }
  return logProbs;
}

test('log-prob minus log mass is the log-prob under penalties, biases and cuts, against float64', () =>
  withGpu(async () => {
    const { engine } = await newEngine();
    const settings = {
      repetitionPenalty: 1.4,
      presencePenalty: 0.3,
      frequencyPenalty: 0.5,
      logitBias: [[3, 1.5] as const],
      minNewTokens: 6,
    };
    const cuts = { topK: 20, topP: 0.9, minP: 0.02, temperature: 0.8 };
    const sampling = { ...settings, ...cuts, stopTokenIds: [7, 12], maxNewTokens: 9 };
    const { tokenIds, logProbs, logMass } = await generate(engine, request(1, 0, sampling));
    const prompt = prompts[1];
    const t = 3;
    const context = Uint32Array.from([...prompt, ...tokenIds.subarray(0, t)]);
    const raw = await wholeLogProbs(engine, context, prompt.length);
    expect(raw.every(Number.isFinite)).toBe(true);
    expect(Math.abs(logProbsOf(raw, 0.8)[tokenIds[t]] - logProbs[t])).toBeLessThan(2e-5);
    expect(logMass).toBeDefined();
    // A repetition penalty depends on the sign of the logits, which cannot be computed from log-probs. So the following comparison turns it
    // off.
    const additive = { ...settings, repetitionPenalty: 1 };
    const q = request(2, 1, { ...sampling, repetitionPenalty: 1 });
    const drawn = await generate(engine, q);
    for (const t of [0, 5, drawn.tokenIds.length - 1]) {
      const drawnIds = [...drawn.tokenIds.subarray(0, t)];
      const raw = await wholeLogProbs(engine, Uint32Array.from([...prompts[2], ...drawnIds]), prompts[2].length);
      const z = adjustedLogits(raw, additive, [...prompts[2]], drawnIds, [7, 12]);
      const changed = logProbsOf(z, 0.8);
      const kept = keptTokens(changed, cuts);
      const mass = changed.reduce((sum, logp, j) => sum + (kept[j] ? Math.exp(logp) : 0), 0);
      const token = drawn.tokenIds[t];
      expect(kept[token]).toBe(true);
      const want = changed[token] - Math.log(mass);
      expect(Math.abs(drawn.logProbs[t] - drawn.logMass![t] - want)).toBeLessThan(2e-5);
    }
  }));

test('a stop token is possible only after minNewTokens', () =>
  withGpu(async () => {
    const { engine } = await newEngine();
    const greedy = await generate(engine, request(1, 0, { temperature: 0, stopTokenIds: [] }));
    const stop = greedy.tokenIds[0];
    const sampling = { temperature: 0, stopTokenIds: [stop] };
    const early = await generate(engine, request(1, 0, sampling));
    expect(early.tokenIds).toEqual(Uint32Array.of(stop));
    const later = await generate(engine, request(1, 0, { ...sampling, minNewTokens: 4 }));
    expect(later.tokenIds.length).toBeGreaterThanOrEqual(4);
    expect(later.tokenIds.subarray(0, 4)).not.toContain(stop);
  }));

test('a penalty suppresses sampled tokens; a bias makes improbable tokens possible', () =>
  withGpu(async () => {
    const { engine } = await newEngine();
    const distinct = await generate(engine, request(0, 1, { temperature: 0, presencePenalty: 1e3, stopTokenIds: [] }));
    expect(new Set(distinct.tokenIds).size).toBe(distinct.tokenIds.length);
    const forced = await generate(engine, request(0, 1, { logitBias: [[42, 1e4]], stopTokenIds: [] }));
    expect([...forced.tokenIds]).toEqual(new Array(12).fill(42));
    expect(forced.logProbs[0]).toBeLessThan(-0.5); // the model's own log-prob
    expect(Math.abs(forced.logProbs[0] - forced.logMass![0])).toBeLessThan(1e-3); // certain because of the bias
  }));

test('a sample with special settings has the same tokens alone and with others', () =>
  withGpu(async () => {
    const { engine } = await newEngine({ ...SIZES, maxNumSeqs: 5 });
    const mixed = all.slice(3).map((q, i) => ({
      ...q,
      sampling: {
        ...q.sampling,
        ...(i % 3 === 0 && { frequencyPenalty: 0.7, entropy: true }),
        ...(i % 3 === 1 && { temperature: 0.6, repetitionPenalty: 1.2, topK: 9 }),
      },
    }));
    const together = await Promise.all(
      mixed.map(async (q) => {
        const generation = await engine.generate(q);
        engine.release(q.requestId);
        return generation;
      }),
    );
    for (const [i, q] of mixed.entries()) expect(together[i]).toEqual((await run(engine, [q])).get(q.requestId));
  }));

test('settings out of range are refused with one error message', async () => {
  const { engine } = await newEngine();
  const refuse = (sampling: Partial<SamplingParams>, sentence: string) =>
    expect(engine.generate(request(0, 0, sampling))).rejects.toThrow(new RangeError(sentence));
  await refuse({ repetitionPenalty: 0 }, 'repetitionPenalty is 0. It must be above 0, and 1 is off.');
  await refuse({ topLogprobs: 9 }, 'topLogprobs is 9. At most 8 are returned.');
  await refuse({ logitBias: [[61, 1]] }, 'logitBias names token 61; the vocabulary has 0 to 60.');
  await refuse(
    {
      logitBias: [
        [1, 1],
        [1, 2],
      ],
    },
    'logitBias names a token twice. Give each token one bias.',
  );
  await refuse({ logitBias: [[1, Infinity]] }, 'logitBias of token 1 is Infinity; allowed: -1e6 to 1e6.');
  const many = Array.from({ length: 65 }, (_, i): [number, number] => [i, 1]);
  await refuse({ logitBias: many }, 'logitBias has 65 entries. At most 64 are allowed.');
  const context = { ...request(0, 0), contextIds: ids(60), promptLength: 21 };
  await expect(engine.generate(context)).rejects.toThrow('A prompt has 21 tokens');
});

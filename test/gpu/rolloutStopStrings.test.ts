/** Tests stop strings on the GPU: tokens after a stop string are dropped with their log-probs, and the next turn continues correctly. */
import { expect, test } from 'vitest';
import type { Vocabulary } from '../../src/model/tokenizer/vocabulary.ts';
import { packGroups } from '../../src/model/packing.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { testGpu, withGpu } from './gpu.ts';
import { ids, prompts, request, SIZES } from './rolloutCases.ts';
import { tinyConfig, tinyModel } from './tinyModel.ts';

/** Token t is two letters from "a" to "h": its last and its first three bits. */
const vocabulary: Vocabulary = {
  bytes: Uint8Array.from({ length: tinyConfig.vocabSize * 2 }, (_, i) => 97 + (((i >> 1) >> (3 * (i % 2))) & 7)),
  starts: Uint32Array.from({ length: tinyConfig.vocabSize + 1 }, (_, t) => 2 * t),
};
const textOf = (tokenIds: Uint32Array) =>
  [...tokenIds].map((t) => String.fromCharCode(...vocabulary.bytes.subarray(2 * t, 2 * t + 2))).join('');

test('two turns that end at stop strings: log-probs are the trainer’s, bit for bit, and nothing after them stays', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu, { tieWordEmbeddings: false });
    const engine = new WgslRolloutEngine(gpu, model, SIZES, { vocabulary: () => vocabulary });
    const trainer = new WgslEngine(gpu, model, 64);
    const stop = ['bb', 'g'];
    const tool = ids(3);
    let stopped = 0;
    const turn = async (p: number, s: number, contextIds: Uint32Array) => {
      const q = request(p, s, { temperature: 0.8, stop, maxNewTokens: 14, stopTokenIds: [] });
      const generation = await engine.generate({ ...q, contextIds });
      const text = textOf(generation.tokenIds);
      expect(stop.some((string) => text.slice(0, -2).includes(string))).toBe(false);
      expect(generation.stopReason === 'stop_string').toBe(stop.some((string) => text.includes(string)));
      if (generation.stopReason === 'stop_string') stopped++;
      expect(generation.logProbs.length).toBe(generation.tokenIds.length);
      return generation;
    };
    const groups = await Promise.all(
      prompts.map(async (prompt, p) => ({
        prompt,
        samples: await Promise.all(
          [0, 1, 2].map(async (s) => {
            const first = await turn(p, s, prompt);
            const second = await turn(p, s, Uint32Array.from([...prompt, ...first.tokenIds, ...tool]));
            engine.release(`${p}.${s}`);
            return {
              tokens: Uint32Array.from([...first.tokenIds, ...tool, ...second.tokenIds]),
              mask: Uint8Array.from(
                [first.tokenIds, tool, second.tokenIds].flatMap((t, i) => [...t].map(() => (i % 2) ^ 1)),
              ),
              logProbs: [...first.logProbs, ...second.logProbs],
            };
          }),
        ),
      })),
    );
    expect(stopped).toBeGreaterThan(8);
    for (const { batch, entryGroup, entrySample, entryPosition } of packGroups(groups, 70)) {
      const { logProbs } = await trainer.logProbs(batch, { temperature: 0.8 });
      logProbs.forEach((logProb, e) => {
        const { mask, logProbs: sampled } = groups[entryGroup[e]].samples[entrySample[e]];
        const trained = mask.subarray(0, entryPosition[e]).reduce((a, b) => a + b, 0);
        expect(logProb).toBe(sampled[trained]);
      });
    }
    const { wastedRows, liveRows, generatedTokens } = await engine.takeStats();
    expect(wastedRows).toBe(liveRows - (generatedTokens - 24));
  }));

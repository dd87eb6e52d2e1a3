import { expect, test } from 'vitest';
import { packGroups } from '../../src/model/packing.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { testGpu, withGpu } from './gpu.ts';
import { ids, prompts, request, run, runFreeing, SIZES } from './rolloutCases.ts';
import { tinyModel } from './tinyModel.ts';

const all = prompts.flatMap((_, p) => [0, 1, 2, 3].map((s) => request(p, s)));

test('a sample has the same tokens alone, with others, and in other orders', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const together = await run(new WgslRolloutEngine(gpu, model, SIZES), all);
    const reversed = await run(new WgslRolloutEngine(gpu, model, SIZES), [...all].reverse());
    const single = new WgslRolloutEngine(gpu, model, SIZES);
    const lengths = new Set<number>();
    for (const q of all) {
      const alone = (await run(single, [q])).get(q.requestId);
      expect(together.get(q.requestId)).toEqual(alone);
      expect(reversed.get(q.requestId)).toEqual(alone);
      lengths.add(alone!.tokenIds.length);
    }
    expect(lengths.size).toBeGreaterThan(2); // the samples have different lengths
  }));

test('more requests than slots: all are served as slots free', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const want = await run(new WgslRolloutEngine(gpu, model, SIZES), all);
    const engine = new WgslRolloutEngine(gpu, model, { ...SIZES, maxNumSeqs: 3, maxPrompts: 2, maxBatchedTokens: 7 });
    const got = await runFreeing(engine, all);
    all.forEach((q, i) => expect(got[i]).toEqual(want.get(q.requestId)));
  }));

test('the log-prob at sampling is the trainer’s, bit for bit, over turns with tool output between', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu, { tieWordEmbeddings: false });
    const engine = new WgslRolloutEngine(gpu, model, SIZES);
    const trainer = new WgslEngine(gpu, model, 64);
    const tool = ids(4);
    const groups = await Promise.all(
      prompts.map(async (prompt, p) => ({
        prompt,
        samples: await Promise.all(
          [0, 1, 2].map(async (s) => {
            const sampling = { temperature: 0.8 };
            const first = await engine.generate(request(p, s, sampling));
            const context = Uint32Array.from([...prompt, ...first.tokenIds, ...tool]);
            const second = await engine.generate({ ...request(p, s, sampling), contextIds: context });
            engine.release(`${p}.${s}`);
            return {
              tokens: Uint32Array.from([...first.tokenIds, ...tool, ...second.tokenIds]),
              mask: Uint8Array.from([
                ...first.tokenIds.map(() => 1),
                ...tool.map(() => 0),
                ...second.tokenIds.map(() => 1),
              ]),
              logProbs: [...first.logProbs, ...second.logProbs],
            };
          }),
        ),
      })),
    );
    let checked = 0;
    for (const { batch, entryGroup, entrySample, entryPosition } of packGroups(groups, 70)) {
      const { logProbs } = await trainer.logProbs(batch, { temperature: 0.8 });
      logProbs.forEach((logProb, e) => {
        const { mask, logProbs: sampled } = groups[entryGroup[e]].samples[entrySample[e]];
        const trained = mask.subarray(0, entryPosition[e]).reduce((a, b) => a + b, 0);
        expect(logProb).toBe(sampled[trained]);
        checked++;
      });
    }
    expect(checked).toBeGreaterThan(60);
    const stats = await engine.takeStats();
    expect(stats.cachedTokens).toBeGreaterThan(stats.prefillTokens);
  }));

test('greedy takes the most likely token; stop tokens end a turn; top-k 1 is greedy', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const engine = new WgslRolloutEngine(gpu, model, SIZES);
    const greedy = await run(engine, [request(1, 0, { temperature: 0, stopTokenIds: [] })]);
    const topOne = await run(engine, [request(1, 0, { topK: 1, stopTokenIds: [] })]);
    expect(topOne.get('1.0')!.tokenIds).toEqual(greedy.get('1.0')!.tokenIds);
    expect(greedy.get('1.0')!.stopReason).toBe('length');
    const stop = greedy.get('1.0')!.tokenIds[2];
    const stopped = (await run(engine, [request(1, 0, { temperature: 0, stopTokenIds: [stop] })])).get('1.0')!;
    expect(stopped.stopReason).toBe('stop');
    expect(stopped.tokenIds.at(-1)).toBe(stop);
    expect(stopped.tokenIds.length).toBeLessThanOrEqual(3);
  }));

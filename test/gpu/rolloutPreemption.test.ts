/** Tests a shortage of slots: samples that lose their slot and get one again sample the same tokens as samples that keep theirs. */
import { expect, test } from 'vitest';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { testGpu, withGpu } from './gpu.ts';
import { hearing } from './hearing.ts';
import { ids, prompts, request, SIZES } from './rolloutCases.ts';
import { tinyModel } from './tinyModel.ts';

const SHORT = { ...SIZES, maxNumSeqs: 3, maxPrompts: 3, maxBatchedTokens: 24 };
const TOOL = [ids(4), ids(2)];

/** Sampling settings of the samples: defaults, and settings that a preempted turn must still apply when it resumes. */
const kinds: Partial<SamplingParams>[] = [
  {},
  { frequencyPenalty: 0.8, repetitionPenalty: 1.2, minNewTokens: 5, entropy: true },
  { temperature: 0.7, topK: 20 },
];
const samples = [0, 1, 2].flatMap((p) => [0, 1, 2].map((s) => request(p, s, { maxNewTokens: 10, ...kinds[s] })));

/** Runs two turns with a tool call between them. The call ends when the promise of `tool` resolves. */
async function twoTurns(
  engine: WgslRolloutEngine,
  q: GenerateRequest,
  tool: () => Promise<void>,
): Promise<Generation[]> {
  const first = await engine.generate(q);
  await tool();
  const contextIds = Uint32Array.from([...q.contextIds, ...first.tokenIds, ...TOOL[q.key[1] % 2]]);
  const second = await engine.generate({ ...q, contextIds });
  engine.release(q.requestId);
  return [first, second];
}

/**
 * Runs two turns of each request. The tools answer only when all samples have called theirs. With few slots, most samples have lost their
 * slot by then.
 */
function runSlowly(engine: WgslRolloutEngine, requests: GenerateRequest[]): Promise<Generation[][]> {
  let left = requests.length;
  let answer = () => {};
  const allCalled = new Promise<void>((resolve) => (answer = resolve));
  const tool = () => {
    if (--left === 0) answer();
    return allCalled;
  };
  return Promise.all(requests.map((q) => twoTurns(engine, q, tool)));
}

test('the same samples alone, together, in other orders and preempted draw the same', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const alone = new WgslRolloutEngine(gpu, model, SIZES);
    const want: Generation[][] = [];
    for (const q of samples) want.push(await twoTurns(alone, q, () => Promise.resolve()));
    expect((await alone.takeStats()).preemptions).toBe(0);
    for (const preemption of ['parked', 'latest'] as const) {
      const engine = new WgslRolloutEngine(gpu, model, SHORT, { preemption });
      const inOrder = <T>(all: T[]) => (preemption === 'parked' ? all : [...all].reverse());
      expect(await runSlowly(engine, inOrder(samples))).toEqual(inOrder(want));
      expect((await engine.takeStats()).preemptions).toBeGreaterThanOrEqual(samples.length - SHORT.maxNumSeqs);
    }
  }));

test('switched off, samples keep their slots while their tools run', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const engine = new WgslRolloutEngine(gpu, tinyModel(gpu), SHORT, { preemption: 'off' });
    await runSlowly(engine, samples.slice(0, SHORT.maxNumSeqs));
    const [a, b, c, d] = samples.slice(0, 4).map((q) => engine.generate(q));
    let hasEnded = false;
    void d.then(() => (hasEnded = true));
    await Promise.all([a, b, c]);
    // While `d` waits for a slot, sample 1 runs its next turn in the slot that it kept.
    const contextIds = Uint32Array.from([...samples[1].contextIds, ...(await b).tokenIds, ...TOOL[0]]);
    const sampling = { ...samples[1].sampling, stopTokenIds: [] };
    expect((await engine.generate({ ...samples[1], contextIds, sampling })).tokenIds).toHaveLength(10);
    expect(hasEnded).toBe(false);
    engine.release(samples[0].requestId);
    await d;
    expect((await engine.takeStats()).preemptions).toBe(0);
  }));

test.each(['recompute', 'keep'] as const)(
  'weights change in mid-turn, caches: %s; a turn goes on and says which drew what',
  (kvCache) =>
    withGpu(async () => {
      const gpu = await testGpu();
      const model = tinyModel(gpu);
      const engine = new WgslRolloutEngine(gpu, model, { ...SIZES, maxBatchedTokens: 24 }, { kvCache });
      const requests = samples
        .slice(0, 6)
        .map((q) => ({ ...q, sampling: { ...q.sampling, stopTokenIds: [], maxNewTokens: 30 } }));
      const want = await Promise.all(requests.map((q) => engine.generate(q)));
      for (const { requestId } of requests) engine.release(requestId);
      const [first, ...others] = requests;
      const { heard, onTokens } = hearing();
      const again = Promise.all([{ ...first, onTokens }, ...others].map((q) => engine.generate(q)));
      let resets = 0;
      for (const tokens of [3, 10, 20]) {
        await heard(tokens);
        await engine.pause();
        await engine.resetCache(); // the weights are the same, so the tokens must be the same
        resets++;
        engine.resume();
      }
      const got = await again;
      let pieces = 0;
      got.forEach(({ weightVersions, ...rest }, i) => {
        const { weightVersions: before, ...same } = want[i];
        expect(rest).toEqual(same);
        expect([...before!]).toEqual(before!.length === 0 ? [] : new Array(before!.length).fill(0));
        expect([...weightVersions!]).toEqual([...weightVersions!].sort());
        expect(weightVersions!.at(-1)).toBeLessThanOrEqual(resets);
        pieces += new Set(weightVersions).size;
      });
      expect(pieces).toBeGreaterThan(requests.length); // some were interrupted
      for (const { requestId } of requests) engine.release(requestId);
    }),
);

test('after a change of weights during a turn, the new weights continue after the same tokens', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const [model, other] = [tinyModel(gpu), tinyModel(gpu, {}, 9)];
    const engine = new WgslRolloutEngine(gpu, model, SIZES);
    const q = request(1, 2, { stopTokenIds: [], maxNewTokens: 36 });
    const { heard, onTokens } = hearing();
    const running = engine.generate({ ...q, onTokens });
    await heard(3);
    await engine.pause();
    model.weights.importTensors(await other.weights.exportTensors());
    await engine.resetCache();
    engine.resume();
    const { tokenIds, logProbs, weightVersions } = await running;
    const cut = weightVersions!.indexOf(1);
    expect(cut).toBeGreaterThan(0);
    const fresh = new WgslRolloutEngine(gpu, other, SIZES);
    const contextIds = Uint32Array.from([...q.contextIds, ...tokenIds.subarray(0, cut)]);
    const rest = await fresh.generate({ ...q, contextIds, sampling: { ...q.sampling, maxNewTokens: 36 - cut } });
    expect(tokenIds.subarray(cut)).toEqual(rest.tokenIds);
    expect(logProbs.subarray(cut)).toEqual(rest.logProbs);
  }));

test('abort keeps the tokens, and a later request continues from them as without the abort', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const engine = new WgslRolloutEngine(gpu, tinyModel(gpu), { ...SIZES, maxNumSeqs: 2 });
    const long = { stopTokenIds: [], maxNewTokens: 36 };
    const whole = await engine.generate(request(1, 0, long));
    engine.release('1.0');
    const requests = [request(1, 0, long), request(2, 0, long), request(0, 0, long)];
    const { heard, onTokens } = hearing();
    const running = requests.map((q, i) => engine.generate({ ...q, ...(i === 0 && { onTokens }) }));
    await heard(3);
    engine.abort(['1.0', '2.0', '0.0', 'unknown']);
    const parts = await Promise.all(running);
    expect(parts.map((p) => p.stopReason)).toEqual(['aborted', 'aborted', 'aborted']);
    expect(parts[2].tokenIds.length).toBe(0); // it never had a slot
    const [{ tokenIds, logProbs }] = parts;
    expect(tokenIds.length).toBeGreaterThan(0);
    const contextIds = Uint32Array.from([...prompts[1], ...tokenIds]);
    const sampling = { ...requests[0].sampling, maxNewTokens: 36 - tokenIds.length };
    const rest = await engine.generate({ ...requests[0], contextIds, sampling });
    expect([...tokenIds, ...rest.tokenIds]).toEqual([...whole.tokenIds]);
    expect([...logProbs, ...rest.logProbs]).toEqual([...whole.logProbs]);
    for (const { requestId } of requests) engine.release(requestId);
    await expect(engine.generate({ ...requests[0], requestId: 'next' })).resolves.toBeDefined();
    engine.release('next');
  }));

test('one sample takes one turn at a time', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const engine = new WgslRolloutEngine(gpu, tinyModel(gpu), SIZES);
    const first = engine.generate(request(0, 0));
    await expect(engine.generate(request(0, 0))).rejects.toThrow('while its last turn is still generating');
    expect(() => engine.release('0.0')).toThrow('Abort it first');
    await first;
    engine.release('0.0');
  }));

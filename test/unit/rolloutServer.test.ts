/** Tests the scheduler on a simulated decoder that reports every wrong row of the KV cache as an error. */
import { expect, test } from 'vitest';
import { type Preemption, type RolloutOptions, RolloutServer } from '../../src/rollout/server/server.ts';
import { nextTask } from '../../src/rollout/agent/yield.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { rng } from '../random.ts';
import { ModelSlotDecoder, turns } from '../slotDecoder.ts';

const SIZES = { maxNumSeqs: 16, slotCapacity: 96, maxPrompts: 16, maxPromptLength: 20, maxBatchedTokens: 64 };
const SAMPLING: SamplingParams = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  maxNewTokens: 12,
  stopTokenIds: [7],
};
const prompts = [5, 13, 20, 1].map((n) => Uint32Array.from({ length: n }, (_, i) => (i * 7 + n) % 64));

function request(prompt: number, sample: number, sampling: Partial<SamplingParams> = {}): GenerateRequest {
  const contextIds = prompts[prompt];
  const common = { contextIds, promptLength: contextIds.length, key: [prompt, sample] as const };
  return { requestId: `${prompt}.${sample}`, ...common, sampling: { ...SAMPLING, ...sampling } };
}

const serverOf = (sizes = SIZES, options: RolloutOptions = {}) => {
  const decoder = new ModelSlotDecoder(sizes);
  return { decoder, server: new RolloutServer(decoder, options) };
};

const isFull = process.env['FULL_TESTS'] === '1';

/** Milliseconds after which a test counts as hanging, also on a slow machine. */
const HANG_MS = 600_000;

const tick = () => new Promise((resolve) => setTimeout(resolve, 0));

/** Keeps `at` requests in flight until `count` requests are answered. */
async function stream(
  server: RolloutServer,
  count: number,
  at: number,
  make: (i: number) => GenerateRequest,
  after: (answered: number) => void | Promise<void> = () => {},
): Promise<Generation[]> {
  const generations: Generation[] = [];
  let [next, answered] = [0, 0];
  const client = async () => {
    while (next < count) {
      const i = next++;
      const q = make(i);
      generations[i] = await server.generate(q);
      server.release(q.requestId);
      await after(++answered);
    }
  };
  await Promise.all(Array.from({ length: at }, client));
  return generations;
}

test('thousands of requests with updates in the middle: every slot and every token is accounted for', async () => {
  const sizes = { ...SIZES, maxNumSeqs: 64, maxPrompts: 8, slotCapacity: 8, maxBatchedTokens: 512 };
  const { server, decoder } = serverOf(sizes);
  const make = (i: number) => ({ ...request(i % 4, i, { maxNewTokens: 1 + (i % 8) }), requestId: `${i}` });
  const requests = isFull ? 10_000 : 1000;
  const generations = await stream(server, requests, 100, make, (answered) => {
    if (answered % (requests / 10) !== 0) return;
    return (async () => {
      await server.pause();
      decoder.weights++;
      await server.resetCache();
      server.resume();
    })();
  });
  const stats = await server.takeStats();
  expect(stats.generatedTokens).toBe(generations.reduce((sum, g) => sum + g.tokenIds.length, 0));
  expect(generations.some((g) => new Set(g.weightVersions).size > 1)).toBe(true);
  expect(Math.max(...generations.at(-1)!.weightVersions!)).toBe(9);
  // Fill all 64 slots at the same time, twice: no slot was lost, and none is used twice at a time.
  for (let round = 0; round < 2; round++) {
    const full = Array.from({ length: 64 }, (_, i) => ({ ...make(i), requestId: `full.${i}` }));
    await Promise.all(full.map((q) => server.generate(q)));
    for (const { requestId } of full) server.release(requestId);
  }
});

test('idle resolves immediately without work, otherwise when all is done, or after its time limit', async () => {
  const { server, decoder } = serverOf();
  await server.idle(HANG_MS);
  decoder.takesTime = true;
  const ended: string[] = [];
  const generating = server.generate(request(0, 0, { stopTokenIds: [] })).then(() => ended.push('turn'));
  await server.idle(HANG_MS);
  ended.push('idle');
  await generating;
  expect(ended).toEqual(['turn', 'idle']);
  let goOn = () => {};
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  const read = decoder.readState.bind(decoder);
  decoder.readState = () => gate.then(read);
  const another = server.generate(request(1, 0)).then(() => ended.push('another'));
  await server.idle(5);
  ended.push('late');
  goOn();
  await another;
  expect(ended.slice(2)).toEqual(['late', 'another']);
});

test('kept caches: a sample in flight recomputes one row, and a new one recomputes its prompt', async () => {
  const sizes = { ...SIZES, maxBatchedTokens: 16 };
  const { server, decoder } = serverOf(sizes, { kvCache: 'keep' });
  decoder.reached = new Map();
  const long = { maxNewTokens: 60, stopTokenIds: [] };
  let heard = 0;
  let hasPaused = (_: Promise<void>) => {};
  const paused = new Promise<void>((resolve) => (hasPaused = resolve));
  const under = [0, 1, 2].map((p) =>
    server.generate({
      ...request(p, 0, long),
      onTokens: (ids) => p === 0 && heard < 9 && (heard += ids.length) >= 9 && hasPaused(server.pause()),
    }),
  );
  await paused;
  const before = await server.takeStats();
  expect(before.prefillTokens).toBe(5 + 13 + 20);
  const late = server.generate(request(2, 1, long)); // of a cached prompt, with the old weights
  await server.changeWeights(() => void decoder.weights++, 1);
  server.resume();
  const generations = await Promise.all([...under, late]);
  expect((await server.takeStats()).prefillTokens).toBe(3 + 20);
  generations.forEach(({ tokenIds, weightVersions }, i) => {
    const isLate = i === 3;
    const weights = decoder.reached!.get(isLate ? '2.1' : `${i}.0`)!;
    const drawn = weightVersions!.filter((version) => version === 0).length;
    expect(tokenIds.length).toBe(60);
    expect(drawn > 0).toBe(!isLate);
    // A token's KV row is computed by the pass that samples the next token. So the row of the last old token is computed with new weights.
    const old = isLate ? 0 : prompts[i].length + drawn - 1;
    expect(weights).toEqual(weights.map((_, row) => (row < old ? 0 : 1)));
  });
});

test('kept caches with partly computed contexts: each row is stored once, by the weights of its pass', async () => {
  const { server, decoder } = serverOf({ ...SIZES, maxBatchedTokens: 4 }, { kvCache: 'keep' });
  decoder.reached = new Map();
  decoder.takesTime = true;
  // The first two tokens of the context are the prompt, the others the sample's own, as in a second turn.
  const generating = [0, 1, 2].map((p) =>
    server.generate({ ...request(p, 0, { maxNewTokens: 8, stopTokenIds: [] }), promptLength: 2 }),
  );
  for (let version = 1; version <= 12; version++) {
    for (let turn = 0; turn < 4; turn++) await nextTask();
    await server.changeWeights(() => void decoder.weights++, version);
  }
  await Promise.all(generating);
  expect((await server.takeStats()).prefillTokens).toBeGreaterThan(5 + 13 + 20);
  const seen = [...decoder.reached.values()];
  expect(new Set(seen.flat()).size).toBeGreaterThan(3);
  for (const weights of seen) expect(weights).toEqual([...weights].sort((a, b) => a - b));
});

test('with lengths from 1 to 20, at least 90% of the slots are in use until the last tenth, and less than 5% of the rows are wasted', async () => {
  const { server } = serverOf();
  const r = rng(21);
  const lengths = Array.from({ length: 400 }, () => 4 * (1 + Math.floor(20 * r.uniform())));
  const make = (i: number) => ({
    ...request(i % 4, i, { maxNewTokens: lengths[i], stopTokenIds: [] }),
    requestId: `${i}`,
  });
  let used: { liveRows: number; wastedRows: number; decodeSteps: number } | undefined;
  await stream(server, lengths.length, lengths.length, make, async (answered) => {
    if (answered === 360) used = await server.takeStats();
  });
  const rest = await server.takeStats();
  const { liveRows, wastedRows, decodeSteps } = used!;
  expect((liveRows - wastedRows) / (decodeSteps * SIZES.maxNumSeqs)).toBeGreaterThan(0.9);
  expect((wastedRows + rest.wastedRows) / (liveRows + rest.liveRows)).toBeLessThan(0.05);
});

test('one slot: waiting requests are served in the order of their arrival', async () => {
  const { server } = serverOf({ ...SIZES, maxNumSeqs: 1 });
  const answered: number[] = [];
  await Promise.all(
    [0, 1, 2, 3, 4].map(async (i) => {
      const q = request(0, i, { maxNewTokens: 3, stopTokenIds: [] });
      await server.generate(q);
      answered.push(i);
      server.release(q.requestId);
    }),
  );
  expect(answered).toEqual([0, 1, 2, 3, 4]);
});

test('a completely cached context can be sampled from again', async () => {
  const { server } = serverOf();
  const first = request(1, 0, { maxNewTokens: 6, stopTokenIds: [] });
  const { tokenIds } = await server.generate(first);
  const again = { ...first, contextIds: Uint32Array.from([...first.contextIds, ...tokenIds.subarray(0, 4)]) };
  expect((await server.generate(again)).tokenIds.subarray(0, 2)).toEqual(tokenIds.subarray(4));
});

test('with unpredictable ends, less than 5% of the rows are wasted', async () => {
  const { server } = serverOf();
  const make = (i: number) => ({ ...request(i % 4, i, { maxNewTokens: 90, stopTokenIds: [3, 7] }), requestId: `${i}` });
  await stream(server, 400, 400, make);
  const { liveRows, wastedRows } = await server.takeStats();
  expect(liveRows).toBeGreaterThan(8000);
  expect(wastedRows / liveRows).toBeLessThan(0.05);
});

test.each<[Preemption, number]>([
  ['off', 16],
  ['parked', 1],
  ['latest', 3],
  ...(isFull ? [['parked', 3] as [Preemption, number], ['latest', 1] as [Preemption, number]] : []),
])('turns with waits of every length draw what they draw alone: %s, %i slots', async (preemption, maxNumSeqs) => {
  const alone = serverOf().server;
  const samples = [0, 1, 2, 3].flatMap((p) => [0, 1, 2, 3].map((s) => request(p, s)));
  const want: Generation[][] = [];
  for (const q of samples) want.push(await turns(alone, q, () => Promise.resolve()));
  const sizes = { ...SIZES, maxNumSeqs, maxPrompts: Math.max(2, maxNumSeqs), maxBatchedTokens: 9 };
  const { server, decoder } = serverOf(sizes, { preemption });
  decoder.takesTime = true;
  const r = rng(maxNumSeqs);
  const wait = async () => {
    for (let n = Math.floor(r.uniform() * 20); n > 0; n--) await tick();
  };
  expect(await Promise.all(samples.map((q) => turns(server, q, wait)))).toEqual(want);
  const reversed = [...samples].reverse();
  expect(await Promise.all(reversed.map((q) => turns(server, q, wait)))).toEqual([...want].reverse());
  const { preemptions } = await server.takeStats();
  if (preemption === 'off') expect(preemptions).toBe(0);
  else expect(preemptions).toBeGreaterThan(0);
});

test('one pass runs at a time, no row is past its limit, and a pause waits for the pass', async () => {
  const { server, decoder } = serverOf({ ...SIZES, maxNumSeqs: 4 });
  const read = decoder.readState.bind(decoder);
  let [inFlight, most] = [0, 0];
  decoder.readState = async () => {
    most = Math.max(most, ++inFlight);
    const state = await read();
    await nextTask();
    inFlight--;
    return state;
  };
  const lengths = [2, 9, 30, 31, 32, 33];
  const make = (i: number) => ({
    ...request(i % 4, i, { maxNewTokens: lengths[i], stopTokenIds: [] }),
    requestId: `${i}`,
  });
  const generations = await stream(server, lengths.length, 6, make);
  expect(generations.map((g) => g.tokenIds.length)).toEqual(lengths);
  expect((await server.takeStats()).wastedRows).toBeLessThanOrEqual(2);
  const running = server.generate(make(5));
  while (inFlight === 0) await nextTask();
  await server.pause();
  expect(inFlight).toBe(0);
  server.resume();
  expect((await running).tokenIds.length).toBe(33);
  expect(most).toBe(1);
});

test('the latest running sample is preempted by an earlier one, and continues later', async () => {
  const sizes = { ...SIZES, slotCapacity: 800 };
  const [early, late] = [request(0, 0), request(1, 0, { stopTokenIds: [], maxNewTokens: 800 })];
  const want = await serverOf(sizes).server.generate(late);
  const { server, decoder } = serverOf({ ...sizes, maxNumSeqs: 1 }, { preemption: 'latest' });
  decoder.takesTime = true;
  const order: string[] = [];
  const first = await server.generate(early);
  await server.takeStats();
  const running = server.generate(late).finally(() => order.push('late'));
  let [steps, preemptions] = [0, 0];
  while (steps === 0) {
    await nextTask();
    const stats = await server.takeStats();
    steps += stats.decodeSteps;
    preemptions += stats.preemptions;
  }
  expect(preemptions).toBe(1); // the early request, between its two turns
  const contextIds = Uint32Array.from([...early.contextIds, ...first.tokenIds]);
  await server.generate({ ...early, contextIds }).finally(() => order.push('early'));
  server.release(early.requestId);
  expect(await running).toEqual(want);
  expect(order).toEqual(['early', 'late']);
  expect((await server.takeStats()).preemptions).toBe(1);
});

test('with no policy, a sample that waits for its tool keeps its slot, and its next turn recomputes nothing', async () => {
  const { server } = serverOf({ ...SIZES, maxNumSeqs: 1 }, { preemption: 'off' });
  const first = await server.generate(request(1, 0));
  const other = server.generate(request(2, 0));
  for (let i = 0; i < 20; i++) await tick();
  await server.takeStats();
  const contextIds = Uint32Array.from([...prompts[1], ...first.tokenIds, 1]);
  await server.generate({ ...request(1, 0), contextIds });
  expect((await server.takeStats()).prefillTokens).toBe(2); // its last token, which no pass had read, and the tool's token
  server.release('1.0');
  await other;
});

test('abort works for waiting, prefilling, decoding and unknown requests, and frees every slot', async () => {
  const { server, decoder } = serverOf({ ...SIZES, maxNumSeqs: 2, maxBatchedTokens: 4, slotCapacity: 4000 });
  decoder.takesTime = true;
  const requests = [0, 1, 2, 3].map((p) => request(p, 0, { maxNewTokens: 4000, stopTokenIds: [] }));
  const running = requests.map((q) => server.generate(q));
  while ((await server.takeStats()).decodeSteps === 0) await nextTask();
  server.abort([...requests.map((q) => q.requestId), 'unknown']);
  for (const { stopReason, tokenIds, logProbs } of await Promise.all(running)) {
    expect(stopReason).toBe('aborted');
    expect(logProbs.length).toBe(tokenIds.length);
  }
  for (const { requestId } of requests) server.release(requestId);
  const again = await stream(server, 8, 8, (i) => ({ ...request(i % 4, i), requestId: `again.${i}` }));
  expect(again.every((g) => g.tokenIds.length > 0)).toBe(true);
});

test('a failing decoder rejects every waiting request', async () => {
  const { server, decoder } = serverOf({ ...SIZES, maxNumSeqs: 1 });
  decoder.readState = () => Promise.reject(new Error('device lost'));
  const results = await Promise.allSettled([server.generate(request(0, 0)), server.generate(request(1, 0))]);
  expect(results.map((r) => (r as PromiseRejectedResult).reason as unknown)).toEqual([
    new Error('device lost'),
    new Error('device lost'),
  ]);
  server.release('0.0');
  server.release('1.0');
});

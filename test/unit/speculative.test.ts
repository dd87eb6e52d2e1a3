/** Tests draft tokens that are guessed from earlier tokens, and a scheduler with speculative decoding on a simulated decoder. */
import { describe, expect, test } from 'vitest';
import { NgramProposer } from '../../src/extensions/speculative/ngramProposer.ts';
import { type Preemption, RolloutServer } from '../../src/rollout/server/server.ts';
import { SpeculationGate } from '../../src/extensions/speculative/speculationGate.ts';
import { nextTask } from '../../src/rollout/agent/yield.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { fitDrafts } from '../../src/extensions/speculative/draftRows.ts';
import { rng } from '../random.ts';
import { ModelSlotDecoder, turns } from '../slotDecoder.ts';

const u32 = (...ids: number[]) => Uint32Array.from(ids);
const OPTIONS = { maxDraftTokens: 8, minNgram: 2, history: 2, adapt: false };

describe('guesses', () => {
  test('are what followed the longest match, from the prompt, the sample itself and other samples of the prompt', () => {
    const proposer = new NgramProposer(OPTIONS);
    proposer.open('a', u32(1, 2, 3, 4, 5), u32());
    expect(proposer.propose('a', 8)).toEqual([]);
    proposer.push('a', [2, 3]);
    expect(proposer.propose('a', 8)).toEqual([4, 5]); // from the prompt
    proposer.push('a', [9, 2, 3]);
    expect(proposer.propose('a', 8)).toEqual([9, 2, 3]); // from its own later tokens
    proposer.open('b', u32(1, 2, 3, 4, 5), u32(2, 3, 9, 2, 3, 7, 7));
    expect(proposer.propose('a', 8)).toEqual([7, 7]); // from another sample: longer
    expect(proposer.propose('a', 1)).toEqual([7]);
    proposer.open('c', u32(8, 2, 3), u32());
    expect(proposer.propose('c', 8)).toEqual([]); // another prompt
    expect(proposer.propose('a', 0)).toEqual([]);
    expect(proposer.propose('unknown', 8)).toEqual([]);
  });

  test('guesses come from the last `history` finished samples; the first own token matches the prompt', () => {
    const proposer = new NgramProposer(OPTIONS);
    const prompt = u32(1, 2, 3);
    for (const [id, first] of [5, 6, 7].entries()) {
      proposer.open(`${id}`, prompt, u32());
      proposer.push(`${id}`, [first, 20 + first]);
      proposer.close(`${id}`);
    }
    const guesses = [5, 6, 7].map((first) => {
      proposer.open('new', prompt, u32());
      proposer.push('new', [first]);
      const guess = proposer.propose('new', 8);
      proposer.close('new');
      proposer.open('refill', prompt, u32(6, 26)); // evicted from memory by 'new'
      proposer.close('refill');
      proposer.open('refill', prompt, u32(7, 27));
      proposer.close('refill');
      return guess;
    });
    expect(guesses).toEqual([[], [26], [27]]);
  });

  test('guesses grow while they are right and shrink when they are wrong, within 1 and maxDraftTokens', () => {
    const proposer = new NgramProposer(OPTIONS);
    const line = Array.from({ length: 40 }, (_, i) => i);
    proposer.open('a', Uint32Array.from(line), u32(0, 1));
    const lengths = [
      [4, 4],
      [6, 6],
      [8, 8],
      [8, 3],
      [3, 0],
      [1, 1],
    ].map(([guessed, accepted]) => {
      const { length } = proposer.propose('a', 20);
      proposer.learn('a', guessed, accepted);
      return length;
    });
    expect([...lengths, proposer.propose('a', 20).length]).toEqual([4, 6, 8, 8, 3, 1, 3]);
  });

  test('guesses fit the available rows, and unused rows go to the next sample', () => {
    const guesses = [[1], [1, 2, 3, 4], [], [1, 2, 3]];
    expect(fitDrafts(guesses, 20)).toEqual(guesses);
    expect(fitDrafts(guesses, 9).map((g) => g.length)).toEqual([1, 1, 0, 3]);
    expect(fitDrafts(guesses, 4).flat()).toEqual([]);
    expect(fitDrafts(guesses, 1).flat()).toEqual([]);
  });
});

const SIZES = { maxNumSeqs: 16, slotCapacity: 96, maxPrompts: 16, maxPromptLength: 20, maxBatchedTokens: 64 };
const prompts = [5, 13, 20, 1].map((n) => Uint32Array.from({ length: n }, (_, i) => (i * 7 + n) % 64));

function request(prompt: number, sample: number, sampling: Partial<SamplingParams> = {}): GenerateRequest {
  const contextIds = prompts[prompt];
  const common = { contextIds, promptLength: contextIds.length, key: [prompt, sample] as const };
  const plain = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 24, stopTokenIds: [7] };
  return { requestId: `${prompt}.${sample}`, ...common, sampling: { ...plain, ...sampling } };
}

test.each<[Preemption, number, number]>([
  ['off', 16, 200],
  ['parked', 3, 30],
  ['latest', 3, 5],
  ['latest', 1, 12],
])('guessing changes nothing in what is drawn: %s, %i slots, %i rows', async (preemption, maxNumSeqs, verifyRows) => {
  const samples = [0, 1, 2, 3].flatMap((p) => [0, 1, 2, 3].map((s) => request(p, s)));
  const plain = new RolloutServer(new ModelSlotDecoder(SIZES));
  const want: Generation[][] = [];
  for (const q of samples) want.push(await turns(plain, q, () => Promise.resolve()));
  const sizes = { ...SIZES, maxNumSeqs, verifyRows, maxPrompts: Math.max(2, maxNumSeqs) };
  const speculative = { maxDraftTokens: 6, minNgram: 1, history: 8, adapt: false };
  const server = new RolloutServer(new ModelSlotDecoder(sizes), { preemption, speculative });
  const r = rng(maxNumSeqs);
  const wait = async () => {
    for (let n = Math.floor(r.uniform() * 20); n > 0; n--) await nextTask();
  };
  // The second round samples the same tokens as the first, so that drafts from the history are right most of the time.
  for (let round = 0; round < 2; round++) {
    expect(await Promise.all(samples.map((q) => turns(server, q, wait)))).toEqual(want);
    const stats = await server.takeStats();
    const tokens = want.flat().reduce((sum, g) => sum + g.tokenIds.length, 0);
    expect(stats.generatedTokens).toBe(tokens);
    expect(stats.acceptedTokens).toBeLessThanOrEqual(stats.draftTokens);
    expect(stats.acceptedTokens / stats.draftTokens)[round === 0 ? 'toBeLessThan' : 'toBeGreaterThan'](0.5);
    expect(stats.verifications).toBeGreaterThan(10);
  }
});

test('a single sample with predictable tokens needs far fewer passes', async () => {
  const passes: number[] = [];
  for (const speculative of [undefined, { maxDraftTokens: 8, minNgram: 2, history: 8, adapt: false }]) {
    const sizes = { ...SIZES, maxNumSeqs: 1, verifyRows: 9 };
    const server = new RolloutServer(new ModelSlotDecoder(sizes), { speculative });
    for (let round = 0; round < 2; round++) {
      await server.takeStats();
      await server.generate(request(0, 0, { maxNewTokens: 90, stopTokenIds: [] }));
      server.release('0.0');
    }
    const { decodeSteps, wastedRows, draftTokens, acceptedTokens } = await server.takeStats();
    expect(wastedRows).toBe(0);
    expect(acceptedTokens).toBe(draftTokens);
    passes.push(decodeSteps);
  }
  expect(passes[0]).toBe(89);
  expect(passes[1]).toBeLessThan(20);
});

test('a turn aborted between guesses keeps its tokens and continues from them later', async () => {
  const sizes = { ...SIZES, slotCapacity: 2000, verifyRows: 64 };
  const q = request(0, 0, { maxNewTokens: 1500, stopTokenIds: [] });
  const whole = await new RolloutServer(new ModelSlotDecoder(sizes)).generate(q);
  const decoder = new ModelSlotDecoder(sizes);
  const server = new RolloutServer(decoder, {
    speculative: { maxDraftTokens: 6, minNgram: 1, history: 8, adapt: false },
  });
  decoder.takesTime = true;
  const running = server.generate(q);
  while ((await server.takeStats()).acceptedTokens === 0) await nextTask();
  server.abort([q.requestId]);
  const part = await running;
  expect(part.stopReason).toBe('aborted');
  expect(part.tokenIds).toEqual(whole.tokenIds.subarray(0, part.tokenIds.length));
  const contextIds = Uint32Array.from([...q.contextIds, ...part.tokenIds]);
  const maxNewTokens = 1500 - part.tokenIds.length;
  const rest = await server.generate({ ...q, contextIds, sampling: { ...q.sampling, maxNewTokens } });
  expect([...part.tokenIds, ...rest.tokenIds]).toEqual([...whole.tokenIds]);
  server.release(q.requestId);
});

describe('the choice to use guesses', () => {
  const learned = (draftMs: number, stepsMs: number) => {
    const gate = new SpeculationGate();
    for (let pass = 0; pass < 3; pass++) {
      gate.learn('draft', pass === 0 ? 1000 : 4 * draftMs, 4); // the first pass compiles
      gate.learn('steps', pass === 0 ? 1000 : 8 * stepsMs, 8);
    }
    return gate;
  };
  const opened = (gate: SpeculationGate) => Array.from({ length: 16 }, () => gate.isOpen()).filter(Boolean).length;

  test('follows from the time that a token takes; the slower way is tried again now and then', () => {
    expect(opened(new SpeculationGate())).toBe(16);
    expect(opened(learned(2, 3))).toBe(16);
    expect(opened(learned(3, 2))).toBe(2);
    const gate = learned(3, 2);
    for (let pass = 0; pass < 8; pass++) gate.learn('draft', 4, 4);
    expect(opened(gate)).toBe(16);
  });

  test('changes no token', async () => {
    const q = request(1, 1, { maxNewTokens: 90, stopTokenIds: [] });
    const want = await new RolloutServer(new ModelSlotDecoder(SIZES)).generate(q);
    const server = new RolloutServer(new ModelSlotDecoder(SIZES), {
      speculative: { maxDraftTokens: 6, minNgram: 1, history: 8, adapt: true },
    });
    for (let round = 0; round < 3; round++) {
      expect(await server.generate(q)).toEqual(want);
      server.release(q.requestId);
    }
  });
});

import { expect, test, vi } from 'vitest';
import { RolloutServer } from '../../src/rollout/server/server.ts';
import { TurnClock } from '../../src/rollout/server/turnClock.ts';
import { ModelSlotDecoder } from '../slotDecoder.ts';

test('a request waits, is prefilled and decoded; a pass that does both is divided by its rows, or by the GPU’s times', () => {
  const now = vi.spyOn(performance, 'now');
  const at = (ms: number) => now.mockReturnValue(ms);
  at(100);
  const [plain, timed] = [new TurnClock(), new TurnClock()];
  at(130);
  for (const clock of [plain, timed]) clock.enter('prefill');
  const pass = { started: 130, ended: 190, prefillRows: 40, decodeRows: 20 };
  plain.pass(pass, true);
  timed.pass({ ...pass, gpu: { prefill: 10, decode: 30, sample: 10 } }, true);
  const next = { started: 190, ended: 200, prefillRows: 0, decodeRows: 20 };
  plain.pass(next, false);
  timed.pass({ ...next, gpu: { prefill: 0, decode: 6, sample: 2 } }, false);
  at(200);
  expect(plain.end()).toEqual([
    { kind: 'queue', start: 0, end: 30 },
    { kind: 'prefill', start: 30, end: 70 },
    { kind: 'decode', start: 70, end: 100 },
  ]);
  expect(timed.end()).toEqual([
    { kind: 'queue', start: 0, end: 30 },
    { kind: 'prefill', start: 30, end: 42, gpuMs: 10 },
    { kind: 'decode', start: 42, end: 85.5, gpuMs: 36 },
    { kind: 'sample', start: 85.5, end: 100, gpuMs: 12 },
  ]);
  now.mockRestore();
});

test('the server reports spans without gaps, only to requests that ask, also after a wait for a slot', async () => {
  const sizes = { maxNumSeqs: 2, slotCapacity: 32, maxPrompts: 2, maxPromptLength: 8, maxBatchedTokens: 16 };
  const server = new RolloutServer(new ModelSlotDecoder(sizes));
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 8, stopTokenIds: [] };
  const request = (i: number, timed: boolean) => ({
    requestId: `${i}`,
    contextIds: Uint32Array.of(1, 2, 3),
    promptLength: 3,
    key: [1, i] as const,
    sampling,
    ...(timed && { timed }),
  });
  const generate = async (i: number, timed: boolean) => {
    const generation = await server.generate(request(i, timed));
    server.release(`${i}`);
    return generation;
  };
  const generations = await Promise.all([0, 1, 2, 3].map((i) => generate(i, i > 0)));
  expect(generations[0].spans).toBeUndefined();
  for (const { spans } of generations.slice(1)) {
    expect(spans!.map(({ kind }) => kind)).toEqual(['queue', 'prefill', 'decode']);
    expect(spans![0].start).toBe(0);
    for (const [i, { start, end, gpuMs }] of spans!.entries()) {
      if (i > 0) expect(start).toBe(spans![i - 1].end);
      expect(end).toBeGreaterThanOrEqual(start);
      expect(gpuMs).toBeUndefined();
    }
  }
});

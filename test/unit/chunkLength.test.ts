/**
 * Tests the number of decode steps between two read-backs: a balance between rows that are decoded in vain and time that the device waits.
 */
import { expect, test } from 'vitest';
import { ChunkLength } from '../../src/rollout/server/chunkLength.ts';
import { rng } from '../random.ts';

const SEQUENCES = 100;

/**
 * A device whose steps take `stepMs` and that waits `hostMs` for the host after a read-back. In each step, a sequence ends with probability
 * `endRate`.
 */
interface Load {
  stepMs: number;
  hostMs: number;
  endRate: number;
}

/** Returns a ChunkLength that has observed `passes` passes of one step each, under a load. */
function seen({ stepMs, hostMs, endRate }: Load, passes = 200): ChunkLength {
  const chunk = new ChunkLength();
  for (let i = 0; i < passes; i++) {
    chunk.learnTime(stepMs, 1);
    chunk.learnWait(hostMs);
    chunk.learnEnds(endRate * SEQUENCES, SEQUENCES, 1);
  }
  return chunk;
}

/** Returns the remaining tokens of each sequence, so many that no sequence comes near its limit. */
const far = (n = SEQUENCES, tokens = 1000) => Array.from({ length: n }, () => tokens);

const isFull = process.env['FULL_TESTS'] === '1';
const PASSES = isFull ? 2000 : 800;

/** Runs the passes of a batch that is always full, with `fixed` steps each, or as many as ChunkLength chooses. */
function simulate(
  { stepMs, hostMs, endRate }: Load,
  fixed?: number,
): { wasted: number; msPerToken: number; rows: number } {
  const chunk = new ChunkLength();
  const r = rng(3);
  let [rows, wasted, ms] = [0, 0, 0];
  for (let pass = 0; pass < PASSES; pass++) {
    const steps = fixed ?? chunk.next(far());
    let ended = 0;
    for (let i = 0; i < SEQUENCES; i++) {
      // The number of steps until a sequence ends has a geometric distribution.
      const lives = 1 + Math.floor(Math.log(1 - r.uniform()) / Math.log(1 - endRate));
      if (lives <= steps) ended++;
      if (pass >= 200) wasted += Math.max(0, steps - lives);
    }
    chunk.learnTime(steps * stepMs, steps);
    if (ended === 0) chunk.learnWait(hostMs);
    chunk.learnEnds(ended, SEQUENCES, steps);
    if (pass < 200) continue;
    rows += steps * SEQUENCES;
    ms += steps * stepMs + hostMs + 0.5;
  }
  return { wasted: wasted / rows, msPerToken: ms / (rows * (1 - wasted / rows)), rows };
}

const LOADS: Load[] = [0.0005, 0.003, 0.01, 0.04].flatMap((endRate) =>
  [0, 2, 20].flatMap((hostMs) => [1, 10].map((stepMs) => ({ stepMs, hostMs, endRate }))),
);

test.each(LOADS)('a full batch wastes less than 5% of its rows: %o', (load) => {
  const { wasted, rows } = simulate(load);
  expect(rows).toBeGreaterThan(0);
  expect(wasted).toBeLessThan(0.05);
});

test('if ends are rare, a token takes at most a tenth longer than with the best fixed number of steps', () => {
  for (const hostMs of isFull ? [1, 5, 20] : [5]) {
    const load = { stepMs: 5, hostMs, endRate: 0.0005 };
    const fixed = Array.from({ length: 32 }, (_, i) => simulate(load, i + 1).msPerToken);
    expect(simulate(load).msPerToken).toBeLessThan(1.1 * Math.min(...fixed));
  }
});

test('the longer the device waits for the host, and the shorter a step, the more steps it gets at once', () => {
  const waits = [0, 1, 2, 4, 8, 16].map((hostMs) => seen({ stepMs: 5, hostMs, endRate: 0.001 }).next(far()));
  expect(waits).toEqual([...waits].sort((a, b) => a - b));
  expect(waits.at(-1)).toBeGreaterThan(waits[0]);
  const times = [1, 5, 25, 125].map((stepMs) => seen({ stepMs, hostMs: 2, endRate: 0.001 }).next(far()));
  expect(times).toEqual([...times].sort((a, b) => b - a));
  expect(times.at(-1)).toBeLessThan(times[0]);
});

test('the time of a pass counts by its steps', () => {
  const chunks = [1, 8].map((steps) => {
    const chunk = seen({ stepMs: 5, hostMs: 4, endRate: 0.001 });
    for (let i = 0; i < 50; i++) chunk.learnTime(5 * steps, steps);
    return chunk.next(far());
  });
  expect(chunks[1]).toBe(chunks[0]);
});

test('the more sequences end, the fewer steps; at least one, however many end', () => {
  const steps = [0, 0.001, 0.01, 0.1, 1].map((endRate) => seen({ stepMs: 1, hostMs: 5, endRate }).next(far()));
  expect(steps).toEqual([...steps].sort((a, b) => b - a));
  expect(steps.at(-1)).toBe(1);
  expect(steps[0]).toBeGreaterThan(10);
});

test('limits are known in advance, so less than 5% of the rows exceed them, however long the wait', () => {
  const chunk = seen({ stepMs: 1, hostMs: 50, endRate: 0.0001 });
  for (const left of [far(SEQUENCES, 3), [...far(90), ...far(10, 1)], [1, 40, 40], [2]]) {
    const steps = chunk.next(left);
    const past = left.reduce((sum, tokens) => sum + Math.max(0, steps - tokens), 0);
    expect(steps).toBeGreaterThanOrEqual(1);
    if (steps > 1) expect(past / (steps * left.length)).toBeLessThan(0.05);
  }
  expect(chunk.next(far(SEQUENCES, 3))).toBe(3);
});

test('the last few sequences of a training step can waste more rows, but no step beyond their limits', () => {
  const chunk = seen({ stepMs: 1, hostMs: 2, endRate: 0.1 });
  expect(chunk.next(far(5))).toBeGreaterThan(chunk.next(far()));
  expect(chunk.next(far(5, 2))).toBe(2);
});

/**
 * Tests the simulation of pipelines: its clock and devices against sums by hand, verl's published phase times, and a profile that it
 * created itself.
 */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { type Asked, type Means, predict, type Row } from '../../bench/predict.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import type { EventSpan, SampleProfile } from '../../src/runs/profileLog.ts';
import { Clock, type Process, type Signal } from '../../src/extensions/simulation/clock.ts';
import { RolloutDevice } from '../../src/extensions/simulation/rolloutDevice.ts';
import { runWorkload } from '../../src/extensions/simulation/runWorkload.ts';
import { type Setup, simulate } from '../../src/extensions/simulation/simulate.ts';
import type { SampleWork, Workload } from '../../src/extensions/simulation/workload.ts';

/** A pipeline with two groups per step, on one device. */
const SETUP: Setup = {
  pipeline: { stepGroups: 2, syncSteps: 1, maxGroups: 2, maxAge: 0, partial: false, inOrder: true },
  devices: 1,
  rolloutDevices: 0,
  maxNumSeqs: 4,
  miniBatches: 1,
  steps: 3,
};

const sample = (group: number, ...turns: [tokens: number, toolSeconds: number][]): SampleWork => ({
  group,
  turns: turns.map(([tokens, toolSeconds]) => ({ tokens, toolSeconds })),
});

const work = (steps: SampleWork[][], trainSeconds: number): Workload => ({
  steps,
  decode: { perPass: 0.5, perRow: 0.25 },
  trainSeconds: [trainSeconds],
  syncSeconds: 0.125,
  promptTokens: 0,
});

describe('a device', () => {
  test('slows down with each sequence, and speeds up when one ends', () => {
    const clock = new Clock();
    const device = new RolloutDevice(clock, { perPass: 0.5, perRow: 0.25 }, 2);
    const ends: number[] = [];
    const processes = [sample(0, [4, 0]), sample(0, [8, 0]), sample(0, [2, 0])].map((one) => {
      const ended = clock.start(device.run(one));
      ended.whenHappened(() => ends.push(clock.now));
      return ended;
    });
    clock.runUntil(processes[1]);
    // Two samples at a time: 4 tokens at 1 s each. Then the third sample next to the second: 2 tokens at 1 s. Then 2 tokens alone at 0.75
    // s.
    expect(ends).toEqual([4, 6, 7.5]);
    expect(device.busySeconds).toBe(7.5);
  });

  test('a sample frees its slot while a tool runs', () => {
    const clock = new Clock();
    const device = new RolloutDevice(clock, { perPass: 0, perRow: 1 }, 1);
    const first = clock.start(device.run(sample(0, [2, 3], [2, 0])));
    const second = clock.start(device.run(sample(1, [4, 0])));
    clock.runUntil(second);
    expect(clock.now).toBe(6);
    clock.runUntil(first);
    expect(clock.now).toBe(8);
  });
});

describe('a pipeline', () => {
  const step = [sample(0, [4, 0]), sample(0, [4, 2]), sample(1, [4, 0]), sample(1, [4, 0])];

  test('on-policy is the sum of its phases', () => {
    const { stepSeconds, idleShare, staleness } = simulate(work([step], 10), SETUP);
    // Four rows generate together: 4 tokens each, 1.5 s per token, then a tool call of 2 s.
    expect(stepSeconds).toBeCloseTo(4 * 1.5 + 2 + 10 + 0.125, 9);
    expect(idleShare.rollout).toBeCloseTo(1 - 6 / 18.125, 9);
    expect(idleShare.trainer).toBeCloseTo(1 - 10 / 18.125, 9);
    expect(staleness).toEqual([6]);
  });

  test('one-step-off on two devices takes the longer of its halves', () => {
    const pipeline = { ...SETUP.pipeline, maxGroups: 4, maxAge: 1 };
    const split = { ...SETUP, pipeline, devices: 2, rolloutDevices: 1, steps: 40 };
    expect(simulate(work([step], 20), split).stepSeconds).toBeCloseTo(20.125, 0);
    expect(simulate(work([step], 1), split).stepSeconds).toBeCloseTo(8.125, 0);
    expect(simulate(work([step], 1), split).staleness).toEqual([2, 78]);
  });

  test.each([0, 0.5, 1])(
    'fully-async trains as many groups as it is asked for, and none is staler than %f asks',
    (stalenessThreshold) => {
      for (const partial of [true, false])
        for (const inOrder of [true, false])
          for (const trainSeconds of [0.1, 6, 60]) {
            const [maxGroups, maxAge] = [Math.floor(2 * (1 + stalenessThreshold)), Math.ceil(stalenessThreshold)];
            const pipeline = { stepGroups: 1, syncSteps: 2, maxGroups, maxAge, partial, inOrder };
            const setup = { ...SETUP, pipeline, devices: 2, rolloutDevices: 1, steps: 20 };
            const { staleness } = simulate(work([step], trainSeconds), setup);
            expect(staleness.reduce((a, b) => a + b)).toBe(20);
            expect(staleness.length - 1).toBeLessThanOrEqual(maxAge);
          }
    },
  );

  test('groups that became too old are dropped and replaced', () => {
    const slow = [...step.slice(0, 2), sample(1, [4, 100])];
    const pipeline = { stepGroups: 1, syncSteps: 1, maxGroups: 2, maxAge: 1, partial: true, inOrder: false };
    const setup = { ...SETUP, pipeline, devices: 2, rolloutDevices: 1, steps: 30 };
    const { staleness, dropped } = simulate(work([slow], 0.1), setup);
    expect(staleness.reduce((a, b) => a + b)).toBe(30);
    expect(staleness.length).toBeLessThanOrEqual(2);
    expect(dropped).toBeGreaterThan(0);
    expect(simulate(work([slow], 0.1), { ...setup, pipeline: { ...pipeline, inOrder: true } }).dropped).toBe(0);
  });

  test('new weights cost recomputing the contexts of samples in flight', () => {
    const pipeline = { stepGroups: 1, syncSteps: 1, maxGroups: 2, maxAge: 8, partial: true, inOrder: true };
    const long = [sample(0, [4, 0]), sample(1, [4, 20], [4, 0])];
    const setup = { ...SETUP, pipeline, devices: 2, rolloutDevices: 1, steps: 2 };
    const { seconds } = simulate({ ...work([long], 1), promptTokens: 6 }, setup);
    // Two rows: 4 tokens at 1 s. A tool call of 20 s, then 10 tokens of context recomputed at 0.25 s, then 4 tokens at 0.75 s. Half of the
    // update, because a step has one of the two groups, and the transfer of the weights.
    expect(seconds).toBeCloseTo(4 + 20 + 2.5 + 3 + 0.5 + 0.125, 9);
  });

  test('new weights cost recomputing the tokens of a turn in flight', () => {
    const clock = new Clock();
    const device = new RolloutDevice(clock, { perPass: 0.5, perRow: 0.25 }, 2);
    const ended = clock.start(device.run(sample(0, [8, 0]), 2));
    clock.after(3, () => device.forgetCaches());
    clock.runUntil(ended);
    // 8 tokens are sampled at 0.75 s each. After 3 s the cache is lost: 2 prompt tokens and 4 sampled ones are recomputed at 0.25 s each.
    expect(clock.now).toBe(8 * 0.75 + 6 * 0.25);
  });

  test('no tokens are generated during an update on the same device, while tools continue', () => {
    const pipeline = { stepGroups: 1, syncSteps: 1, maxGroups: 2, maxAge: 8, partial: true, inOrder: true };
    const both = [sample(0, [4, 0]), sample(1, [4, 9], [4, 0])];
    const setup = { ...SETUP, pipeline, steps: 2 };
    const free = { ...work([both], 10), decode: { perPass: 0.5, perRow: 0.25, perContextToken: 0 } };
    // Two rows: 4 tokens at 1 s. Then 5 s of training, during which the second sample's tool call continues. It ends at 13 s, and 4 tokens
    // at 0.75 s follow.
    expect(simulate(free, setup).seconds).toBeCloseTo(13 + 3 + 5 + 0.125, 9);
    const quick = { ...free, steps: [[both[0], sample(1, [4, 3], [4, 0])]] };
    // The tool call ends at 7 s, but the update, with the transfer of the weights, at 9.125 s.
    expect(simulate(quick, setup).seconds).toBeCloseTo(9.125 + 3 + 5 + 0.125, 9);
  });

  test('rollout runs before each mini-batch on the same device, at most as long as the previous one took', () => {
    const pipeline = { stepGroups: 1, syncSteps: 1, maxGroups: 2, maxAge: 8, partial: true, inOrder: true };
    const both = [sample(0, [4, 0]), sample(1, [4, 2], [4, 0])];
    const free = { ...work([both], 10), decode: { perPass: 0.5, perRow: 0.25, perContextToken: 0 } };
    // The first half of the update lasts from 4 to 6.5 s. The tool call ends at 6 s. Rollout then gets 2.5 s, of the 3 s that the sample
    // needs. The second half of the update ends at 11.5 s.
    const { seconds } = simulate(free, { ...SETUP, pipeline, steps: 2, miniBatches: 2 });
    expect(seconds).toBeCloseTo(11.5 + 0.125 + 0.5 + 5 + 0.125, 9);
  });

  test('no machine decodes with all of its devices and trains with none', () => {
    expect(() => simulate(work([step], 1), { ...SETUP, devices: 2, rolloutDevices: 2 })).toThrow(
      '2 of 2 devices cannot decode alone: one at least has to train.',
    );
  });
});

describe('a room', () => {
  const groups = [0, 1, 2, 3].map((group) => sample(group, [4, 2], [4, 3]));
  const setup = { ...SETUP, pipeline: { ...SETUP.pipeline, stepGroups: 4, maxGroups: 4 }, steps: 1 };
  // Time of a worker with one group: 4 tokens at 0.75 s, tools of 2 s, 4 tokens at 0.75 s, tools of 3 s.
  const alone = 11;

  test.each([
    { workers: 1, groupsAtOnce: 1, rounds: 4 },
    { workers: 2, groupsAtOnce: 1, rounds: 2 },
    { workers: 3, groupsAtOnce: 1, rounds: 2 },
    { workers: 4, groupsAtOnce: 8, rounds: 1 },
  ])('$workers workers of $groupsAtOnce groups need $rounds rounds', ({ workers, groupsAtOnce, rounds }) => {
    const room = { groupsAtOnce, verifies: false };
    const { seconds } = simulate(work([groups], 6), { ...setup, devices: workers + 1, rolloutDevices: workers, room });
    expect(seconds).toBeCloseTo(rounds * alone + 6 + 0.125, 9);
  });

  test('a verifying room repeats the tools, and checks one sample after another', () => {
    const room = { groupsAtOnce: 1, verifies: true };
    const { seconds, steps } = simulate(work([groups], 6), { ...setup, devices: 5, rolloutDevices: 4, room });
    // 5 s of tools, then the verification of four samples, each by a forward pass: a third of the sample's quarter of the update.
    expect(seconds).toBeCloseTo(alone + 5 + 4 * 0.5 + 6 + 0.125, 9);
    expect(steps[0].idleShare.trainer).toBeCloseTo((alone + 7) / seconds, 9);
    expect(steps[0].idleShare.rollouter).toBeCloseTo(6.125 / seconds, 9);
  });

  test('has workers', () => {
    const room = { groupsAtOnce: 1, verifies: true };
    expect(() => simulate(work([groups], 6), { ...setup, room })).toThrow('A room has workers');
  });
});

/**
 * verl's docs/advance/fully_async.md, Qwen2.5-Math-7B: 512 prompts x 16 samples per step; seconds. Of generation, only the duration is
 * published. The lengths here are lognormal, chosen so that a step takes about as long on 32 and on 128 devices. Everything else is the
 * published phase times. This cannot validate the model: two inputs are chosen and the published ranges are wide.
 */
describe("consistent with verl's published speed-ups, from its phase times", () => {
  const { uniform } = keyedRng('lengths');
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const lengths = Array.from({ length: 512 * 16 }, (_, i) =>
    sample(Math.floor(i / 16), [Math.min(28_000, 1500 * Math.exp(normal())), 0]),
  );
  const workOf = (deviceSeconds: number): Workload => ({
    steps: [lengths],
    // Contexts are recomputed at no cost here, because verl has not published this cost.
    decode: { perPass: 0.008, perRow: 0.0001, perContextToken: 0 },
    trainSeconds: [deviceSeconds],
    syncSeconds: 0.3,
    promptTokens: 0,
  });
  // verl's settings: training takes portions of a quarter of a step, the staleness threshold is 0.5, and no sample is dropped as too old.
  const pipeline = { stepGroups: 128, syncSteps: 4, maxGroups: 768, maxAge: Infinity, partial: true, inOrder: false };
  const setup = { ...SETUP, pipeline, maxNumSeqs: 256, steps: 56 };

  // 3 s each. Every day the runs that were measured here are simulated.
  test.runIf(process.env['FULL_TESTS'] === '1').each([
    { devices: 32, colocated: 790.1, update: 269.8, low: 1.7, high: 2.66 },
    { devices: 64, colocated: 365.28, update: 156.98, low: 1.83, high: 2.09 },
    { devices: 128, colocated: 356.3, update: 113.16, low: 2.35, high: 2.67 },
  ])('fully async on $devices devices', ({ devices, colocated, update, low, high }) => {
    const { steps } = simulate(workOf((update * devices) / 2), { ...setup, devices, rolloutDevices: devices / 2 });
    // During the last steps of a run, nothing is generated ahead.
    const predicted = colocated / (steps.slice(0, 48).reduce((sum, { seconds }) => sum + seconds, 0) / 12);
    // verl published a range over 400 steps, during which answers grow. The simulation has answers of constant length.
    expect(predicted).toBeGreaterThan(0.95 * low);
    expect(predicted).toBeLessThan(1.05 * high);
  });
});

test('slow tools: a bound of one sync drops groups, the default of asyncTraining.maxOffPolicyThreshold none', () => {
  const { uniform } = keyedRng('slow tools');
  // 16 groups of 8 samples per step. A tool takes 0.5 s, but one call in 40 takes up to 20 s. A step trains for 2 s.
  const tool = () => (uniform() < 1 / 40 ? 20 * uniform() : 0.5);
  const steps = Array.from({ length: 10 }, () =>
    Array.from({ length: 128 }, (_, i) => sample(Math.floor(i / 8), [40, tool()], [40, 0])),
  );
  const work = { steps, decode: { perPass: 0.01, perRow: 0.0005 }, trainSeconds: [2], syncSeconds: 0, promptTokens: 0 };
  const pipeline = { stepGroups: 16, syncSteps: 1, maxGroups: 24, partial: true, inOrder: false };
  const droppedBy = (maxAge: number) =>
    simulate(work, { ...SETUP, pipeline: { ...pipeline, maxAge }, maxNumSeqs: 256, steps: 40 }).dropped;
  expect([1, 2, 4, 8].map(droppedBy)).toEqual([53, 11, 0, 0]); // of 640 groups trained on
});

/**
 * Data of `node scripts/bench-simulation.mjs --keep`: the profile of one run, and measured times of that run, of other pipelines on the
 * same device, and of rooms. No other program ran during the measurements.
 */
describe('runs that were measured here', () => {
  // Allowed errors: relative for the seconds of a step, absolute for the two idle shares.
  const [oneDevice, rooms] = [
    { stepSeconds: 0.06, trainer: 0.04, rollouter: 0.03 },
    { stepSeconds: 0.12, trainer: 0.04, rollouter: 0.02 },
  ];
  const file = readFileSync('test/fixtures/simulation.json', 'utf8');
  const { work, rows, ...asked } = JSON.parse(file) as Asked & { work: Workload; rows: (Row & { measured: Means })[] };

  test.each(rows)('$name', ({ measured, ...row }) => {
    const { stepSeconds, idleShare } = predict(work, row, asked);
    const error = row.workers > 0 ? rooms : oneDevice;
    expect(Math.abs(stepSeconds / measured.stepSeconds - 1)).toBeLessThan(error.stepSeconds);
    expect(Math.abs(idleShare.trainer - measured.idleShare.trainer)).toBeLessThan(error.trainer);
    expect(Math.abs(idleShare.rollouter - measured.idleShare.rollouter)).toBeLessThan(error.rollouter);
  });
});

test("the cost of a pass and the waits of tools are recovered from a device's profile", () => {
  const cost = { perPass: 0.02, perRow: 0.004 };
  const { int } = keyedRng('profile');
  const clock = new Clock();
  const device = new RolloutDevice(clock, cost, 64);
  function* logged({ events }: SampleProfile, turns: number[]): Process {
    for (const [turn, tokens] of turns.entries()) {
      const start = 1000 * clock.now;
      yield clock.start(device.run(sample(0, [tokens, 0])));
      const end = 1000 * clock.now;
      events.push(['decode', turn, start, end] satisfies EventSpan, ['tool', turn + 1, end, end + 500]);
      yield 0.5;
    }
  }
  const samples: SampleProfile[] = [];
  const ends: Signal[] = [];
  for (let i = 0; i < 48; i++) {
    const turns = [int(5, 200), int(5, 30)];
    const rest = { problem: 'p', stop: 'completed', turns: 2, toolCalls: 2, score: 1, events: [] };
    const profile = { id: `${i >> 2}.${i % 4}`, tokens: turns[0] + turns[1], ...rest };
    samples.push(profile);
    ends.push(clock.start(logged(profile, turns)));
  }
  for (const end of ends) clock.runUntil(end);
  const metrics = {
    'training/global_step': 1,
    'timing_s/update_actor': 3,
    'timing_s/old_log_prob': 2,
    'timing_s/sync': 0.5,
    'prompt_length/mean': 30,
  };
  const work = runWorkload([{ step: 1, phases: [], samples }], [metrics]);
  // The fit searches the ratio of the two costs in steps of 2.3%, hence the tolerance.
  expect(Math.abs(work.decode.perPass / cost.perPass - 1)).toBeLessThan(0.02);
  expect(Math.abs(work.decode.perRow / cost.perRow - 1)).toBeLessThan(0.02);
  expect(work.trainSeconds).toEqual([5]);
  expect(work.syncSeconds).toBe(0.5);
  expect(work.promptTokens).toBe(30);
  expect(work.steps[0][5].group).toBe(1);
  for (const { toolSeconds } of work.steps[0][5].turns) expect(toolSeconds).toBeCloseTo(0.5, 9);
  // With the fitted costs, a simulation of the same samples must take the measured time.
  const pipeline = { ...SETUP.pipeline, stepGroups: 12, maxGroups: 12 };
  const setup = { ...SETUP, pipeline, maxNumSeqs: 64, steps: 1 };
  expect(simulate({ ...work, decode: cost }, setup).seconds).toBeCloseTo(clock.now + 5.5, 0);
});

test('a run without profiles is refused', () => {
  expect(() => runWorkload([], [{ 'training/global_step': 1 }])).toThrow(
    'No step of the run has both a profile and metrics',
  );
});

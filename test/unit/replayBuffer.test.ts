import { expect, test } from 'vitest';
import { UserCodeError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ReplayBuffer, ReplayedGroups } from '../../src/extensions/pipelines/replayBuffer.ts';
import type { GeneratedStep } from '../../src/grpo/generate/samples.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { mulberry32 } from '../../src/model/random.ts';
import { stub } from '../stub.ts';
import { ENDED } from '../samples.ts';

const sample = (group: number, score: number, step = 0): Sample => ({
  problem: { id: `${step}.${group}`, messages: [{ role: 'user', content: 'Ü?' }], answer: '7' },
  group,
  prompt: [{ role: 'user', content: 'Ü? Seen.' }],
  messages: [{ role: 'assistant', content: 'so' }],
  reward: { score, acc: score, extra: { length: NaN } },
  ...(Number.isNaN(score) && { fault: new UserCodeError('reward threw', 'no') }),
  trajectory: {
    promptIds: Uint32Array.of(1, 70_000),
    responseIds: Uint32Array.of(group, 9, step),
    mask: Uint8Array.of(1, 0, 1),
    logProbs: Float32Array.of(-0.1 * step - 0.3, 0, -1.7),
    logMass: new Float32Array(3),
    weightVersions: Uint32Array.of(step, 0, step),
    ...ENDED,
  },
});
const groupOf = (score: number) => ({ score, step: 1, samples: [sample(0, score)] });

const config = resolveTrainConfig({ name: 't', model: { path: 'x' }, algorithm: { replayBufferSize: 3 } });

/** Creates a source of groups. In step s it returns groups with the rewards rewards[s - 1]. */
function replaying(rewards: number[][][], buffer: ReplayBuffer): ReplayedGroups {
  const source = {
    generate: (step: number) =>
      Promise.resolve(
        stub<GeneratedStep>({
          samples: rewards[step - 1].flatMap((group, g) => group.map((score) => sample(g, score, step))),
          metrics: { own: 1 },
        }),
      ),
  };
  return new ReplayedGroups(source, config, buffer);
}

const STEPS = [
  [
    [1, 0, 0, NaN],
    [0.5, 0.25, 0.5, 0.5],
    [1, 0, 1, 0],
  ],
  [
    [1, 1, 1, 1],
    [0, 1, 1, 1],
    [0, NaN, 0, 0],
  ],
];

test('a group whose samples differ only by the penalty on length has a signal', async () => {
  const algorithm = { replayBufferSize: 3, lengthPenalty: { type: 'linear' } } as const;
  const penalised = resolveTrainConfig({ name: 't', model: { path: 'x' }, algorithm });
  const groups = STEPS[0].map((group) => group.map(() => 1));
  const source = {
    generate: () =>
      Promise.resolve(
        stub<GeneratedStep>({
          samples: groups.flatMap((group, g) =>
            group.map((score, i) => {
              const made = sample(g, score);
              return { ...made, trajectory: { ...made.trajectory, mask: Uint8Array.of(1, i % 2, 1) } };
            }),
          ),
          metrics: {},
        }),
      ),
  };
  const replayed = async (of: typeof config) =>
    (await new ReplayedGroups(source, of, new ReplayBuffer(8)).generate(1)).metrics?.['training/replay_buffer_size'];
  expect(await replayed(config)).toBe(0);
  expect(await replayed(penalised)).toBe(3);
});

test("a group's score is TRL's: the sum over its samples of |advantage| x std", async () => {
  const buffer = new ReplayBuffer(8);
  await replaying(STEPS, buffer).generate(1);
  const stored = buffer.state() as { score: number }[];
  STEPS[0].forEach((group, g) => {
    const known = group.filter((r) => !Number.isNaN(r));
    const mean = known.reduce((a, b) => a + b) / known.length;
    const std = Math.sqrt(known.reduce((sum, r) => sum + (r - mean) ** 2, 0) / (known.length - 1));
    const advantages = known.map((r) => (r - mean) / (std + 1e-4)); // webgrpo adds 1e-6 instead
    expect(stored[g].score).toBeCloseTo(
      advantages.reduce((sum, a) => sum + Math.abs(a) * std, 0),
      3,
    );
  });
});

test('the best groups stay: a full buffer replaces only a worse group', () => {
  const buffer = new ReplayBuffer(2);
  for (const score of [2, 1, 1, 3, 0.5]) buffer.add(groupOf(score));
  expect((buffer.state() as { score: number }[]).map(({ score }) => score).sort()).toEqual([2, 3]);
});

test('groups are sampled by score, none twice while there are enough', () => {
  const buffer = new ReplayBuffer(3);
  for (const score of [1, 2, 5]) buffer.add(groupOf(score));
  const uniform = mulberry32(3);
  const first = new Map<number, number>();
  const rounds = 4000;
  for (let i = 0; i < rounds; i++) {
    const drawn = buffer.draw(2, uniform).map(({ score }) => score);
    expect(new Set(drawn).size).toBe(2);
    first.set(drawn[0], (first.get(drawn[0]) ?? 0) + 1);
  }
  // torch.multinomial(scores / scores.sum()): probabilities 1/8, 2/8, 5/8. Four standard errors are 0.03.
  for (const [score, share] of [
    [1, 1 / 8],
    [2, 2 / 8],
    [5, 5 / 8],
  ])
    expect(Math.abs(first.get(score)! / rounds - share)).toBeLessThan(0.031);
  expect(buffer.draw(5, uniform)).toHaveLength(5);
  expect(new ReplayBuffer(3).draw(2, uniform)).toEqual([]);
});

test('groups without a signal are replaced by stored ones, with unchanged tokens and log-probs', async () => {
  const buffer = new ReplayBuffer(3);
  const source = replaying(STEPS, buffer);
  const first = await source.generate(1);
  expect(first.samples).toEqual(first.drawn);
  const { samples, drawn, metrics } = await source.generate(2);
  expect(drawn!.map(({ reward }) => reward.score)).toEqual(STEPS[1].flat());
  expect(samples.map(({ group }) => group)).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
  expect(samples.slice(4, 8)).toEqual(drawn!.slice(4, 8)); // the group has a signal
  for (const { problem, trajectory } of [...samples.slice(0, 4), ...samples.slice(8)]) {
    const [step, group] = problem.id.split('.').map(Number);
    expect(trajectory).toEqual(sample(group, 0, step).trajectory);
  }
  expect(metrics).toMatchObject({ own: 1, 'training/replayed_groups': 2, 'training/replay_buffer_size': 3 });
});

test('a step that is done again replays the same groups', async () => {
  const source = replaying(STEPS, new ReplayBuffer(3));
  await source.generate(1);
  const first = await source.generate(2);
  expect(await source.generate(2)).toEqual(first);
});

test('a checkpoint contains the buffer, which continues from JSON with the same samples', async () => {
  const [before, after] = [new ReplayBuffer(3), new ReplayBuffer(3)];
  await replaying(STEPS, before).generate(1);
  after.restore(JSON.parse(JSON.stringify(before.state())));
  const scores = (buffer: ReplayBuffer) => buffer.draw(3, mulberry32(1)).map(({ score }) => score);
  expect(scores(after).sort()).toEqual(scores(before).sort());
  const resumed = await replaying(STEPS, after).generate(2);
  const straight = await replaying(STEPS, before).generate(2);
  expect(resumed.samples).toEqual(straight.samples);
});

test.each(['%%%', 'AAAA', undefined])('a checkpoint whose samples have log-probs %j is refused', (logProbs) => {
  const buffer = new ReplayBuffer(3);
  buffer.add(groupOf(1));
  const state = JSON.parse(JSON.stringify(buffer.state())) as { samples: { trajectory: object }[] }[];
  Object.assign(state[0].samples[0].trajectory, { logProbs });
  expect(() => new ReplayBuffer(3).restore(state)).toThrow('not a group of samples');
});

test('replay refuses settings that learn from groups without a signal, or that sample them again', () => {
  for (const name of ['dapo', 'rae'])
    expect(() =>
      resolveTrainConfig({ name: 't', model: { path: 'x' }, algorithm: { name, replayBufferSize: 8 } }),
    ).toThrow('algorithm.replayBufferSize is 8, which cannot be combined with algorithm.filterGroups');
});

import { expect, test } from 'vitest';
import { UserCodeError } from '../../src/errors.ts';
import { ExperienceQueue } from '../../src/extensions/pipelines/experienceQueue.ts';
import { recordOf, recordsOf, sampleOf, waitSeconds, waitsOf } from '../../src/extensions/pipelines/records.ts';
import type { ExperienceRecord } from '../../src/grpo/pipeline/record.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { ENDED } from '../samples.ts';

const problem = { id: 'p', messages: [{ role: 'user' as const, content: 'hello' }], answer: '' };
const sample = (more: Partial<Sample> = {}): Sample => ({
  problem,
  group: 7,
  trajectory: {
    promptIds: Uint32Array.of(1, 2),
    responseIds: Uint32Array.of(3, 4, 5),
    mask: Uint8Array.of(1, 0, 1),
    logProbs: Float32Array.of(-0.25, 0, -1),
    logMass: new Float32Array(3),
    weightVersions: Uint32Array.of(3, 0, 5),
    ...{ ...ENDED, numTurns: 2, numToolCalls: 1, numToolOutputs: 3, numTruncatedOutputs: 2 },
  },
  messages: [{ role: 'assistant', content: 'a' }],
  reward: { score: 0.5, acc: 1, extra: { x: 2 } },
  ...more,
});
const origin = { uid: '3.7', sample: 2, worker: 'local' };

test('a sample becomes a record and the same sample again, its arrays not copied', () => {
  const given = sample({
    prompt: [{ role: 'user', content: 'seen' }],
    toolRewards: { calculator: 0.5 },
    events: [{ kind: 'tool', turn: 1, start: 2, end: 3 }],
  });
  const record = recordOf(given, origin, { order: 4 });
  expect(record.key).toBe('3.7_2');
  expect(record.tags).toEqual({ status: 'scored', version: 3, newest: 5, worker: 'local', order: 4 });
  expect(record.columns['logProbs']).toBe(given.trajectory.logProbs);
  const again = sampleOf(record, { problem, group: 7 });
  expect(again).toEqual(given);
  expect(again.trajectory.responseIds).toBe(given.trajectory.responseIds);
});

test("a group's records carry its waits, and an invalid value from another machine counts as 0", () => {
  const outside = { tools: [[0, 500] as const, [250, 1000] as const], reward: [[0, 2000] as const] };
  const records = recordsOf([sample(), sample()], outside, { uid: '3.7', worker: 'w' });
  expect(records.map(({ key }) => key)).toEqual(['3.7_0', '3.7_1']);
  expect(waitSeconds(records)).toEqual({ tools: 1, reward: 2 });
  expect(records.map(waitsOf)).toEqual([{ toolSeconds: 1, rewardSeconds: 2 }, {}]);
  for (const claimed of [-1, NaN, Infinity, '5', true])
    expect(waitSeconds([changed({ toolSeconds: claimed }), ...records])).toEqual({ tools: 1, reward: 2 });
});

test('a sample without reward keeps the reason, through a checkpoint of the queue', async () => {
  const fault = new UserCodeError('reward threw', 'The reward threw.');
  const given = sample({ reward: { score: NaN, acc: NaN }, fault });
  const [before, after] = [new ExperienceQueue(), new ExperienceQueue()];
  await before.put([recordOf(given, origin)]);
  after.restore(JSON.parse(JSON.stringify(before.save())));
  const [record] = await after.takeGroup(1);
  expect(sampleOf(record, { problem, group: 7 })).toEqual(given);
});

const changed = (columns: ExperienceRecord['columns']): ExperienceRecord => {
  const record = recordOf(sample(), origin);
  return { ...record, columns: { ...record.columns, ...columns } };
};
test.each<[string, ExperienceRecord['columns'], string]>([
  ['another type', { mask: Uint32Array.of(1, 0, 1) }, 'Column "mask" of the record "3.7_2" is not a Uint8Array.'],
  ['another length', { logProbs: new Float32Array(2) }, '"logProbs" of the record "3.7_2" has 2 numbers for 3 tokens'],
  ['no JSON', { sample: '{' }, 'Column "sample" of the record "3.7_2" cannot be read: it is not JSON'],
  [
    'another reason',
    { sample: (recordOf(sample(), origin).columns['sample'] as string).replace('completed', 'bored') },
    'cannot be read: stopReason',
  ],
])('a record with %s is refused', (_, columns, message) => {
  expect(() => sampleOf(changed(columns), { problem, group: 7 })).toThrow(message);
});

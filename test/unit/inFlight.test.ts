/**
 * Tests samples in flight without a GPU: what the record of a sample replays to its agent loop, and which states of a checkpoint are
 * refused.
 */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { decodeGroups, encodeGroups } from '../../src/extensions/pipelines/savedGroups.ts';
import type { SavedGroup } from '../../src/grpo/pipeline/types.ts';
import { ReplayBuffer } from '../../src/extensions/pipelines/replayBuffer.ts';
import { ExperienceQueue } from '../../src/extensions/pipelines/experienceQueue.ts';
import { recordOf, sampleOf } from '../../src/extensions/pipelines/records.ts';
import type { StepInputs } from '../../src/grpo/types.ts';
import { decodeStep, encodeStep } from '../../src/extensions/replay/keptStep.ts';
import { readFrame, writeFrame } from '../../src/extensions/rooms/frame.ts';
import { InputError } from '../../src/errors.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { SampleRecord, StartLine } from '../../src/rollout/agent/record.ts';
import { defineTool } from '../../src/tasks/tool.ts';
import { talkingRun } from '../clientEngine.ts';
import { problem, run, ScriptedTurns } from '../scriptedTurns.ts';
import { stub } from '../stub.ts';

const parameters = { type: 'object', properties: {} } as const;
let calls: string[] = [];
const saving = defineTool({
  name: 'saving',
  description: '',
  parameters,
  maxResponseLength: 7, // truncates the output
  create: () => ({ n: 0 }),
  execute: (_, { state }) => {
    calls.push('saving');
    return `saving ${++state.n}`;
  },
  save: ({ n }) => n,
  restore: (n) => ({ n: n as number }),
});
const plain = defineTool({
  name: 'plain',
  description: '',
  parameters,
  create: () => ({ n: 0 }),
  execute: (_, { state }) => {
    calls.push('plain');
    return `plain ${++state.n}`;
  },
});
const both = [saving, plain].map(({ name }) => ({ name, args: {} }));
let word = 'go on';

/** An agent loop: a turn, both tools, a text message, another turn, both tools. */
registerAgentLoop('in-flight', async (sample) => {
  await sample.generate();
  await sample.callTools(both);
  sample.say({ role: 'user', content: word });
  await sample.generate();
  await sample.callTools(both);
  return 'completed';
});

/** Runs the loop. */
function start(record: SampleRecord, turns: string[], engine = new ScriptedTurns(turns)) {
  calls = [];
  const limits = { maxResponseLength: 2000, contextLength: 4000 };
  return run(turns, { engine, tools: [saving, plain], agentLoop: 'in-flight', record, limits });
}

/** Runs the loop until its second turn, which never ends. The record then has the content that a checkpoint would contain. */
async function startAndHang(record: SampleRecord, turns: string[]): Promise<void> {
  const engine = new ScriptedTurns(turns);
  const answer = engine.generate.bind(engine);
  engine.generate = (request) => (engine.requests.length === 1 ? new Promise(() => {}) : answer(request));
  void start(record, turns, engine);
  while (record.requestId === undefined || engine.requests.length === 0) await new Promise((r) => setImmediate(r));
  await new Promise((r) => setImmediate(r));
}

const drawn = { tokenIds: Uint32Array.of(5, 6), logProbs: Float32Array.of(-1, -2) };
const groupOf = (sample: SavedGroup['samples'][number]): SavedGroup => ({
  number: 4,
  problem,
  step: 2,
  samples: [sample],
});
const throughFile = (sample: SavedGroup['samples'][number]) =>
  decodeGroups(JSON.parse(JSON.stringify(encodeGroups([groupOf(sample)]))), 1000)[0].samples[0];

async function saved() {
  const record = new SampleRecord();
  await startAndHang(record, ['One.']);
  return throughFile(await record.save(drawn));
}

test('a restarted loop receives its earlier results again, and the engine generates only the rest of its turn', async () => {
  const whole = await start(new SampleRecord(), ['One.', 'Two.']);
  const state = await saved();
  expect(state.received).toHaveLength(2);
  expect(state.toolStates).toEqual({ saving: 1 });
  const again = await start(new SampleRecord(state, new StartLine()), ['Two.']);
  expect(again.engine.requests.map((request) => request.drawn)).toEqual([drawn]);
  expect(again.trajectory).toEqual(whole.trajectory);
  expect(again.messages).toEqual(whole.messages);
  expect(again.toolStates).toEqual({ saving: { n: 2 }, plain: { n: 2 } });
  // To restore its state, the first call of `plain` is repeated. `saving` saves its state, so its call is not.
  expect(calls).toEqual(['plain', 'saving', 'plain']);
});

test('a restarted loop that makes other requests continues without the record', async () => {
  const state = await saved();
  word = 'another word';
  try {
    const again = await start(new SampleRecord(state, new StartLine()), ['Three.']);
    expect(again.engine.requests.map((request) => request.drawn)).toEqual([undefined]);
    expect(again.messages.map(({ content }) => content)).toContain('another word');
    expect(again.messages.filter(({ role }) => role === 'assistant').map(({ content }) => content)).toEqual([
      'One.',
      'Three.',
    ]);
  } finally {
    word = 'go on';
  }
});

test('an ended sample keeps its reward, and its tools are not called', async () => {
  const record = new SampleRecord();
  const whole = await start(record, ['One.', 'Two.']);
  record.scored({ score: NaN, acc: 1 });
  const state = throughFile(await record.save(undefined));
  const again = new SampleRecord(state);
  expect(again.reward).toEqual({ score: NaN, acc: 1 });
  const { trajectory, engine } = await start(again, []);
  expect(trajectory).toEqual(whole.trajectory);
  expect([engine.requests, calls]).toEqual([[], []]);
});

test('a tool that cannot restore its state ends in one error message', async () => {
  const state = await saved();
  const broken = { ...saving, restore: () => Promise.reject(new Error('no such file')) };
  await expect(
    run(['Two.'], { tools: [broken, plain], agentLoop: 'in-flight', record: new SampleRecord(state) }),
  ).rejects.toThrow(
    'Tool "saving" could not restore the state that it had saved for sample r1: no such file. Fix its `restore`, or resume ' +
      'from an earlier checkpoint.',
  );
});

test('resumed samples start in their order, and do not wait for missing ones', async () => {
  const line = new StartLine();
  const turn = { asked: 0, drawn };
  const [a, b, c] = [0, 1, 2].map(() => new SampleRecord({ received: [], turn }, line));
  const gone: string[] = [];
  void line.reach(b).then(() => gone.push('b'));
  void line.reach(a).then(() => gone.push('a'));
  await new Promise((r) => setImmediate(r));
  expect(gone).toEqual([]);
  c.loopEnded();
  await line.opened(1000);
  expect(gone).toEqual(['a', 'b']);
});

const base64 = (numbers: Uint32Array | Float32Array) =>
  Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength).toString('base64');
const turnAt = ['0', 'samples', '0', 'turn'];
const generationAt = ['0', 'samples', '0', 'received', '0', 'generation'];

test.each<[string[], unknown, string]>([
  [[], 'x', 'parts.inFlight of'],
  [['0', 'number'], -1, '0.number'],
  [['0', 'problem'], null, '0.problem'],
  [['0', 'problem', 'messages', '0', 'content'], 3, 'messages.0.content'],
  [['0', 'step'], '2', '0.step'],
  [['0', 'samples'], {}, '0.samples'],
  [['0', 'samples', '0', 'scored'], { tools: { rewards: {}, errors: 0 } }, 'scored.reward'],
  [['0', 'samples', '0', 'received', '1', 'results', '0', 'text'], 7, 'received.1'],
  [[...generationAt, 'stopReason'], 'tired', 'received.0'],
  [[...generationAt, 'logProbs'], '%%%', 'received.0'],
  [[...turnAt, 'drawn', 'tokenIds'], '%%%', 'turn.drawn of its trainer_state.json: tokenIds is not a Uint32Array'],
  [[...turnAt, 'drawn', 'tokenIds'], 'AAAA', 'tokenIds is not a Uint32Array'],
  [
    [...turnAt, 'drawn', 'tokenIds'],
    base64(Uint32Array.of(5, 1000)),
    'tokenIds has 1000 at token 1, which it cannot hold',
  ],
  [
    [...turnAt, 'drawn', 'logProbs'],
    base64(Float32Array.of(-1, NaN)),
    'logProbs has NaN at token 1, which it cannot hold',
  ],
  [[...turnAt, 'drawn', 'logProbs'], base64(Float32Array.of(-1)), 'logProbs has 1 numbers for 2 tokens'],
])('a checkpoint with %j = %j is refused in one sentence', async (path, value, place) => {
  const state: unknown = JSON.parse(JSON.stringify(encodeGroups([groupOf(await saved())])));
  expect(decodeGroups(state, 1000)).toHaveLength(1);
  let parent = state as Record<string, unknown>;
  for (const key of path.slice(0, -1)) parent = parent[key] as Record<string, unknown>;
  if (path.length > 0) parent[path.at(-1)!] = value;
  const decode = () => decodeGroups(path.length > 0 ? state : value, 1000);
  expect(decode).toThrow(InputError);
  expect(decode).toThrow(place);
  expect(decode).toThrow(
    /^The samples in flight of the checkpoint cannot be read: .+ or resume from another checkpoint\.$/,
  );
});

/** In-flight states that webgrpo 0.1.0 wrote, by the kind of file. */
const stored = JSON.parse(readFileSync('test/fixtures/tokens.json', 'utf8')) as {
  partialRollout: { parts: { inFlight: unknown } };
  client: unknown;
  replayBuffer: unknown;
  queue: unknown;
  keptStep: string;
  roomMessage: string;
};
const bytesOf = (text: string) => Uint8Array.from(Buffer.from(text, 'base64'));
const textOf = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');

test.each<[keyof typeof stored, () => unknown, () => unknown]>([
  [
    'partialRollout',
    () => stored.partialRollout.parts.inFlight,
    () => encodeGroups(decodeGroups(stored.partialRollout.parts.inFlight, 512)),
  ],
  [
    'client',
    () => stored.client,
    async () => {
      const { trainer } = talkingRun({ limits: { outlives: true } });
      trainer.groups.restore(stored.client, { vocabSize: 512 });
      const saved = await trainer.groups.save();
      await trainer.close();
      return saved;
    },
  ],
  [
    'replayBuffer',
    () => stored.replayBuffer,
    () => {
      const buffer = new ReplayBuffer(1);
      buffer.restore(stored.replayBuffer);
      return buffer.state();
    },
  ],
  [
    'queue',
    () => stored.queue,
    () => {
      const queue = new ExperienceQueue();
      queue.restore(stored.queue);
      return queue.save();
    },
  ],
  [
    'keptStep',
    () => stored.keptStep,
    async () => {
      const { samples, advantages, extras, ...name } = await decodeStep(bytesOf(stored.keptStep), 'step-7.safetensors');
      return textOf(await encodeStep(name, samples, stub<StepInputs>({ tokens: { advantages }, extras })));
    },
  ],
  [
    'roomMessage',
    () => stored.roomMessage,
    () => {
      const { more, record } = readFrame(bytesOf(stored.roomMessage));
      const sample = sampleOf(record, { problem, group: 0 });
      return textOf(writeFrame(more, recordOf(sample, { uid: 'u', sample: 0, worker: 'local' })));
    },
  ],
])('the stored %s is read, and written again byte for byte', async (_, wrote, writeAgain) => {
  expect(JSON.stringify(await writeAgain())).toBe(JSON.stringify(wrote()));
});

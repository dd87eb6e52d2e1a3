/** Tests that no random number is used twice under one set of weights, in any way of sampling. */

import { describe, expect, test } from 'vitest';
import { routes } from '../../src/cli/serve/routes.ts';
import { DeviceLostError } from '../../src/errors.ts';
import { readRequest } from '../../src/extensions/client/api/request.ts';
import type { MessageShape, TrainingClient } from '../../src/extensions/client/index.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { Learner } from '../../src/extensions/learner/learner.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint, TrainerEngine } from '../../src/grpo/types.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import type { RolloutEngine } from '../../src/rollout/types.ts';
import { hash, keyedRng } from '../../src/tasks/random.ts';
import type { Task } from '../../src/tasks/task.ts';
import { nextTask } from '../../src/rollout/agent/yield.ts';
import { roomEngine } from '../../src/extensions/rooms/roomEngine.ts';
import { TalkingEngine, talkingRun } from '../clientEngine.ts';
import { copiedWeights, PacedEngine } from '../pacedEngine.ts';
import { ScriptedEngine } from '../scriptedEngine.ts';
import { throughJson } from '../json.ts';

/** Records weights, key and position of each token that an engine samples. Greedy tokens use no random number, so they are not recorded. */
class Draws {
  readonly places: string[] = [];
  #isOver = false;

  of<E extends RolloutEngine & { version: number }>(engine: E): E {
    const generate = engine.generate.bind(engine);
    engine.generate = async (request) => {
      const generation = await generate(request);
      const { tokenIds, weightVersions, stopReason } = generation;
      if (request.sampling.temperature === 0 || stopReason === 'aborted' || this.#isOver) return generation;
      tokenIds.forEach((_, t) => {
        const position = request.contextIds.length + t;
        this.places.push(`weights ${weightVersions?.[t]}, key ${request.key.join()}, position ${position}`);
      });
      return generation;
    };
    return engine;
  }

  /** Forgets the tokens that a process sampled after its last checkpoint, because the resumed process samples them again. */
  end(): void {
    this.#isOver = true;
  }

  get repeated(): string[] {
    return this.places.filter((place, i) => this.places.indexOf(place) < i);
  }
}

const task: Task = {
  name: 'sums',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index % 3} plus 3` }], answer: '' }),
  heldOut: (count) => Promise.all(Array.from({ length: count }, async (_, i) => task.train(i, 0))),
  reward: ({ messages }) => ({ score: messages.length, acc: hash(JSON.stringify(messages)) % 2 }),
};

registerAgentLoop('two_turns', async (sample) => {
  await sample.generate();
  return sample.say({ role: 'user', content: 'Sure?' }) ?? (await sample.generate()).stop ?? 'completed';
});

/** Creates an engine whose samples take different numbers of turns of the event loop, without a clock. */
const pacedEngine = () =>
  new PacedEngine(async ({ requestId }) => {
    for (let left = keyedRng(requestId).int(0, 9); left > 0; left--) await nextTask();
  });

const modelOf = (tokenizer: TrainerEngine['tokenizer']) => new ScriptedEngine({ tokenizer }).model;

const configOf = (change: Record<string, object> = {}) =>
  resolveTrainConfig({
    name: 'sums',
    model: { path: 'none' },
    algorithm: change['algorithm'],
    data: { trainBatchSize: 2, maxPromptLength: 64, maxResponseLength: 64, valMaxSamples: 3 },
    rollout: { n: 2, valKwargs: { n: 2 }, agent: { defaultAgentLoop: 'two_turns' }, ...change['rollout'] },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256 },
    trainer: { totalTrainingSteps: 6, profile: false, ...change['trainer'] },
    ...(change['asyncTraining'] && { asyncTraining: change['asyncTraining'] }),
  });

describe('a trainer that is resumed from a checkpoint, with an evaluation after each step', () => {
  test.each<[string, Record<string, object>]>([
    ['by default', {}],
    ['with groups drawn again', { algorithm: { filterGroups: { enable: true, metric: 'acc' } } }],
    ['with greedy baselines', { algorithm: { name: 'remax' } }],
    ['with replayed groups', { algorithm: { replayBufferSize: 8 } }],
    ['over-sampled', { rollout: { overSampleRate: 1 } }],
    ['over-sampled, with partial rollout', { rollout: { overSampleRate: 1, partialRollout: true } }],
    ['one step off', { trainer: { pipeline: 'one-step-off' } }],
    ['fully async', { trainer: { pipeline: 'fully-async' }, asyncTraining: { stalenessThreshold: 1 } }],
  ])('%s', async (_, change) => {
    const places: string[] = [];
    let checkpoint: Checkpoint | undefined;
    for (const _process of [1, 2]) {
      const draws = new Draws();
      const rollout = draws.of(pacedEngine());
      const own = change['trainer'] ? { checkpointEngine: copiedWeights(rollout) } : {};
      const engine = { rollout, tokenizer: rollout.tokenizer, model: modelOf(rollout.tokenizer), ...own };
      const trainer = new GrpoTrainer({ config: configOf(change), task, engine });
      if (checkpoint) await trainer.restore(checkpoint);
      for (let step = 0; step < 3; step++) {
        await trainer.step();
        await trainer.validate({ greedy: true });
      }
      const { state, ...tensors } = await trainer.checkpoint();
      checkpoint = { state: throughJson(state), ...tensors };
      draws.end();
      places.push(...draws.places);
    }
    expect(places.length).toBeGreaterThan(6 * 2 * 2 * 4); // steps, groups, samples, tokens
    expect(places.length - new Set(places).size).toBe(0);
  });
});

test('workers of a room, during an evaluation of the controller', async () => {
  const draws = new Draws();
  const engines = [0, 1, 2].map(() => draws.of(pacedEngine()));
  const config = configOf();
  const [controller, ...workers] = engines.map((rollout) => ({
    ...{ rollout, tokenizer: rollout.tokenizer, model: modelOf(rollout.tokenizer) },
  }));
  const { signal } = new AbortController();
  const generated = workers.flatMap((engine, w) => {
    const own = roomEngine({ config, engine, task }, { adapter: 'none', destroy: () => undefined });
    return [0, 1, 2].map(async (i) => {
      const number = 2 * i + w;
      const weights = { version: 0, digest: '' };
      const prompt = { uid: `1.${number}`, ticket: 't', n: 2, number, step: 1, weights, problem: PROBLEM };
      await own.generate(prompt, `worker ${w}`, async () => undefined, signal);
    });
  });
  await Promise.all([...generated, new GrpoTrainer({ config, task, engine: controller }).validate()]);
  expect([draws.places.length > 6 * 2 * 4, draws.repeated]).toEqual([true, []]);
});

const PROBLEM = { id: 'p', messages: [{ role: 'user' as const, content: '1 plus 3' }], answer: '' };
const QUESTION: MessageShape[] = [{ role: 'user', content: 'What is 2 plus 2?' }];
const FOUR: MessageShape = { role: 'assistant', content: 'Four.' };
const SURE: MessageShape = { role: 'user', content: 'Sure?' };

describe('a learner', () => {
  const learnerOn = (draws: Draws) => {
    const rollout = draws.of(new TalkingEngine());
    const { tokenizer } = talkingRun().engine;
    const engine = { rollout, tokenizer, model: modelOf(tokenizer) };
    const change = { trainer: {}, rollout: { agent: {} } };
    return new Learner({ engine, config: configOf(change) });
  };
  const prompts = ['2 plus 2', '2 plus 2'];

  test('that samples the same prompts again, and its clients, before and after a saved state', async () => {
    const places: string[] = [];
    let state: Checkpoint | undefined;
    for (const _process of [1, 2]) {
      const draws = new Draws();
      const learner = learnerOn(draws);
      if (state) await learner.loadState(state);
      for (let i = 0; i < 2; i++) await learner.sample(prompts, 2);
      for (let i = 0; i < 5; i++) await learner.client().chat.completions.create({ messages: QUESTION });
      state = await learner.saveState();
      places.push(...draws.places);
      await learner.close();
    }
    expect(new Set(places).size).toBe(places.length);
  });

  test('a learner whose state is loaded while samples are requested, which count from the state', async () => {
    const draws = new Draws();
    const learner = learnerOn(draws);
    const state = await learner.saveState();
    await learner.sample(prompts, 2);
    const before = draws.places.splice(0);
    const loading = learner.loadState(state);
    const sampling = learner.sample(prompts, 2); // takes effect after the load
    await Promise.all([loading, sampling]);
    expect(draws.places).toEqual(before); // the same samples of the same state
    for (let i = 0; i < 2; i++) await learner.sample(prompts, 2);
    expect(draws.repeated).toEqual([]);
  });
});

describe('a client', () => {
  const running = (limits = {}, change = {}) => {
    const run = talkingRun({ limits, change });
    const ask = (client: TrainingClient, ...more: MessageShape[]) =>
      client.chat.completions.create({ messages: [...QUESTION, ...more] });
    const asked = async (group?: string) => {
      const client = run.trainer.client({ group });
      await ask(client);
      return client;
    };
    /** Returns the random keys of all calls so far. Here, each call starts a new sequence. */
    const keys = () => run.rollout.requests.map(({ key }) => key.join());
    return { ...run, ask, asked, keys };
  };
  const expectDifferent = (keys: string[], count: number) =>
    expect([keys.length, new Set(keys).size]).toEqual([count, count]);
  const saved = async ({ trainer }: ReturnType<typeof running>) =>
    JSON.parse(JSON.stringify(await trainer.groups.save())) as unknown;
  const vocabSize = talkingRun().engine.model.config.vocabSize;

  test('the first group of a question keeps the keys that it had', async () => {
    const run = running();
    for (let i = 0; i < 2; i++) await run.asked();
    expect(run.keys()).toEqual(FIRST_KEYS);
    await run.trainer.close();
  });

  test('three concurrent groups of one question', async () => {
    const run = running();
    await Promise.all(Array.from({ length: 6 }, () => run.asked()));
    expectDifferent(run.keys(), 6);
    await run.trainer.close();
  });

  test('a question asked repeatedly before a step, while its groups complete', async () => {
    const run = running();
    for (let i = 0; i < 6; i++) (await run.asked()).trajectory.reward(i);
    expect(run.trainer.groups.complete).toBe(3);
    expectDifferent(run.keys(), 6);
    await run.trainer.close();
  });

  test('a question asked over HTTP, deleted, asked again; with a seed it repeats', async () => {
    const { trainer, rollout, keys } = running();
    const find = routes({ groups: trainer.groups, metrics: () => undefined, trainBatchSize: 1 });
    const { signal } = new AbortController();
    const send = (method: string, path: string, body: object = {}) =>
      find(path.split('/'))![method]({ json: () => Promise.resolve(body), signal });
    const sixTimes = async (body: object) => {
      for (let i = 0; i < 6; i++) {
        await send('POST', 'v1/t/group/one/chat/completions', { messages: QUESTION, ...body });
        await send('DELETE', 'v1/t/group/one');
      }
      return keys().splice(-6);
    };
    expectDifferent(await sixTimes({}), 6);
    for (let i = 0; i < 6; i++) await send('POST', 'v1/chat/completions', { messages: QUESTION }); // without a name
    expectDifferent(keys(), 12);
    expect(new Set(await sixTimes({ seed: 7 })).size).toBe(1);
    const seeds = [7, 7 + 2 ** 32, -1, 2 ** 32 - 1];
    for (const seed of seeds) await send('POST', 'v1/chat/completions', { messages: QUESTION, seed });
    expectDifferent(keys().slice(-4), 4);
    expect(rollout.held.size).toBeGreaterThan(0);
    await trainer.close();
  });

  test('a question after a resume from a saved state, whose episodes were deleted', async () => {
    const run = running();
    for (let i = 0; i < 3; i++) (await run.asked()).trajectory.abort();
    const later = running();
    later.trainer.groups.restore(await saved(run), { vocabSize });
    for (let i = 0; i < 5; i++) await later.asked();
    expectDifferent([...run.keys(), ...later.keys()], 8);
    await Promise.all([run.trainer.close(), later.trainer.close()]);
  });

  test('a question after a resume from a state of an earlier version of webgrpo', async () => {
    const run = running();
    await run.asked();
    const { streams: _, ...state } = (await saved(run)) as { streams: unknown };
    const later = running();
    later.trainer.groups.restore(state, { vocabSize });
    for (let i = 0; i < 2; i++) await later.asked();
    expectDifferent([...run.keys(), ...later.keys()], 3);
    await Promise.all([run.trainer.close(), later.trainer.close()]);
  });

  test('an episode that joins a restored part of a group whose other part is in memory', async () => {
    const run = running({ outlives: true });
    await run.asked();
    const other = await run.asked();
    const state = await saved(run);
    other.trajectory.abort();
    await run.asked(); // joins the existing group
    run.trainer.groups.restore(state, { vocabSize }); // restores the episode that was dropped
    expect(run.trainer.groups.incomplete).toBe(2);
    await run.asked(); // joins it
    expectDifferent(run.keys(), 4);
    await run.trainer.close();
  });

  test('an episode that joins an older group after a step, and the groups that follow', async () => {
    const run = running();
    for (const reward of [0, 1]) (await run.asked('other')).trajectory.reward(reward);
    (await run.asked()).trajectory.reward(0);
    await run.trainer.groups.generate(1);
    run.rollout.requests.length = 0;
    (await run.asked()).trajectory.reward(1); // completes the previous group
    for (let i = 0; i < 4; i++) (await run.asked()).trajectory.reward(0);
    expectDifferent(run.keys(), 5);
    await run.trainer.close();
  });

  test('two questions whose texts have the same hash', async () => {
    const hashes = PAIR.map((group) => hash(JSON.stringify(['name', group]), 0, 0));
    expect(hashes[0]).toBe(hashes[1]);
    const run = running();
    for (const group of PAIR) await run.asked(group);
    expectDifferent(run.keys(), 2);
    await run.trainer.close();
  });

  test('a call concurrent with one that failed, and calls after it', async () => {
    const run = running();
    const client = run.trainer.client();
    await run.ask(client);
    run.rollout.waits = () => true;
    const failing = new AbortController();
    const other = { role: 'user', content: 'Other?' } as const;
    const failed = client.chat.completions.create({ messages: [other] }, { signal: failing.signal }).catch(() => 0);
    const answered = client.chat.completions.create({ messages: [other, FOUR, SURE] });
    await nextTask();
    expect(run.rollout.underWay).toBe(2);
    failing.abort();
    await failed;
    run.rollout.go();
    await answered;
    run.rollout.waits = () => false;
    await client.chat.completions.create({ messages: [other] }); // samples what the failed call would have sampled
    await client.chat.completions.create({ messages: [other] });
    const [first, failedKey, answeredKey, again, last] = run.keys();
    expect(again).toBe(failedKey);
    expectDifferent([first, answeredKey, again, last], 4);
    await run.trainer.close();
  });

  test('a fork concurrent with a call that a checkpoint lacks', async () => {
    const run = running();
    const client = run.trainer.client();
    run.rollout.waits = ({ contextIds }) => contextIds === run.rollout.requests[0].contextIds;
    const lost = run.ask(client).catch(() => undefined);
    await nextTask();
    expect(run.rollout.underWay).toBe(1);
    await run.ask(client, FOUR, SURE);
    const later = running({ outlives: true });
    later.trainer.groups.restore(await saved(run), { vocabSize });
    const [episode] = later.trainer.groups.episodes;
    const request = (...messages: MessageShape[]) => readRequest({ messages }, later.trainer.groups.served);
    await episode.call(request(...QUESTION)); // the call that was lost
    await episode.call(request(...QUESTION));
    const [lostKey, forkKey] = run.keys();
    const [again, next] = later.keys();
    expect(again).toBe(lostKey);
    expectDifferent([forkKey, again, next], 3);
    await Promise.all([run.trainer.close(), later.trainer.close(), lost]);
  });

  test('a question under weights that a lost device or a failed step has restored', async () => {
    const run = running({ outlives: true }, { trainer: { saveFreq: 1 } });
    const { groups } = run.trainer;
    for (let i = 0; i < 2; i++) (await run.asked('0')).trajectory.reward(i);
    await run.asked(); // an episode under weight version 0
    await groups.generate(1);
    groups.restore(undefined, { vocabSize: 0 }); // the step failed
    await run.asked('1');
    (await run.asked()).trajectory.reward(1); // completes the group of weights 0
    await run.asked();
    await groups.generate(1);
    const state = await saved(run);
    await run.asked('1');
    for (let i = 0; i < 2; i++) await run.asked('2');
    groups.handleDeviceLoss(run.engine, new DeviceLostError('unknown', 'pulled out'));
    const fresh = running();
    groups.restore(state, { vocabSize });
    groups.attach(fresh.engine);
    const ready = groups.ready(new AbortController().signal);
    for (const group of ['0', '1', '2', undefined]) {
      const client = run.trainer.client({ group });
      await run.ask(client);
      await run.ask(run.trainer.client({ group }));
    }
    const keys = [...run.keys(), ...fresh.keys()];
    expectDifferent(keys, 17);
    await run.trainer.close();
    await ready;
  });
});

/** Random keys of two samples of the problem 'What is 2 plus 2?' in a run with seed 1. */
const FIRST_KEYS = ['3783775329,1356377566', '2764651582,891454099'];
/** Two group names whose hashes collide, found by trying names in order. */
const PAIR = ['g139599', 'g322382'];

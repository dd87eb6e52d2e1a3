import { describe, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { randomKey } from '../../src/grpo/generate/samples.ts';
import { uidOfGroup } from '../../src/grpo/pipeline/types.ts';
import type { TrainerEngine } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { roomEngine } from '../../src/extensions/rooms/roomEngine.ts';
import { checkDraws } from '../../src/extensions/rooms/verification/draws.ts';
import { checkVerifiable } from '../../src/extensions/rooms/verification/rules.ts';
import type { SampleClaim } from '../../src/extensions/rooms/verification/types.ts';
import { VerifiedSamples } from '../../src/extensions/rooms/verification/verifiedSamples.ts';
import { SampleVerifier, type VerifierOptions } from '../../src/extensions/rooms/verification/verifier.ts';
import { writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import type { PackedBatch } from '../../src/model/engine.ts';
import { uniformAt } from '../../src/model/random.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import type { Task } from '../../src/tasks/task.ts';
import { uniformOf } from '../gpu/sampleReference.ts';
import { problem, samplesOf, ScriptedTurns, tokenizer } from '../scriptedTurns.ts';
import { containing, stub } from '../stub.ts';

const configOf = (rollout: object = {}, more: object = {}) =>
  resolveTrainConfig({
    name: 'verified',
    model: { path: 'x' },
    data: { maxPromptLength: 64, maxResponseLength: 160 },
    rollout: { n: 4, ...rollout },
    ...more,
  });

test("the random number of a position equals the kernel's", () => {
  for (let i = 0; i < 1000; i++) {
    const key = randomKey(i, i * 3, i % 7, i >> 3);
    expect(uniformAt(key, i * 11)).toBe(uniformOf(key, i * 11));
  }
});

describe('configs that cannot be verified are refused with one error message', () => {
  const alone = 'only samples at the plain temperature can be verified';
  test.each([
    [{ topK: 5 }, `rollout.topK is 5, but ${alone}. Set it to 0.`],
    [{ topP: 0.9 }, `rollout.topP is 0.9, but ${alone}. Set it to 1.`],
    [{ minP: 0.1 }, `rollout.minP is 0.1, but ${alone}. Set it to 0.`],
    [{ repetitionPenalty: 1.1 }, `rollout.repetitionPenalty is 1.1, but ${alone}. Set it to 1.`],
    [{ minNewTokens: 2 }, `rollout.minNewTokens is 2, but ${alone}. Set it to 0.`],
    [{ stop: ['x'] }, `rollout.stop is ["x"], but ${alone}. Leave it out.`],
    [
      { multiTurn: { constrainToolCalls: true } },
      'rollout.multiTurn.constrainToolCalls is true, but sampled tokens of constrained calls cannot be verified. Set it to false.',
    ],
    [
      { multiTurn: { sampleTimeoutS: 3 } },
      'rollout.multiTurn.sampleTimeoutS is 3, but an end by the clock cannot be verified. Leave it out.',
    ],
    [
      { checkpointEngine: { kvCache: 'keep' } },
      'rollout.checkpointEngine.kvCache is "keep", but what several versions of the weights have computed cannot be verified. Set it to "recompute".',
    ],
  ])('%j', (rollout, message) => expect(() => checkVerifiable(configOf(rollout))).toThrow(message));

  test('float16, which not every adapter has', () =>
    expect(() => checkVerifiable(configOf({}, { model: { path: 'x', dtype: 'float16' } }))).toThrow(
      'model.dtype is "float16", but samples of other adapters can be verified only in float32. Set it to "float32".',
    ));

  test('the default can be', () => expect(() => checkVerifiable(configOf())).not.toThrow());
});

describe('tokens against their bounds', () => {
  const key = [3, 4] as const;
  const prompt = 5;
  const tolerance = { logProb: 1e-4, draw: 1e-5, share: 0.01, loose: 0.01, near: 0.02 };
  /**
   * Checks a sample with the given tokens. The bounds of a token start at its random number u plus `shift`, and are `width` wide. By
   * default they contain u.
   */
  const check = (
    ...tokens: { shift?: number; width?: number; logProb?: number; logMass?: number; total?: number }[]
  ) => {
    const T = tokens.length;
    const of = (value: (token: (typeof tokens)[number], u: number) => number) =>
      Float32Array.from(tokens, (token, t) => value(token, uniformAt(key, prompt + t)));
    const bounds = {
      logProbs: new Float32Array(T).fill(-1),
      below: of(({ shift = -0.1 }, u) => u + shift),
      through: of(({ shift = -0.1, width = 0.2 }, u) => u + shift + width),
      total: of(({ total = 1 }) => total),
    };
    const trajectory = {
      promptIds: new Uint32Array(prompt),
      responseIds: new Uint32Array(T),
      mask: new Uint8Array(T).fill(1),
      logProbs: of(({ logProb = 0 }) => -1 + logProb),
      logMass: of(({ logMass = 0 }) => logMass),
      weightVersions: new Uint32Array(T).fill(6),
      ...{ stopReason: 'completed' as const, numTurns: 1, numToolCalls: 0, numToolErrors: 0 },
    };
    return checkDraws({ group: 0, key, version: 6, trajectory }, bounds, tolerance);
  };

  test('exact, near on either side, and too far on either side', () => {
    expect(check({}, {})).toMatchObject({ check: { tokens: 2, nearTokens: 0, wrongDraws: 0, drawDistance: 0 } });
    const near = check({}, { shift: 5e-6 }, { shift: -0.2 - 5e-6 });
    expect(near.check).toMatchObject({ nearTokens: 2, wrongDraws: 0 });
    expect(near.rejection).toBeUndefined();
    for (const shift of [2e-5, -0.2 - 2e-5]) {
      const far = check({}, { shift });
      expect(far.check).toMatchObject({ nearTokens: 0, wrongDraws: 1 });
      expect(far.rejection).toMatchObject({
        reason: 'forged token',
        message: 'of 2 tokens 1 are not the draw of their key, the first at 1, 0 have another log-prob',
      });
    }
  });

  test('a near token of little mass counts against the share, and only one of a sample passes', () => {
    const tiny = { shift: 5e-6, width: 1e-7 };
    const once = check({}, tiny, {});
    expect(once).toMatchObject({ check: { nearTokens: 1, looseTokens: 1, wrongDraws: 0 } });
    expect(once.rejection).toBeUndefined();
    const twice = check(tiny, {}, tiny);
    expect(twice.check).toMatchObject({ nearTokens: 2, looseTokens: 2, wrongDraws: 1 });
    expect(twice.rejection?.reason).toBe('forged token');
    const long = (count: number) =>
      check(...Array.from({ length: 300 }, (_, t) => (t < count ? tiny : {}))).rejection?.reason;
    expect([long(3), long(4)]).toEqual([undefined, 'forged token']);
    // A distance of 5e-6 is within a hundredth of a probability of 6e-4, and beyond a hundredth of 4e-4.
    const beside = (width: number) => check({ shift: 5e-6, width }).check.looseTokens;
    expect([6e-4, 4e-4].map(beside)).toEqual([0, 1]);
  });

  test('two near tokens of a sample pass, or two in a hundred', () => {
    const near = (count: number, of: number) =>
      check(...Array.from({ length: of }, (_, t) => (t < count ? { shift: 5e-6 } : {}))).rejection?.reason;
    expect([near(2, 20), near(3, 20)]).toEqual([undefined, 'forged token']);
    expect([near(6, 300), near(7, 300)]).toEqual([undefined, 'forged token']);
  });

  test.each([
    [[{ logProb: 5e-5 }], undefined],
    [[{ logProb: 2e-4 }], 'forged log-probs'],
    [[{ logProb: NaN }], 'forged log-probs'],
    [[{ logMass: 0.5 }], 'forged log-probs'],
    [[{}, { shift: 0.1, logProb: 1 }, {}, {}], 'forged token'],
    [[{ logProb: 1 }, { shift: 0.1, logProb: 1 }, {}], 'wrong weights'],
    [[{ shift: 0.1, logProb: 1 }, { shift: 0.1, logProb: 1 }, {}], 'wrong weights'],
    [[{ shift: 0.1 }, { shift: 0.1 }, { shift: 0.1 }], 'forged token'],
    [[{ total: NaN }], 'wrong weights'],
  ])('%j: %s', (tokens, reason) => expect(check(...tokens).rejection?.reason).toBe(reason));
});

const CALL = '<tool_call>{"name":"calculator","arguments":{"expression":"2+3"}}</tool_call>';
const STEP = 1;

/** Returns what an honest worker sends: each sample calls the calculator and answers. All log-probs are -1. */
const honest = async (task: Task = gsm8kToolTask(), more: object = {}): Promise<Sample[]> =>
  samplesOf(task, [problem], [CALL, 'The answer is 5.'], 4, { limits: limitsOf(), ...more });
const limitsOf = () => ({
  maxPromptLength: 64,
  maxResponseLength: 160,
  contextLength: 224,
  maxAssistantTurns: 6,
  maxToolCalls: 5,
  toolTimeoutMs: 10_000,
  maxToolResponseLength: 64,
  toolResponseTruncateSide: 'right',
});

/** Returns a model that confirms each token with a log-prob of -1, and records its batches. */
function yes() {
  const asked: PackedBatch[] = [];
  return {
    asked,
    drawBounds: (batch: PackedBatch) => {
      asked.push(batch);
      const all = (value: number) => new Float32Array(batch.targets.length).fill(value);
      return Promise.resolve({ logProbs: all(-1), below: all(0), through: all(1), total: all(1) });
    },
  };
}

function verifierOf(more: Partial<VerifierOptions> = {}) {
  const model = yes();
  const group = { number: 0, problem, step: STEP };
  const verifier = new SampleVerifier({
    config: configOf({ multiTurn: { maxToolResponseLength: 64 } }),
    task: gsm8kToolTask(),
    tokenizer,
    vocabSize: 512,
    groupOf: (uid) => (uid === 'a' ? group : undefined),
    weightsOf: () => model,
    ...more,
  });
  return { verifier, model };
}
const claimOf = (s: number): SampleClaim => ({ uid: 'a', number: 0, step: STEP, s, version: 0 });

describe('verifier', () => {
  test('concurrent samples form one batch, with their prompt once', async () => {
    const { verifier, model } = verifierOf();
    const samples = await honest();
    const verdicts = await Promise.all(samples.map((sample, s) => verifier.verify(sample, claimOf(s))));
    expect(verdicts.map(({ accepted }) => accepted)).toEqual([true, true, true, true]);
    expect(model.asked).toHaveLength(1);
    const { promptIds, mask } = samples[0].trajectory;
    expect(model.asked[0].targets).toHaveLength(4 * mask.filter((m) => m === 1).length);
    expect([...model.asked[0].positions].filter((position) => position < promptIds.length)).toHaveLength(
      promptIds.length,
    );
  });

  test.each([
    ['below', [1]],
    ['above', [3]],
    ['mixed', [2, 1]],
    ['the first', [0]],
    ['far above', [2 ** 31]],
    ['none', [NaN]],
    ['rising', [2, 2, 2, 3]],
  ])(
    'tokens of a version other than the prompt of 2 (%s) are a forgery, before any of its code runs',
    async (_, versions) => {
      const { verifier, model } = verifierOf();
      const [{ trajectory, ...sample }] = await honest();
      const of = (all: number[]) => {
        const weightVersions = trajectory.responseIds.map((__, t) => all[t % all.length]);
        return { ...sample, trajectory: { ...trajectory, weightVersions } };
      };
      const claim = { ...claimOf(0), version: 2 };
      expect(await verifier.verify(of(versions), claim)).toMatchObject({ accepted: false, reason: 'forged version' });
      expect(model.asked).toEqual([]);
      expect(await verifier.verify(of([2]), claim)).toMatchObject({ accepted: true });
    },
  );

  test('no tool, reward or other code of the task runs before the draws are right', async () => {
    const calls: string[] = [];
    const task = gsm8kToolTask();
    const spied: Task = {
      ...task,
      tools: task.tools!.map((tool) => ({
        ...tool,
        execute: (...args) => (calls.push('tool'), tool.execute(...args)),
      })),
      reward: (...args) => (calls.push('reward'), task.reward(...args)),
    };
    const model = yes();
    let isForged = true;
    const drawBounds: typeof model.drawBounds = async (batch) => {
      const bounds = await model.drawBounds(batch);
      if (isForged) bounds.below.fill(1);
      return bounds;
    };
    const { verifier } = verifierOf({ task: spied, weightsOf: () => ({ drawBounds }) });
    const [sample] = await honest();
    expect(await verifier.verify(sample, claimOf(0))).toMatchObject({ accepted: false, reason: 'forged token' });
    expect(calls).toEqual([]);
    isForged = false;
    expect(await verifier.verify(sample, claimOf(0))).toMatchObject({ accepted: true });
    expect(calls).toEqual(['tool', 'reward']);
  });

  test('a token that a tool wrote is not taken as sampled, even if the model could have drawn it', async () => {
    const { verifier } = verifierOf();
    const [sample] = await honest();
    const said = sample.trajectory.mask.indexOf(0);
    const { mask, logProbs } = sample.trajectory;
    const forgery = { mask: mask.with(said, 1), logProbs: logProbs.with(said, logProbs[0]) };
    const forged = { ...sample, trajectory: { ...sample.trajectory, ...forgery } };
    expect(await verifier.verify(forged, claimOf(0))).toMatchObject({
      accepted: false,
      reason: 'forged mask',
      detail: `token ${said} is claimed to be sampled`,
    });
  });

  test('a group that was offered again is verified anew', async () => {
    const { verifier } = verifierOf();
    const [sample] = await honest();
    const { weightVersions: _, ...trajectory } = sample.trajectory;
    const verify = async (version: number) =>
      (await verifier.verify({ ...sample, trajectory }, { ...claimOf(0), version })).accepted;
    expect([await verify(1), await verify(1), await verify(2)]).toEqual([true, false, true]);
  });

  test('a reward that throws over a sample is its fault, and ends nothing', async () => {
    const task = { ...gsm8kToolTask(), reward: () => Promise.reject(new Error('no number')) };
    const { verifier } = verifierOf({ task });
    const [sample] = await honest();
    expect(await verifier.verify(sample, claimOf(0))).toMatchObject({
      accepted: false,
      reason: 'forged reward',
      detail: containing('no number'),
    });
  });

  test('a loop that sets unverifiable values is the fault of the run', async () => {
    registerAgentLoop('cuts', async (sample) => (await sample.generate({ topK: 3 })).stop ?? 'completed');
    const config = configOf({ agent: { defaultAgentLoop: 'cuts' } });
    const [sample] = await honest();
    await expect(verifierOf({ config }).verifier.verify(sample, claimOf(0))).rejects.toThrow(
      'An agent loop sets topK for a turn, which cannot be verified. Leave it out.',
    );
  });

  test('an error of the model rejects every waiting sample, and the next batch is tried', async () => {
    const model = yes();
    let fails = true;
    const weightsOf = () => {
      if (fails) throw new Error('lost');
      return model;
    };
    const { verifier } = verifierOf({ weightsOf });
    const samples = await honest();
    const all = await Promise.allSettled(samples.map((sample, s) => verifier.verify(sample, claimOf(s))));
    expect(all.map(({ status }) => status)).toEqual(Array(4).fill('rejected'));
    fails = false;
    expect(await verifier.verify(samples[0], claimOf(0))).toMatchObject({ accepted: true });
  });

  test.each([
    ['a group that is not under way', { uid: 'b' }, 'no group "b" is in flight'],
    ['another step', { step: 2 }, 'group "a" has no sample 0 of problem 0 and step 2'],
    ['a sample past the group', { s: 4 }, 'group "a" has no sample 4 of problem 0 and step 1'],
    ['a number that is none', { s: -1 }, 'its s is not a count'],
  ])('%s', async (_, change, detail) => {
    const { verifier, model } = verifierOf();
    const [sample] = await honest();
    expect(await verifier.verify(sample, { ...claimOf(0), ...change })).toEqual({
      accepted: false,
      reason: 'malformed',
      detail,
    });
    expect(model.asked).toEqual([]);
  });

  /** Returns a task with a tool that reads the clock, and a reward that never repeats. */
  const clock = (): Task => {
    let [time, scores] = [100, 0];
    const { tools = [], ...task } = gsm8kToolTask();
    const execute = () => `it is ${time++}${' and more'.repeat(8)}`;
    return {
      ...task,
      tools: tools.map((tool) => ({ ...tool, execute, maxResponseLength: 70 })),
      reward: () => ({ score: scores++, acc: 0 }),
    };
  };

  test('tools and rewards that cannot be repeated are refused, or trusted by name', async () => {
    const samples = await honest(clock());
    const verdicts = async (more: Partial<VerifierOptions>) => {
      const { verifier } = verifierOf({ task: clock(), ...more });
      const all = await Promise.all(samples.slice(1).map((sample, s) => verifier.verify(sample, claimOf(s + 1))));
      return all.map((verdict) => (verdict.accepted ? 'accepted' : verdict.reason));
    };
    const tools = ['calculator'];
    expect((await verdicts({}))[0]).toBe('forged mask');
    expect((await verdicts({ trusted: { tools } }))[0]).toBe('forged reward');
    expect(await verdicts({ trusted: { tools, reward: true } })).toEqual(['accepted', 'accepted', 'accepted']);
    // Even a trusted tool output must be the text of the sample's tokens.
    samples[1].messages[1] = { role: 'tool', content: 'it is late' };
    expect((await verdicts({ trusted: { tools, reward: true } }))[0]).toBe('forged mask');
  });

  test('values that are not samples are rejected', async () => {
    const { verifier } = verifierOf();
    for (const sample of [undefined, null, 3, {}, { trajectory: 'x' }, { trajectory: {} }])
      expect(await verifier.verify(sample as unknown as Sample, claimOf(0))).toMatchObject({ reason: 'malformed' });
  });

  test("the accepted sample is the controller's, with its own problem and messages", async () => {
    const [sample] = await honest();
    const verdict = await verifierOf().verifier.verify({ ...sample, problem: { ...problem, answer: '9' } }, claimOf(0));
    expect(verdict).toMatchObject({ accepted: true, sample: { problem, messages: sample.messages } });
  });
});

test('reward.weights counts once for the worker and for the controller', async () => {
  const config = configOf({}, { reward: { weights: { answered: 0.5 } } });
  const model = {
    config: { vocabSize: 512 },
    importWeights: () => Promise.resolve(),
    drawBounds: async (batch: PackedBatch) => {
      const bounds = await yes().drawBounds(batch);
      return { ...bounds, logProbs: bounds.logProbs.map((_, t) => -1 - t) };
    },
  };
  const task = gsm8kToolTask();
  const engine = stub<Pick<TrainerEngine, 'rollout' | 'tokenizer' | 'model'>>({
    rollout: new ScriptedTurns(['#### 1']),
    tokenizer,
    model,
  });
  const verified = new VerifiedSamples({
    ...{ config, task, tokenizer, model: stub(model), keep: 1 },
    fileOf: () => Promise.resolve(writeSafetensors(new Map())),
  });
  const group = { number: 0, problem, step: STEP };
  const prompt = { ...group, uid: uidOfGroup(group), ticket: 't', n: 1, weights: { version: 0, digest: '' } };
  const scores: unknown[] = [];
  await roomEngine({ config, engine, task }, { adapter: 'none', destroy: () => {} }).generate(
    prompt,
    'w',
    async (record) => {
      const checked = await verified.check(record, 'w', group, 0, false);
      scores.push(record.columns['reward'], typeof checked === 'object' ? checked.columns['reward'] : checked);
    },
    new AbortController().signal,
  );
  expect(scores).toEqual([0.5, 0.5]);
});

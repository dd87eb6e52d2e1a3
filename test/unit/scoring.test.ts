/** Tests how the sample of an agent loop gets its reward: arguments of the reward function, and its allowed results. */
import { describe, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { GenerateOptions } from '../../src/grpo/generate/options.ts';
import { generateSamples } from '../../src/grpo/generate/samples.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { defineTool } from '../../src/tasks/tool.ts';
import { combineRewards, type RewardFunction, withRewardWeights } from '../../src/tasks/rewards/combine.ts';
import type { Reward, ScoredSample, Task } from '../../src/tasks/task.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { LIMITS, problem, ScriptedTurns, tokenizer } from '../scriptedTurns.ts';

const SAMPLING = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 100 };
const CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>';

/** Returns the sample of one problem, generated with scripted turns. */
async function score(
  turns: string[],
  task: Partial<Task>,
  agentLoop = 'tool_agent',
  more: Partial<GenerateOptions> = {},
) {
  const { samples } = await generateSamples([problem], {
    engine: new ScriptedTurns(turns),
    tokenizer,
    task: { name: 't', train: () => problem, heldOut: () => [], tools: [calculator], reward: () => REWARD, ...task },
    sampling: { ...SAMPLING, stopTokenIds: tokenizer.eosTokenIds },
    limits: LIMITS,
    agent: { agentLoop },
    seed: 1,
    batch: 3,
    n: 1,
    globalStep: 3,
    ...more,
  });
  return samples[0];
}
const REWARD: Reward = { score: 1, acc: 1 };

test('the reward function receives the step, the final states of tools, and the values that the loop set', async () => {
  const dice = defineTool({
    name: 'calculator',
    description: '',
    parameters: { type: 'object', properties: { expression: { type: 'string' } } },
    create: () => ({ rolls: 0 }),
    execute: (_, { state }) => `${++state.rolls}`,
  });
  registerAgentLoop('counting', async (sample) => {
    const turn = await sample.generate();
    sample.state = { calls: turn.calls.length };
    return turn.stop ?? (await sample.callTools(turn.calls)) ?? 'completed';
  });
  const seen: ScoredSample[] = [];
  const reward = (sample: ScoredSample) => {
    seen.push(sample);
    return REWARD;
  };
  await score([CALL], { tools: [dice], reward }, 'counting');
  expect(seen).toMatchObject([{ globalStep: 3, state: { calls: 1 }, toolStates: { calculator: { rolls: 1 } } }]);
});

test.each([
  [
    [0.5],
    /^The reward of problem "train-0" has no number for turn 2 of 2: its `turns` are \[0\.5\]\. Give one number for every/,
  ],
  [[], /has no number for turn 1 of 2: its `turns` are \[\]/],
  [[0, Infinity], /has Infinity for turn 2 of 2: its `turns` are \[0, Infinity\]/],
])('turn rewards %j of two turns end the run at that sample', async (turns, message) => {
  const reward = () => ({ ...REWARD, turns });
  await expect(score([CALL, '#### 42'], { reward })).rejects.toThrow(message);
});

test('there are at least as many turn rewards as turns', async () => {
  for (const turns of [
    [NaN, 1],
    [0, 1, 0],
  ])
    expect((await score([CALL, '#### 42'], { reward: () => ({ ...REWARD, turns }) })).reward.turns).toEqual(turns);
});

const notAnError = (thrown: unknown) => {
  throw thrown as Error;
};
const getter = { get: () => notAnError(Symbol('twice')) };

describe('a failing reward function ends in one error message, or in a sample without a reward', () => {
  test.each<[string, () => unknown, RegExp]>([
    ['undefined', () => undefined, /^The reward of problem "train-0" is undefined\. Return \{ score, acc \}/],
    ['null', () => null, /is null\. Return/],
    ['a long text', () => 'x'.repeat(300), /is "x{99}\.\.\.\. Return/],
    ['a bigint', () => 1n, /is a bigint\. Return/],
    [
      '1e200',
      () => ({ score: 1e200, acc: 1 }),
      /is 1e\+200\. Give a finite number of at most 3\.4e\+38 \(float32\), or NaN/,
    ],
    ["acc 'x'", () => ({ score: 1, acc: 'x' }), /has the acc "x"\. Give 1 for right, 0 for wrong, or NaN/],
    ['acc Infinity', () => ({ score: 1, acc: Infinity }), /has the acc Infinity/],
    ['extra', () => ({ ...REWARD, extra: { a: null } }), /has extra\.a null/],
    [
      'throws',
      () => notAnError(new Error('boom')),
      /^The reward of problem "train-0" threw "boom" \(at .*scoring\.test/,
    ],
    ['throws null', () => notAnError(null), /threw "null"\. Return \{ score, acc \}/],
    ['message', () => notAnError(Object.defineProperty(new Error(), 'message', getter)), /without a readable message/],
    ['never', () => new Promise(() => undefined), /did not resolve in 0\.02 s \(reward\.timeoutS\)/],
  ])('%s', async (_, reward, message) => {
    const task = { reward: reward as Task['reward'] };
    const limits = { rewardTimeoutMs: 20 };
    await expect(score(['#### 42'], task, 'tool_agent', limits)).rejects.toThrow(message);
    const told: string[] = [];
    const onFault = ({ message }: Error) => void told.push(message);
    const skipped = await score(['#### 42'], task, 'tool_agent', { ...limits, onError: 'skip', onFault });
    expect(skipped.reward).toEqual({ score: NaN, acc: NaN });
    expect(skipped.fault?.message).toMatch(message);
    expect(told).toEqual([skipped.fault?.message]);
  });

  test('a hanging reward does not delay an aborted sample', async () => {
    const controller = new AbortController();
    const reward = () => {
      setImmediate(() => controller.abort());
      return new Promise<Reward>(() => undefined);
    };
    const { reward: given } = await score(['#### 42'], { reward }, 'tool_agent', { signal: controller.signal });
    expect(given.score).toBeNaN();
  });
});

test('a failing agent loop ends in one error message, or in a sample with the stop reason error', async () => {
  registerAgentLoop('faulty', async (sample) => {
    await sample.generate();
    return 'finished' as never;
  });
  const message = 'The agent loop "faulty" of problem "train-0" returned "finished". Return one of completed, done, ';
  await expect(score(['#### 42'], {}, 'faulty')).rejects.toThrow(message);
  const { trajectory, reward, fault } = await score(['#### 42'], {}, 'faulty', { onError: 'skip' });
  expect(fault?.message).toContain(message);
  expect(reward.score).toBeNaN();
  expect(trajectory.stopReason).toBe('error');
  expect(trajectory.responseIds.length).toBeGreaterThan(0);
  registerAgentLoop('hanging', () => new Promise(() => undefined));
  await expect(score([], {}, 'hanging', { limits: { ...LIMITS, loopTimeoutMs: 20 } })).rejects.toThrow(
    'did neither generate, call tools nor end in 0.02 s (rollout.agent.timeoutS)',
  );
});

test('an error of the engine stays the same, even if it is caught, and ends the run also under skip', async () => {
  registerAgentLoop('catching', async (sample) => {
    await sample.generate().catch(() => undefined);
    return 'completed';
  });
  const engine = new ScriptedTurns([]);
  engine.generate = () => Promise.reject(new Error('GPU lost'));
  await expect(score([], {}, 'catching', { onError: 'skip', engine })).rejects.toThrow(/^GPU lost$/);
});

describe('several named rewards', () => {
  const code: RewardFunction = ({ response }) => (response === 'code' ? 4 : null);
  const reward = combineRewards(
    {
      correct: ({ response, globalStep = 0 }) => ({
        score: response === '#### 42' ? 1 : 0,
        extra: { said: response, step: globalStep },
      }),
      format: ({ response }) => Promise.resolve(response.startsWith('####') ? 1 : 0),
      code,
    },
    { weights: { format: 0.1, code: 0.5 } },
  );
  const task = { name: 't', train: () => problem, heldOut: () => [], reward };
  const scored = async (response: string, of = reward) => (await score([response], { ...task, reward: of })).reward;

  test('their sum by weights, without those that do not apply (TRL: nansum of rewards x weights)', async () => {
    const weights = { correct: 1, format: 0.1, code: 0.5 };
    const extra = { correct: 1, format: 1, code: NaN, said: '#### 42', step: 3 };
    expect(await scored('#### 42')).toEqual({ score: 1 * 1 + 0.1 * 1, acc: 1, extra, weights });
    expect(await scored('code')).toMatchObject({ score: 1 * 0 + 0.1 * 0 + 0.5 * 4, acc: 0, extra: { code: 4 } });
  });

  test('a sample to which none applies has no reward; the outcome is the function that `acc` names', async () => {
    expect(await scored('#### 42', combineRewards({ code }))).toMatchObject({ score: NaN, acc: NaN });
    const both = combineRewards({ code, other: () => 0.25 }, { acc: 'other' });
    expect(await scored('#### 42', both)).toMatchObject({ score: 0.25, acc: 0.25 });
  });

  test('reward.weights replaces weights by name, and adds numbers of a reward of another kind', async () => {
    const { weights } = resolveTrainConfig({
      name: 't',
      model: { path: 'm' },
      reward: { weights: { format: 2 } },
    }).reward;
    expect(await scored('#### 42', withRewardWeights(task, weights).reward)).toMatchObject({
      score: 1 * 1 + 2 * 1,
      weights: { correct: 1, format: 2, code: 0.5 },
    });
    const rule: Task['reward'] = () => ({ score: 1, acc: 1, extra: { format: 0.5, lines: NaN } });
    const added = withRewardWeights({ ...task, reward: rule }, { format: 2, lines: 7 }).reward;
    expect(await scored('#### 42', added)).toEqual({ score: 1 + 2 * 0.5, acc: 1, extra: { format: 0.5, lines: NaN } });
    await expect(scored('#### 42', withRewardWeights(task, { said: 1 }).reward)).rejects.toThrow(
      'reward.weights names "said", but the named rewards of task "t" are correct, format, code, step (problem "train-0")',
    );
    const one = withRewardWeights({ ...task, reward: (() => 1) as never }, { said: 1 }).reward;
    await expect(scored('#### 42', one)).rejects.toThrow('The reward of problem "train-0" is 1. Return { score, acc }');
  });

  test('senseless weights are reported', async () => {
    expect(() => combineRewards({})).toThrow('combineRewards was given no functions');
    expect(() => combineRewards({ code }, { weights: { cod: 1 } })).toThrow(
      'has no function "cod"; it was given code.',
    );
    expect(() => combineRewards({ code }, { acc: 'x' })).toThrow('has no function "x"; it was given code.');
    await expect(scored('x', combineRewards({ bad: () => Infinity }))).rejects.toThrow(
      'Reward "bad" of problem "train-0" is Infinity. Give a finite number, or null if it does not apply.',
    );
    const twice = combineRewards({ a: () => ({ score: 1, extra: { b: 1 } }), b: () => 1 });
    await expect(scored('x', twice)).rejects.toThrow(
      'The rewards give two values of the name "b". Rename one of them.',
    );
    expect(() =>
      resolveTrainConfig({
        name: 't',
        model: { path: 'm' },
        algorithm: { name: 'gdpo', gdpoRewardKeys: ['a'], gdpoRewardWeights: [1] },
        reward: { weights: { a: 1 } },
      }),
    ).toThrow('algorithm.gdpoRewardWeights and reward.weights both give weights of named rewards');
  });
});

test('a reward that fails ends the rewards of other samples that are still running', async () => {
  let ask = 0;
  const reward = () => (ask++ === 0 ? new Promise<Reward>(() => {}) : Promise.reject(new Error('no such file')));
  await expect(score(['4', '4'], { reward }, 'single_turn', { n: 2 })).rejects.toThrow('no such file');
});

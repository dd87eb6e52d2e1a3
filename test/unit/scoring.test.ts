/** From an agent loop's sample to its reward: what the reward function is given, and what it may give. */
import { expect, test } from 'vitest';
import { generateSamples } from '../../src/grpo/generate/samples.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { defineTool } from '../../src/tasks/tool.ts';
import type { Reward, ScoredSample, Task } from '../../src/tasks/task.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { LIMITS, problem, ScriptedEngine, tokenizer } from '../scriptedEngine.ts';

const SAMPLING = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 100 };
const CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>';

/** The sample of one problem whose turns are scripted. */
async function score(turns: string[], task: Partial<Task>, agentLoop = 'tool_agent') {
  const { samples } = await generateSamples([problem], {
    engine: new ScriptedEngine(turns),
    tokenizer,
    task: { name: 't', train: () => problem, heldOut: () => [], tools: [calculator], reward: () => REWARD, ...task },
    sampling: { ...SAMPLING, stopTokenIds: tokenizer.eosTokenIds },
    limits: LIMITS,
    agent: { agentLoop },
    seed: 1,
    batch: 3,
    n: 1,
    globalStep: 3,
  });
  return samples[0];
}
const REWARD: Reward = { score: 1, acc: 1 };

test('the reward function is given the step, the states of tools as they ended, and what the loop set', async () => {
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
    /^The reward of problem "train-0" has no number for turn 2 of 2: its `turns` are \[0\.5\]; give one number for every/,
  ],
  [[], /has no number for turn 1 of 2: its `turns` are \[\]/],
  [[0, Infinity], /has Infinity for turn 2 of 2: its `turns` are \[0, Infinity\]/],
])('turn rewards %j of two turns end the run at that sample', async (turns, message) => {
  const reward = () => ({ ...REWARD, turns });
  await expect(score([CALL, '#### 42'], { reward })).rejects.toThrow(message);
});

test('turn rewards are as many as there are turns, or more', async () => {
  for (const turns of [
    [NaN, 1],
    [0, 1, 0],
  ])
    expect((await score([CALL, '#### 42'], { reward: () => ({ ...REWARD, turns }) })).reward.turns).toEqual(turns);
});

/**
 * Third-party agents, in `npm test -- --full`: Python's packages run a tool loop against a scripted engine, and the shipped model learns
 * from one agent of Node and one of Python. Node's packages run a tool loop every day: test/unit/agentClients.test.ts.
 */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import { describe, expect, test } from 'vitest';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { extractAnswer } from '../../src/tasks/gsm8k/reward.ts';
import { trainProblem } from '../../src/tasks/gsm8k/task.ts';
import { calculate, calculator } from '../../src/tasks/tools/calculator.ts';
import { RunningCommand } from '../commandLine.ts';
import { type AgentTask, clientsPython, PythonAgent } from '../pythonAgents.ts';
import { callsCalculator, callsUntilAnswer, servedRun } from '../servedRun.ts';
import { isFull } from './full.ts';

if (isFull && !clientsPython)
  process.stderr.write('skipped: no Python with agent packages; CONTRIBUTING.md says how to make one\n');
const hasPython = isFull && clientsPython !== undefined;

describe.runIf(hasPython)('a tool loop of Python by default settings', () => {
  const CLIENTS = [
    ...['openai_chat', 'openai_responses', 'openai_agents', 'openai_agents_chat', 'anthropic_stream'],
    ...['anthropic_tool_runner', 'litellm_openai', 'litellm_anthropic', 'litellm_responses', 'langgraph'],
    ...['pydantic_ai_chat', 'pydantic_ai_responses', 'pydantic_ai_anthropic', 'instructor', 'smolagents', 'verifiers'],
    ...['inspect_ai_openai', 'inspect_ai_anthropic'],
  ];
  /**
   * Number of turns in each trained row of a client. Default: one row of two turns, a call and an answer. inspect-ai first makes a separate
   * request.
   */
  const TURNS: Record<string, number[]> = { instructor: [1], smolagents: [1, 1], inspect_ai_openai: [1, 2] };
  test.for(CLIENTS)('%s', async (client, { skip }) => {
    const { url, rollout, groups } = await servedRun({ tokens: 2048 });
    rollout.says = client === 'smolagents' ? callsUntilAnswer : callsCalculator;
    using agent = new PythonAgent(client, 'talking');
    const answers = await agent.answers([{ base: `${url}/v1`, question: 'What is 6 times 7?' }]);
    if (typeof answers === 'string') skip(answers);
    expect(answers).toEqual(['It is 42.']);
    const turns = groups.episodes.flatMap((episode) => episode.rows().map(({ trajectory }) => trajectory.numTurns));
    expect(turns).toEqual(TURNS[client] ?? [2]);
  });
});

const [STEPS, GROUPS, MEMBERS] = [12, 16, 8];
/** Number of steps at the start and at the end whose mean rewards are compared. */
const SPAN = 3;

/** Trains the shipped model on an agent's episodes, and returns the mean reward of each step. */
async function rewardsOf(name: string, answers: (tasks: AgentTask[]) => Promise<string[]>): Promise<number[]> {
  const run = new RunningCommand([
    ...['serve', 'configs/gsm8k-tool.yaml', `name=${name}`, '--port', '0', '--steps', 'manual'],
    `trainer.defaultLocalDir=${mkdtempSync(join(tmpdir(), 'webgrpo-agents-'))}`,
    ...[`data.trainBatchSize=${GROUPS}`, `rollout.n=${MEMBERS}`, 'rollout.maxNumSeqs=128', 'trainer.kernelTuning=off'],
    ...[`trainer.totalTrainingSteps=${STEPS}`, 'trainer.saveFreq=0'],
  ]);
  const [, url] = await run.said(/serving .* at (\S+)\/v1 /);
  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${url}/v1${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    expect(response.status).toBe(200);
    return (await response.json()) as { metrics: Metrics };
  };
  const rewards: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    const problems = Array.from({ length: GROUPS }, (_, i) => trainProblem(step * GROUPS + i, 1));
    const episodes = problems.flatMap(({ messages, answer }, i) =>
      Array.from({ length: MEMBERS }, (_, j) => {
        return { path: `/t/${step}-${i}/${j}`, question: messages[0].content, answer };
      }),
    );
    const given = await answers(episodes.map(({ path, question }) => ({ base: `${url}/v1${path}`, question })));
    for (const [i, { path, answer }] of episodes.entries())
      await post(`${path}/rewards`, { reward: extractAnswer(given[i] ?? '') === answer ? 1 : 0 });
    const { metrics } = await post('/step', {});
    expect(metrics['client/forks']).toBe(0);
    expect(metrics['training/rollout_probs_diff_max']).toBeLessThan(1e-4);
    rewards.push(metrics['critic/score/mean']);
  }
  expect((await run.done).status).toBe(0);
  process.stderr.write(`${name}: mean reward by step ${rewards.map((one) => one.toFixed(3)).join(' ')}\n`);
  return rewards;
}

const meanOf = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
const rise = (rewards: number[]) => meanOf(rewards.slice(-SPAN)) - meanOf(rewards.slice(0, SPAN));

describe.runIf(isFull)('the shipped model learns from', () => {
  test("an agent of Anthropic's package, through /v1/messages", async () => {
    const { name, description, parameters } = calculator;
    const tools = [{ name, description, input_schema: parameters as Anthropic.Tool.InputSchema }];
    const episode = async ({ base, question }: AgentTask) => {
      const client = new Anthropic({ apiKey: 'none', baseURL: base });
      const messages: Anthropic.MessageParam[] = [{ role: 'user', content: question }];
      for (let turn = 0; turn < 6; turn++) {
        const { content } = await client.messages.create({ model: 'messages', max_tokens: 160, messages, tools });
        messages.push({ role: 'assistant', content });
        const uses = content.filter((block) => block.type === 'tool_use');
        if (uses.length === 0) return content[0].type === 'text' ? content[0].text : '';
        const results = uses.map(({ id, input }) => {
          const { expression } = input as { expression: string };
          return { type: 'tool_result' as const, tool_use_id: id, content: calculate(expression) };
        });
        messages.push({ role: 'user', content: results });
      }
      return '';
    };
    const rewards = await rewardsOf('messages', (tasks) => Promise.all(tasks.map(episode)));
    expect(rise(rewards)).toBeGreaterThan(0.15);
  });

  test.runIf(hasPython)("an agent of Python's openai-agents, through /v1/responses", async () => {
    using agent = new PythonAgent('openai_agents', 'responses');
    const rewards = await rewardsOf('responses', async (tasks) => (await agent.answers(tasks)) as string[]);
    expect(rise(rewards)).toBeGreaterThan(0.15);
  });
});

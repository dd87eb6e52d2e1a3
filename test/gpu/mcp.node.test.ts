/** Runs a training step with the tool of a real MCP server and constrained calls: the calls of an untrained model reach the server. */
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { initWeights } from '../../src/model/params.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { parseHermes } from '../../src/rollout/tools/parser.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { mcpTools } from '../../src/extensions/mcp/index.ts';
import { createLocalEngine, engineSizes } from '../../src/workers/localEngine.ts';
import { tinyConfig } from './tinyModel.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
const OPEN = new ChatTokenizer(tokenizerJson, tokenizerConfigJson).encode('<tool_call>')[0];

registerAgentLoop('begins_calls', async (sample) => {
  const turn = await sample.generate({ logitBias: [[OPEN, 30]], maxNewTokens: 60 });
  const calls = parseHermes(turn.content, sample.input.tools);
  return turn.stop ?? (await sample.callTools(calls.filter(({ error }) => error === undefined))) ?? 'completed';
});

test('every started call is valid, is answered, and is trained on', async () => {
  const command = 'node_modules/@modelcontextprotocol/server-everything/dist/index.js';
  const { tools, stats, close } = await mcpTools(
    { command: process.execPath, args: [command] },
    { include: ['get-sum'] },
  );
  const config = resolveTrainConfig({
    name: 'mcp',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 24, maxResponseLength: 96, valMaxSamples: 1 },
    rollout: { n: 4, multiTurn: { constrainToolCalls: true, toolTimeoutS: 60 } },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 240, optim: { lr: 1e-3 } },
    trainer: { totalTrainingSteps: 1, testFreq: 0, valBeforeTrain: false },
  });
  const model = { ...tinyConfig, vocabSize: 512 };
  const spec = {
    ...engineSizes(config),
    config: model,
    weights: initWeights(model, 3),
    tokenizerJson,
    tokenizerConfigJson,
  };
  const engine = await createLocalEngine(spec);
  const samples: Sample[] = [];
  try {
    const problem = (id: string) => ({
      id,
      messages: [{ role: 'user' as const, content: `${id} plus 3` }],
      answer: '',
      agentName: 'begins_calls',
    });
    const trainer = new GrpoTrainer({
      config,
      task: {
        name: 'sum',
        train: (index) => problem(`${index}`),
        heldOut: () => [problem('9')],
        tools,
        reward: ({ messages }) => ({ score: messages[0].content.length, acc: 0 }),
      },
      engine,
      onStep: (_, taken) => void samples.push(...taken),
    });
    const { history } = await trainer.fit();
    expect(history[0]['actor/grad_norm']).toBeGreaterThan(0);
    expect(history[0]['training/rollout_probs_diff_max']).toBe(0);
    const calls = samples.map(({ trajectory }) => trajectory.numToolCalls);
    expect(calls.filter((count) => count > 0).length).toBeGreaterThan(0);
    expect(samples.reduce((sum, { trajectory }) => sum + trajectory.numToolErrors, 0)).toBe(0);
    // The held-out samples, evaluated after the step, call the tool too.
    expect(stats.calls).toBeGreaterThanOrEqual(calls.reduce((a, b) => a + b, 0));
    expect(stats.errors).toBe(0);
  } finally {
    engine.destroy();
    await close();
  }
});

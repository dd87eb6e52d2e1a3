/** Tests stop strings and guided calls, which need the vocabulary in the worker: the answers equal those of an engine in this thread. */
import * as Comlink from 'comlink';
import { expect, test } from 'vitest';
import { parseModelConfig } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import type { GenerateRequest, RolloutEngine, SamplingParams } from '../../src/rollout/types.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { createDeviceEngine, createLocalEngine } from '../../src/workers/localEngine.ts';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { workerAt } from '../stub.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
const config = parseModelConfig({
  architectures: ['LlamaForCausalLM'],
  vocab_size: 512,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
});
const spec: EngineSpec = {
  engine: 'wgsl',
  config,
  weights: initWeights(config, 1),
  tokenizerJson,
  tokenizerConfigJson,
  maxTokenLen: 64,
  maxPositions: 128,
  speculative: { maxDraftTokens: 4, minNgram: 1, history: 4, adapt: false },
  rollout: { maxNumSeqs: 4, slotCapacity: 64, maxPrompts: 2, maxPromptLength: 16, maxBatchedTokens: 64 },
};
const parameters = { type: 'object', properties: { x: { type: 'integer' } }, required: ['x'] } as const;
const asked: Partial<SamplingParams>[] = [
  {},
  { stop: ['e', '1'] },
  // Token 3 is the tag that starts a tool call. The bias makes the model sample it.
  { toolCalls: [{ name: 'square', parameters }], logitBias: [[3, 50]] },
];

async function answers(rollout: RolloutEngine) {
  const requests = asked.map((more, s): GenerateRequest => ({
    requestId: `${s}`,
    contextIds: Uint32Array.of(9, 8, 7),
    promptLength: 3,
    key: [1, s],
    sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 30, stopTokenIds: [2], ...more },
  }));
  const generations = await Promise.all(requests.map((q) => rollout.generate(q)));
  for (const { requestId } of requests) rollout.release(requestId);
  return generations;
}

test('stop strings, constrained calls and guesses through a worker', async () => {
  const local = await createLocalEngine(spec);
  const want = await answers(local.rollout);
  local.destroy();
  expect(want.map((g) => g.stopReason).includes('stop_string')).toBe(true);
  expect(want[2].logMass?.some((mass) => mass < 0)).toBe(true);
  const { port1, port2 } = new MessageChannel();
  Comlink.expose(createEngineHost(createDeviceEngine), port1);
  port2.start();
  const remote = await createRemoteEngine(workerAt(port2), spec);
  expect(await answers(remote.rollout)).toEqual(want);
  await remote.destroy();
  port1.close();
  port2.close();
});

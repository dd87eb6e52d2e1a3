/** Agent loops without a GPU: an engine with scripted turns and the shipped tokenizer. */

import { readFileSync } from 'node:fs';
import { expect } from 'vitest';
import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import { generateSamples } from '../src/grpo/generate/samples.ts';
import type { Sample } from '../src/grpo/update/batch.ts';
import { runAgentLoop } from '../src/rollout/agent/loop.ts';
import type { AgentLimits, AgentLoopInput } from '../src/rollout/agent/types.ts';
import type { GenerateRequest, Generation, TurnEngine } from '../src/rollout/types.ts';
import { trainProblem } from '../src/tasks/gsm8k/task.ts';
import type { Problem, Task } from '../src/tasks/task.ts';
import { calculator } from '../src/tasks/tools/calculator.ts';

const readJson = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));
export const tokenizerJson = readJson('checkpoints/gsm8k-tool/tokenizer.json');
export const tokenizer = new ChatTokenizer(tokenizerJson, readJson('checkpoints/gsm8k-tool/tokenizer_config.json'));
export const problem = trainProblem(0, 1);

/**
 * An engine that replies with scripted turns, one per request, each truncated after its first stop token. Log-probs count down from -1, so
 * that a shift by one token is detected.
 */
export class ScriptedTurns implements TurnEngine {
  requests: GenerateRequest[] = [];
  released: string[] = [];
  aborted: string[] = [];
  private readonly turns: string[];
  private readonly own: ChatTokenizer;

  constructor(turns: string[], own = tokenizer) {
    this.turns = turns;
    this.own = own;
  }

  generate(request: GenerateRequest): Promise<Generation> {
    const said = [...this.own.encode(this.turns[this.requests.length]), this.own.eosTokenIds[0]];
    const all = said.slice(0, 1 + said.findIndex((id) => request.sampling.stopTokenIds.includes(id)));
    this.requests.push(request);
    const tokenIds = Uint32Array.from(all.slice(0, request.sampling.maxNewTokens));
    const stopReason = tokenIds.length < all.length ? 'length' : 'stop';
    return Promise.resolve({ tokenIds, logProbs: Float32Array.from(tokenIds, (_, i) => -1 - i), stopReason });
  }

  release(requestId: string): void {
    this.released.push(requestId);
  }

  abort(requestIds: string[]): void {
    this.aborted.push(...requestIds);
  }
}

export const LIMITS: AgentLimits = {
  maxPromptLength: 64,
  maxResponseLength: 200,
  contextLength: 256,
  maxAssistantTurns: 5,
  maxToolCalls: 8,
  toolTimeoutMs: 50,
  maxToolResponseLength: 64,
  toolResponseTruncateSide: 'middle',
};

type Overrides = Partial<Omit<AgentLoopInput, 'limits' | 'engine'>> & {
  engine?: ScriptedTurns;
  limits?: Partial<AgentLimits>;
};

export async function run(turns: string[], { limits, engine = new ScriptedTurns(turns), ...more }: Overrides = {}) {
  const requestId = more.requestId ?? 'r1';
  const output = await runAgentLoop({
    engine,
    tokenizer,
    tools: [calculator],
    problem,
    key: [1, 2],
    sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 100, stopTokenIds: tokenizer.eosTokenIds },
    ...more,
    requestId,
    limits: { ...LIMITS, ...limits },
  });
  // Every sample must be released exactly once, however it ends.
  expect(engine.released.filter((id) => id === requestId)).toHaveLength(1);
  const { responseIds, mask, logProbs, logMass } = output.trajectory;
  expect([mask.length, logProbs.length, logMass.length]).toEqual(Array(3).fill(responseIds.length));
  mask.forEach((m, i) => expect(logProbs[i] < 0).toBe(m === 1));
  return { engine, ...output };
}

/** Generates and scores samples of a task as a step does. All samples have the same scripted turns. */
export async function samplesOf(
  task: Task,
  problems: Problem[],
  turns: string[],
  n = 1,
  more: object = {},
): Promise<Sample[]> {
  const said = new Map<string, number>();
  const engine = new ScriptedTurns(turns);
  engine.generate = (request: GenerateRequest): Promise<Generation> => {
    const turn = said.get(request.requestId) ?? 0;
    said.set(request.requestId, turn + 1);
    engine.requests.push(request);
    const tokenIds = Uint32Array.of(...tokenizer.encode(turns[turn] ?? 'stop'), tokenizer.eosTokenIds[0]);
    return Promise.resolve({ tokenIds, logProbs: new Float32Array(tokenIds.length).fill(-1), stopReason: 'stop' });
  };
  const sampling = {
    temperature: 1,
    topK: 0,
    topP: 1,
    minP: 0,
    maxNewTokens: 100,
    stopTokenIds: tokenizer.eosTokenIds,
  };
  const limits = { ...LIMITS, maxResponseLength: 1000, contextLength: 2000 };
  const options = { engine, tokenizer, task, sampling, limits, seed: 1, batch: 1, n, ...more };
  return (await generateSamples(problems, options)).samples;
}

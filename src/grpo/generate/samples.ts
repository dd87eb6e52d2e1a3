/** Generation of a step: one agent loop a sample, all at once against one engine, each scored as it finishes. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { runAgentLoop, type AgentLimits, type AgentLoopInput, type AgentLoopOutput } from '../../rollout/agent/loop.ts';
import type { SampleEvent } from '../../rollout/agent/events.ts';
import type { RolloutEngine, SamplingParams } from '../../rollout/types.ts';
import type { Problem, Reward, Task } from '../../tasks/task.ts';
import type { Sample } from '../update/batch.ts';

export interface GenerateOptions {
  engine: RolloutEngine;
  tokenizer: ChatTokenizer;
  task: Task;
  sampling: SamplingParams;
  limits: AgentLimits;
  agent?: Pick<AgentLoopInput, 'agentLoop' | 'toolParser' | 'toolSchemasInPrompt' | 'constrainToolCalls'>;
  /** Part of every random key: the run's seed, and what tells this batch from all others. */
  seed: number;
  batch: number;
  /** Samples per problem. */
  n: number;
  /** Number of the first problem's group. */
  firstGroup?: number;
  signal?: AbortSignal | undefined;
  /** Record what each sample spends its time on. */
  profile?: boolean;
  onSample?: (sample: Sample) => void;
}

/** Seconds spent outside the model, summed over samples (they overlap each other and generation). */
export interface OutsideSeconds {
  tools: number;
  reward: number;
}

/** Samples of every problem, problem by problem; those of one are neighbours and share `group`. */
export async function generateSamples(
  problems: readonly Problem[],
  options: GenerateOptions,
): Promise<{ samples: Sample[]; seconds: OutsideSeconds }> {
  const { groups, seconds } = startGroups(problems, options);
  return { samples: (await Promise.all(groups)).flat(), seconds };
}

/** Starts all of them; a group resolves when its last sample is scored. `seconds` grows meanwhile. */
export function startGroups(
  problems: readonly Problem[],
  options: GenerateOptions,
): { groups: Promise<Sample[]>[]; seconds: OutsideSeconds } {
  const {
    engine,
    tokenizer,
    task,
    sampling,
    limits,
    agent,
    seed,
    batch,
    n,
    firstGroup = 0,
    signal,
    onSample,
    profile = false,
  } = options;
  const seconds: OutsideSeconds = { tools: 0, reward: 0 };
  const one = async (problem: Problem, p: number, s: number): Promise<Sample> => {
    const events: SampleEvent[] = [];
    const output = await runAgentLoop({
      ...(profile && { onEvent: (event: SampleEvent) => events.push(event) }),
      engine,
      tokenizer,
      tools: task.tools ?? [],
      problem,
      requestId: `${batch}.${firstGroup + p}.${s}`,
      key: randomKey(seed, batch, firstGroup + p, s),
      sampling,
      limits,
      ...agent,
      ...(signal && { signal }),
    });
    const { trajectory, messages, timing } = output;
    const started = performance.now();
    const reward = await score(task, problem, output);
    seconds.tools += timing.toolsMs / 1000;
    const end = performance.now();
    seconds.reward += (end - started) / 1000;
    if (profile) events.push({ kind: 'reward', turn: trajectory.numTurns, start: started, end });
    const sample = { problem, group: firstGroup + p, trajectory, messages, reward, events };
    onSample?.(sample);
    return sample;
  };
  const groups = problems.map((problem, p) => Promise.all(Array.from({ length: n }, (_, s) => one(problem, p, s))));
  return { groups, seconds };
}

async function score(
  task: Task,
  problem: Problem,
  { messages, trajectory, toolRewards }: AgentLoopOutput,
): Promise<Reward> {
  const reward = await task.reward({
    problem,
    messages,
    toolRewards,
    response: messages.findLast((m) => m.role === 'assistant')?.content ?? '',
    stopReason: trajectory.stopReason,
    numTurns: trajectory.numTurns,
    numToolCalls: trajectory.numToolCalls,
    numToolErrors: trajectory.numToolErrors,
    responseTokens: trajectory.responseIds.length,
  });
  const { score: value } = reward;
  if (Number.isFinite(value) || Number.isNaN(value)) return reward;
  throw new Error(
    `The reward of problem "${problem.id}" is ${value}; give a finite number, or NaN where there is none for this sample.`,
  );
}

/** Two 32-bit words that no other (seed, batch, problem, sample) gets, in practice: two rounds of a 128-bit mix. */
export function randomKey(seed: number, batch: number, problem: number, sample: number): [number, number] {
  let h = [seed >>> 0, batch >>> 0, problem >>> 0, sample >>> 0];
  for (let round = 0; round < 3; round++)
    h = h.map((x, i) => {
      const mixed = Math.imul(x ^ (h[(i + 1) % 4] >>> 15) ^ Math.imul(h[(i + 3) % 4], 0x9e3779b1), 0x85ebca6b);
      return (mixed ^ (mixed >>> 13)) + i * 0x27d4eb2f;
    });
  return [(h[0] ^ h[2]) >>> 0, (h[1] ^ h[3]) >>> 0];
}

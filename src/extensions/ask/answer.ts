/**
 * Answers one problem as training would sample it, and reports tokens, tool calls and tool outputs while they are
 * generated.
 */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { type AgentLoopOutput, runAgentLoop } from '../../rollout/agent/loop.ts';
import type { AgentLoopInput } from '../../rollout/agent/types.ts';
import type { TurnEngine } from '../../rollout/types.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { generateOptions, GREEDY } from '../../grpo/generate/options.ts';

/** Options of `answer`. */
export interface AnswerOptions extends Pick<AgentLoopInput, 'signal' | 'onTokens' | 'onMessage'> {
  /** Sampling, turns and limits. */
  config: TrainConfig;
  /** Task of the problem. Its tools run; its reward is not called. */
  task: Task;
  /** Tokenizer of the model that answers. */
  tokenizer: ChatTokenizer;
  /**
   * Engine that generates the answer. A trainer can use the same engine at the same time and gets the same tokens as
   * without the answer. But the answer takes a slot, `takeStats` counts it, and it must end before the weights change.
   */
  rollout: TurnEngine;
  /** A problem of the task, or the result of `questionOf`. */
  problem: Problem;
  /** Random key; the same key, weights and problem give the same answer. */
  key: [number, number];
  /** True to always take the most likely token. Default: false, so the answer is sampled as in training. */
  greedy?: boolean;
  /** Maximum number of tokens of prompt and answer, if the engine has space for more than the config sets. */
  contextLength?: number;
}

let asked = 0;

/** Answers one problem. Throws InputError if its prompt leaves fewer tokens than the longest answer needs. */
export function answer(options: AnswerOptions): Promise<AgentLoopOutput> {
  const { config, task, tokenizer, rollout, problem, key, greedy = false, contextLength } = options;
  const { signal, onTokens, onMessage } = options;
  const { sampling, agent, limits } = generateOptions({ config, engine: { rollout, tokenizer }, task }, 0, 1);
  const length = contextLength ?? limits.contextLength;
  return runAgentLoop({
    engine: rollout,
    tokenizer,
    ...partsOf(task, problem),
    problem,
    requestId: `answer.${asked++}`,
    key,
    sampling: greedy ? { ...sampling, ...GREEDY } : sampling,
    limits: {
      ...limits,
      contextLength: length,
      maxPromptLength: length - limits.maxResponseLength,
      truncation: 'error',
    },
    ...agent,
    ...(signal && { signal }),
    ...(onTokens && { onTokens }),
    ...(onMessage && { onMessage }),
  });
}

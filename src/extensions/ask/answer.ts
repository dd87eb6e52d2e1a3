/** Generates the answer to one problem as a training sample is generated. Reports tokens, tool calls and tool outputs as they arrive. */

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
  /** Config that sets sampling, the maximum number of turns, and the maximum numbers of tokens. */
  config: TrainConfig;
  /** Task of the problem. Its tools are executed; its reward is not computed. */
  task: Task;
  /** Tokenizer of the model that answers. */
  tokenizer: ChatTokenizer;
  /**
   * Engine that generates the answer. A trainer can use it at the same time, and its samples have the same tokens as without the answer.
   * But the answer takes one slot, is counted by `takeStats`, and must end before the weights are updated.
   */
  rollout: TurnEngine;
  /** A problem of the task, or a user's question converted by `questionOf`. */
  problem: Problem;
  /** Key of the random numbers. The same key, weights and problem give the same answer. */
  key: readonly [number, number];
  /** True to take the most likely token at each position. Default: false, so tokens are sampled as in training. */
  greedy?: boolean;
  /** Maximum number of tokens of prompt and answer together. Default: that of the config. Set it if the engine's slots are longer. */
  contextLength?: number;
}

let asked = 0;

/** Generates the answer to one problem. Throws InputError if the prompt is so long that an answer of the maximum length would not fit. */
export function answer(options: AnswerOptions): Promise<AgentLoopOutput> {
  const { config, task, tokenizer, rollout, problem, key, greedy = false, contextLength } = options;
  const { signal, onTokens, onMessage } = options;
  const generation = { config, engine: { rollout, tokenizer }, task };
  const { sampling, agent, limits, writesSchemas } = generateOptions(generation, 0, 1);
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
    toolSchemasInPrompt: writesSchemas?.(problem) ?? false,
    ...(signal && { signal }),
    ...(onTokens && { onTokens }),
    ...(onMessage && { onMessage }),
  });
}

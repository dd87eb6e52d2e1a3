/** One answer to one problem, as training would sample it, heard while it is drawn: tokens, tool calls, outputs of tools. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { type AgentLoopOutput, runAgentLoop } from '../../rollout/agent/loop.ts';
import type { AgentLoopInput } from '../../rollout/agent/types.ts';
import type { TurnEngine } from '../../rollout/types.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';
import { generateOptions, GREEDY } from '../generate/options.ts';

/** What an answer is made from. */
export interface AnswerOptions extends Pick<AgentLoopInput, 'signal' | 'onTokens' | 'onMessage'> {
  /** Sampling, turns and limits. */
  config: TrainConfig;
  /** Its tools run, its reward does not. */
  task: Task;
  /** Tokenizer of the model that answers. */
  tokenizer: ChatTokenizer;
  /**
   * Draws the answer. One that a trainer uses at the same time gives the trainer the same tokens as without the answer, but the
   * answer takes a slot, is part of what `takeStats` counts, and must be over before the weights change.
   */
  rollout: TurnEngine;
  /** Problem of the task, or from `questionOf`. */
  problem: Problem;
  /** Random key; the same key, weights and problem give the same answer. */
  key: [number, number];
  /** The likeliest token, always. Default false: as training samples. */
  greedy?: boolean;
  /** Tokens of prompt and answer, where the engine has room for more than the config asks for. */
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

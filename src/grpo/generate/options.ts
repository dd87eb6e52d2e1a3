/** Derives the options of a generation (sampling, limits, tools, random keys) from a config. */

import type { UserCodeError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { writesSchemas } from '../../rollout/agent/prompt.ts';
import type { SampleRecord } from '../../rollout/agent/record.ts';
import type { AgentLimits, AgentLoopInput } from '../../rollout/agent/types.ts';
import { type ToolParser, toolParserOf } from '../../rollout/tools/parser.ts';
import type { TurnEngine, SamplingParams } from '../../rollout/types.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';
import type { TrainerEngine } from '../types.ts';
import type { Sample } from '../update/batch.ts';

/** Config, engine and task with which samples are generated. */
export interface GenerationContext {
  config: TrainConfig;
  engine: Pick<TrainerEngine, 'rollout' | 'tokenizer' | 'checkpointEngine'>;
  task: Task;
  /** Parser of tool calls, instead of the one that rollout.multiTurn.format names. */
  toolParser?: ToolParser | undefined;
  /** Called for every sample that is skipped because trainer.onError is skip. */
  onFault?: (fault: UserCodeError) => void;
}

export interface GenerateOptions {
  engine: TurnEngine;
  tokenizer: ChatTokenizer;
  task: Task;
  sampling: SamplingParams;
  limits: AgentLimits;
  agent?: Pick<AgentLoopInput, 'agentLoop' | 'toolParser' | 'constrainToolCalls'>;
  /** Returns true if a problem's prompt contains the schemas of its tools. Default: no prompt does. */
  writesSchemas?: (problem: Problem) => boolean;
  /** Seed of the run; together with `batch` it is part of every random key. */
  seed: number;
  batch: number;
  /** Samples per problem. */
  n: number;
  /** Same as ScoredSample.globalStep. */
  globalStep?: number;
  /**
   * True to generate one more answer per problem, the greedy one, after its samples; they share its prompt. `onSample`
   * is not called for the greedy answer.
   */
  greedy?: boolean;
  /** Group number of the first problem. */
  firstGroup?: number;
  /** Sample number of each problem's first sample. */
  firstSample?: number;
  signal?: AbortSignal | undefined;
  /**
   * Called when the engine has the first request of every sample. If the engine is paused until then, it starts all of
   * them together.
   */
  onQueued?: (() => Promise<void>) | undefined;
  /** Records of the problem's samples, which checkpoints store and a resumed run continues; see SampleRecord. */
  records?: readonly SampleRecord[];
  /** True to record the times of generation, tool calls and reward of each sample. */
  profile?: boolean;
  onSample?: (sample: Sample) => void;
  /** Time limit of the reward function. Default: no limit. */
  rewardTimeoutMs?: number;
  /** Same as trainer.onError: the action if a sample fails. Default: 'stop'. */
  onError?: 'stop' | 'skip';
  onFault?: GenerationContext['onFault'];
}

/** Sampling parameters for greedy decoding: always the most likely token. */
export const GREEDY = { temperature: 0, topK: 0, topP: 1, minP: 0 };

/**
 * Returns the options of a batch with `n` samples per problem. `batch` makes its random keys different from those of
 * all other batches of the run.
 */
export function generateOptions(
  {
    config,
    engine,
    task,
    toolParser,
    onFault,
  }: Omit<GenerationContext, 'engine'> & {
    engine: { rollout: TurnEngine; tokenizer: ChatTokenizer };
  },
  batch: number,
  n: number,
): GenerateOptions {
  const { rollout, seed, trainer, reward } = config;
  const { enable, constrainToolCalls, format } = rollout.multiTurn;
  return {
    engine: engine.rollout,
    tokenizer: engine.tokenizer,
    task,
    sampling: samplingParams(config, engine.tokenizer.eosTokenIds),
    limits: agentLimits(config),
    agent: {
      agentLoop: rollout.agent.defaultAgentLoop,
      toolParser: toolParser ?? toolParserOf(format),
      ...(enable && constrainToolCalls && { constrainToolCalls }),
    },
    writesSchemas: (problem) => writesSchemas(rollout, engine.tokenizer, problem),
    seed,
    batch,
    n,
    profile: trainer.profile,
    // With reward models there is no limit on the reward as a whole: modelRewards.ts limits the task's own reward function.
    rewardTimeoutMs: hasRewardModels(reward) ? Infinity : reward.timeoutS * 1000,
    onError: trainer.onError,
    onFault,
  };
}

/** True if models score samples in addition to the task's own reward function. */
export const hasRewardModels = ({ judge, model, rubric }: TrainConfig['reward']): boolean =>
  judge.weight !== 0 || model.path !== undefined || rubric !== undefined;

/** Returns the sampling parameters of training. The tokens in `stopTokenIds` end a turn. */
export function samplingParams(
  { data, rollout }: TrainConfig,
  stopTokenIds: SamplingParams['stopTokenIds'],
): SamplingParams {
  const { temperature, topK, topP, minP, stop, includeStopStrInOutput } = rollout;
  const { repetitionPenalty, presencePenalty, frequencyPenalty, minNewTokens } = rollout;
  return {
    temperature,
    topK,
    topP,
    minP,
    repetitionPenalty,
    presencePenalty,
    frequencyPenalty,
    minNewTokens,
    maxNewTokens: data.maxResponseLength,
    stopTokenIds,
    ...(stop && { stop, includeStopStrInOutput }),
  };
}

/** Returns the limits of a sample: turns, tool calls, seconds, tokens. */
export function agentLimits({ data, rollout }: TrainConfig): AgentLimits {
  const { enable, maxAssistantTurns, maxToolCalls, maxToolResponseLength, toolTimeoutS } = rollout.multiTurn;
  const { sampleTimeoutS, toolResponseTruncateSide, onParseError, onToolFailure } = rollout.multiTurn;
  return {
    maxAssistantTurns: enable ? maxAssistantTurns : 1,
    maxToolCalls: enable ? maxToolCalls : 0,
    maxToolResponseLength,
    toolTimeoutMs: toolTimeoutS * 1000,
    loopTimeoutMs: rollout.agent.timeoutS * 1000,
    ...(sampleTimeoutS !== undefined && { sampleTimeoutMs: sampleTimeoutS * 1000 }),
    toolResponseTruncateSide,
    onParseError,
    onToolFailure,
    contextLength: data.maxPromptLength + data.maxResponseLength,
    maxPromptLength: data.maxPromptLength,
    truncation: data.truncation,
    maxResponseLength: data.maxResponseLength,
  };
}

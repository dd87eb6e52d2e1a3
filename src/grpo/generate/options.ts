/** From a config to what one generation asks of its samples: sampling, limits, tools, random keys. */

import type { UserCodeError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import type { SampleRecord } from '../../rollout/agent/record.ts';
import type { AgentLimits, AgentLoopInput } from '../../rollout/agent/types.ts';
import { type ToolParser, toolParserOf } from '../../rollout/tools/parser.ts';
import type { TurnEngine, SamplingParams } from '../../rollout/types.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';
import type { TrainerEngine } from '../types.ts';
import type { Sample } from '../update/batch.ts';

/** Config, engine and task of a generation. */
export interface GenerationContext {
  config: TrainConfig;
  engine: Pick<TrainerEngine, 'rollout' | 'tokenizer' | 'checkpointEngine'>;
  task: Task;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser | undefined;
  /** Hears of every sample that trainer.onError: skip leaves out. */
  onFault?: (fault: UserCodeError) => void;
}

export interface GenerateOptions {
  engine: TurnEngine;
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
  /** Same as ScoredSample.globalStep. */
  globalStep?: number;
  /** One more answer a problem, the greedy one, after its samples: it shares the prompt with them. `onSample` is not told of it. */
  greedy?: boolean;
  /** Number of the first problem's group. */
  firstGroup?: number;
  /** Number of each problem's first sample. */
  firstSample?: number;
  signal?: AbortSignal | undefined;
  /** Called once the engine has the first request of every sample: an engine that is paused until then takes them together. */
  onQueued?: (() => Promise<void>) | undefined;
  /** Records of the problem's samples, for a checkpoint; see SampleRecord. */
  records?: readonly SampleRecord[];
  /** Record what each sample spends its time on. */
  profile?: boolean;
  onSample?: (sample: Sample) => void;
  /** Time limit of the reward function. Default: no limit. */
  rewardTimeoutMs?: number;
  /** Same as trainer.onError. Default: 'stop'. */
  onError?: 'stop' | 'skip';
  onFault?: GenerationContext['onFault'];
}

/** The likeliest token, always. */
export const GREEDY = { temperature: 0, topK: 0, topP: 1, minP: 0 };

/** Options of a batch of `n` samples a problem; `batch` tells its random keys from those of all others of the run. */
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
  const { enable, toolSchemasInPrompt, constrainToolCalls, format } = rollout.multiTurn;
  return {
    engine: engine.rollout,
    tokenizer: engine.tokenizer,
    task,
    sampling: samplingParams(config, engine.tokenizer.eosTokenIds),
    limits: agentLimits(config),
    agent: {
      agentLoop: rollout.agent.defaultAgentLoop,
      toolParser: toolParser ?? toolParserOf(format),
      toolSchemasInPrompt,
      ...(enable && constrainToolCalls && { constrainToolCalls }),
    },
    seed,
    batch,
    n,
    profile: trainer.profile,
    // Models that score beside the rule take as long as they take; modelRewards.ts limits the rule alone.
    rewardTimeoutMs: hasRewardModels(reward) ? Infinity : reward.timeoutS * 1000,
    onError: trainer.onError,
    onFault,
  };
}

/** True if models score samples beside the task's own rule. */
export const hasRewardModels = ({ judge, model, rubric }: TrainConfig['reward']): boolean =>
  judge.weight !== 0 || model.path !== undefined || rubric !== undefined;

/** How training samples; `stopTokenIds` end a turn. */
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

/** Limits of a sample: turns, tool calls, seconds, tokens. */
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

/** The library: exports for a page or a Node program. The command line and the page import its modules directly. */

import './engineParts.ts';
import './trainerParts.ts';

export {
  ConfigError,
  DeviceLostError,
  GpuError,
  NoAdapterError,
  NotFiniteError,
  OutOfMemoryError,
  UserCodeError,
} from './errors.ts';
export { type Adapter, loadAdapter, mergeAdapter, saveAdapter } from './model/lora/adapter.ts';
export { type ModelConfig, modelConfigToJson, parseModelConfig } from './model/config.ts';
export {
  type CheckpointWithTokenizer,
  type ModelCheckpoint,
  loadCheckpoint,
  saveCheckpoint,
} from './model/checkpoint/checkpoint.ts';
export { fetchCheckpoint } from './model/checkpoint/fetch.ts';
export type {
  ModelEngine,
  OptimizerOptions,
  OptimizerStepResult,
  PackedBatch,
  PolicyLossInputs,
  PolicyLossSpec,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from './model/engine.ts';
export { packGroups, packIds, type MicroBatch, type SequenceGroup } from './model/packing.ts';
export { optimizerOf, type OptimizerSpec } from './model/optimizer/spec.ts';
export { InputError } from './errors.ts';
export { LORA_MODULES, type LoraConfig } from './model/lora/config.ts';
export { initWeights, parameterCount } from './model/params.ts';
export { ChatTokenizer } from './model/tokenizer/chat.ts';
export type { Message, Problem, Reward, ScoredSample, SyncTask, Task } from './tasks/task.ts';
export {
  defineTool,
  type SampleContext,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type ToolSchema,
  type TruncateSide,
} from './tasks/tool.ts';
export { combineRewards, type RewardFunction, type RewardValue } from './tasks/rewards/combine.ts';
export { gsm8kToolTask } from './tasks/gsm8k/task.ts';
export { calculator } from './tasks/tools/calculator.ts';
export { type AgentLoop, registerAgentLoop } from './rollout/agent/loop.ts';
export type { AgentSample } from './rollout/agent/sample.ts';
export type { AgentLimits, AgentLoopInput, Turn } from './rollout/agent/types.ts';
export type { SampleEvent } from './rollout/agent/events.ts';
export type { TurnSampling } from './rollout/agent/turnSampling.ts';
export { TOOL_PARSERS, type ToolCall, type ToolParser } from './rollout/tools/parser.ts';
export type {
  DrawnSoFar,
  GenerateRequest,
  Generation,
  RolloutEngine,
  TurnEngine,
  RolloutStats,
  SamplingParams,
  StopReason,
  Trajectory,
} from './rollout/types.ts';
export {
  type AdvantageInputs,
  type AdvantageOptions,
  computeAdvantages,
  type CustomAdvantage,
} from './grpo/advantages/index.ts';
export { answer, type AnswerOptions, questionOf, questionTokens } from './extensions/ask/index.ts';
export { registerAdvantage, registerPolicyLoss, registerRecipe } from './extensions/modules/register.ts';
export { resolveTrainConfig } from './grpo/config/resolve.ts';
export type { TrainConfigInput } from './grpo/config/input.ts';
export { resolveSftConfig } from './extensions/sft/resolve.ts';
export type { SftConfigInput } from './extensions/sft/input.ts';
export type { Recipe, TrainConfig } from './grpo/config/types.ts';
export type { AsyncCustomLoss, CustomLoss, CustomLossResult, CustomLossRows } from './grpo/losses/types.ts';
export { lossWeights, type LossWeights, type WeightOptions } from './grpo/losses/aggregate.ts';
export {
  defineLoss,
  type LossRows,
  POLICY_LOSSES,
  type PolicyLoss,
  policyLossOf,
  type TokenLoss,
  type TokenRow,
} from './grpo/losses/index.ts';
export type { Fault } from './grpo/health.ts';
export type { Metrics } from './grpo/metrics.ts';
export { RECIPES } from './grpo/config/recipes.ts';
export { freshModelConfig, type SftExample, type SftOptions, trainSupervised } from './extensions/sft/sft.ts';
export type { SftConfig } from './extensions/sft/schema.ts';
export type { Sample } from './grpo/update/batch.ts';
export { LIVE_SETTINGS, type LiveSettings, type Rules } from './grpo/live.ts';
export { GrpoTrainer } from './grpo/trainer.ts';
export type { GrpoTrainerOptions } from './grpo/trainerOptions.ts';
export type {
  Checkpoint,
  FitResult,
  LiveChange,
  Phase,
  TrainerEngine,
  TrainerEvents,
  TrainerState,
} from './grpo/types.ts';
export type { UpdatedTokens } from './grpo/update/tokenNumbers.ts';
export { pairedDifference, passInterval, type PassInterval, permutationTest } from './report/passInterval.ts';
export { checkPolicyLoss, type LossCheck, type LossCheckOptions } from './extensions/verify/checkPolicyLoss.ts';
export { sftExample } from './extensions/sft/conversationTokens.ts';
export { tokenizerOf, type TokenizerFiles } from './extensions/sft/tokenizer.ts';
export type { EngineDescription, OpenedModel } from './workers/engineApi.ts';
export { createLocalEngine, engineSizes, type EngineSpec, type LocalEngine } from './workers/localEngine.ts';
export { splitEngine, splitSpecs } from './workers/splitEngine.ts';
export {
  createRemoteEngine,
  openRemoteModel,
  type RemoteEngine,
  type RemoteEngineSpec,
  WorkerDiedError,
} from './workers/remoteEngine.ts';

/** The library: what a page or a Node program imports. The command line and the demo use nothing else but files. */

export { DeviceLostError, GpuError, NoAdapterError, OutOfMemoryError } from './errors.ts';
export { type Adapter, loadAdapter, mergeAdapter, saveAdapter } from './model/lora/adapter.ts';
export { type ModelConfig, modelConfigToJson, parseModelConfig } from './model/config.ts';
export {
  type CheckpointWithTokenizer,
  type ModelCheckpoint,
  loadCheckpoint,
  saveCheckpoint,
} from './model/checkpoint/checkpoint.ts';
export { fetchCheckpoint } from './model/checkpoint/fetch.ts';
export type { ModelEngine, PackedBatch, PolicyLossSpec, TensorMap, TrainLoss } from './model/engine.ts';
export { InputError } from './errors.ts';
export { LORA_MODULES, type LoraConfig } from './model/lora/config.ts';
export { initWeights, parameterCount } from './model/params.ts';
export { ChatTokenizer } from './model/tokenizer/chat.ts';
export type { Message, Problem, Reward, ScoredSample, Task } from './tasks/task.ts';
export { defineTool, type Tool, type ToolContext, type ToolOutput, type ToolSchema } from './tasks/tool.ts';
export { gsm8kToolTask } from './tasks/gsm8k/task.ts';
export { calculator } from './tasks/tools/calculator.ts';
export { type AgentLoop, registerAgentLoop } from './rollout/agent/loop.ts';
export type { AgentSample } from './rollout/agent/sample.ts';
export type { Turn } from './rollout/agent/types.ts';
export { TOOL_PARSERS, type ToolParser } from './rollout/tools/parser.ts';
export type { RolloutEngine, SamplingParams, StopReason, Trajectory } from './rollout/types.ts';
export { computeAdvantages } from './grpo/advantages/index.ts';
export { resolveSftConfig, resolveTrainConfig } from './grpo/config/resolve.ts';
export type { TrainConfig } from './grpo/config/types.ts';
export { defineLoss, POLICY_LOSSES, type PolicyLoss } from './grpo/losses/index.ts';
export type { Metrics } from './grpo/metrics.ts';
export { RECIPES } from './grpo/config/recipes.ts';
export { type SftExample, trainSupervised } from './grpo/sft.ts';
export type { SftConfig } from './grpo/config/sftSchema.ts';
export type { Sample } from './grpo/update/batch.ts';
export { GrpoTrainer, type GrpoTrainerOptions } from './grpo/trainer.ts';
export type { Checkpoint, FitResult, Phase, TrainerEngine, TrainerEvents } from './grpo/types.ts';
export type { CustomLoss, CustomLossRows } from './grpo/update/updater.ts';
export { createLocalEngine, engineSizes, type EngineSpec, type LocalEngine } from './workers/localEngine.ts';
export { createRemoteEngine, openRemoteModel, type RemoteEngine, WorkerDiedError } from './workers/remoteEngine.ts';

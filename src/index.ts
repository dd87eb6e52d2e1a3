/** The library: what a page or a Node program imports. The command line and the demo use nothing else but files. */

export { DeviceLostError, GpuError, NoAdapterError, OutOfMemoryError } from './gpu/errors.ts';
export { type Adapter, loadAdapter, mergeAdapter, saveAdapter } from './model/adapter.ts';
export { type ModelConfig, modelConfigToJson, parseModelConfig } from './model/config.ts';
export { type Checkpoint as ModelCheckpoint, loadCheckpoint, saveCheckpoint } from './model/checkpoint.ts';
export type { ModelEngine, PackedBatch, PolicyLossSpec, TensorMap, TrainLoss } from './model/engine.ts';
export { InputError } from './model/errors.ts';
export { LORA_MODULES, type LoraConfig } from './model/loraConfig.ts';
export { initWeights, parameterCount } from './model/params.ts';
export { ChatTokenizer } from './model/tokenizer.ts';
export type { Message, Problem, Reward, ScoredSample, Task } from './tasks/task.ts';
export { defineTool, type Tool, type ToolContext, type ToolOutput, type ToolSchema } from './tasks/tool.ts';
export { gsm8kToolTask } from './tasks/gsm8k.ts';
export { calculator } from './tasks/tools/calculator.ts';
export { type AgentLoop, registerAgentLoop } from './rollout/agentLoop.ts';
export type { AgentSample, Turn } from './rollout/agentSample.ts';
export { TOOL_PARSERS, type ToolParser } from './rollout/toolParser.ts';
export type { RolloutEngine, SamplingParams, StopReason, Trajectory } from './rollout/types.ts';
export { computeAdvantages } from './grpo/advantages.ts';
export { resolveSftConfig, resolveTrainConfig, type TrainConfig } from './grpo/config.ts';
export { POLICY_LOSSES } from './grpo/losses.ts';
export type { Metrics } from './grpo/metrics.ts';
export { RECIPES } from './grpo/recipes.ts';
export { type SftExample, trainSupervised } from './grpo/sft.ts';
export type { SftConfig } from './grpo/sftSchema.ts';
export type { Sample } from './grpo/stepBatch.ts';
export {
  type Checkpoint,
  type FitResult,
  GrpoTrainer,
  type GrpoTrainerOptions,
  type Phase,
  type TrainerEngine,
  type TrainerEvents,
} from './grpo/trainer.ts';
export type { CustomLoss, CustomLossRows } from './grpo/updater.ts';
export { createLocalEngine, engineSizes, type EngineSpec, type LocalEngine } from './workers/localEngine.ts';
export { createRemoteEngine, openRemoteModel, type RemoteEngine, WorkerDiedError } from './workers/remoteEngine.ts';

/**
 * The names that verl (0.9.0) and TRL (GRPOConfig of 1.10, TrainingArguments, PEFT's LoraConfig) have for our settings. One table:
 * `webgrpo export` writes by it, hints at unknown keys read it, docs/from-trl-verl.md is printed from it.
 */

import { isTree, leaves } from './tree.ts';

export interface PeerName {
  /** Ours. */
  key: string;
  /** The Hydra path in verl's ppo_trainer. */
  verl?: string;
  trl?: string;
  /** What one must know beside the name. */
  note?: string;
}

/** '=' is verl's path by the rule: ours in snake_case, behind `actor_rollout_ref.` for actor, rollout and model. */
const ROWS: readonly (readonly [key: string, verl: string, trl?: string, note?: string])[] = [
  ['name', 'trainer.experiment_name', 'run_name'],
  ['seed', 'data.seed', 'seed'],
  ['model.path', '=', 'model_name_or_path'],
  ['model.loraRank', '=', 'lora_r'],
  ['model.loraAlpha', '=', 'lora_alpha'],
  ['model.targetModules', '=', 'lora_target_modules'],
  ['model.loraDropout', 'actor_rollout_ref.model.lora.dropout', 'lora_dropout'],
  ['model.useRslora', '', 'use_rslora'],
  ['model.dtype', 'actor_rollout_ref.actor.fsdp_config.dtype', 'dtype'],
  ['model.loraAdapterPath', '='],
  ['model.enableGradientCheckpointing', '=', 'gradient_checkpointing'],
  ['task.path', 'data.train_files', 'dataset_name'],
  ['task.valPath', 'data.val_files'],
  ['task.tools', 'actor_rollout_ref.rollout.multi_turn.tool_config_path', 'tools'],
  ['data.trainBatchSize', '=', 'steps_per_generation', 'TRL: trainBatchSize / ppoMiniBatchSize'],
  ['data.maxPromptLength', '=', 'max_prompt_length', 'TRL had it earlier'],
  ['data.maxResponseLength', '=', 'max_completion_length', 'tool output counts, in verl too'],
  ['data.valMaxSamples', 'data.val_max_samples'],
  ['data.trainMaxSamples', '='],
  ['data.truncation', '='],
  ['data.filterOverlongPrompts', '='],
  ['data.chatTemplateKwargs', 'data.apply_chat_template_kwargs', 'chat_template_kwargs'],
  ['rollout.n', '=', 'num_generations'],
  ['rollout.temperature', '=', 'temperature'],
  ['rollout.topK', '=', 'top_k', 'off is 0 here and in TRL, -1 in verl (read here as well)'],
  ['rollout.topP', '=', 'top_p'],
  ['rollout.minP', '', 'min_p'],
  ['rollout.repetitionPenalty', '', 'repetition_penalty'],
  ['rollout.overSampleRate', '='],
  ['rollout.checkpointEngine.updateWeightsBucketMegabytes', '=', '', 'MiB of 2 ** 20 bytes; at most 32 here'],
  ['rollout.maxNumSeqs', 'actor_rollout_ref.rollout.max_num_seqs'],
  ['rollout.multiTurn.enable', '='],
  ['rollout.multiTurn.maxAssistantTurns', '=', 'max_tool_calling_iterations', "TRL's is one less: turns after a tool"],
  [
    'rollout.multiTurn.maxToolCalls',
    'actor_rollout_ref.rollout.multi_turn.max_parallel_calls',
    '',
    "verl's bounds a turn, ours the sample",
  ],
  ['rollout.multiTurn.maxToolResponseLength', '='],
  ['rollout.multiTurn.toolResponseTruncateSide', '='],
  ['rollout.multiTurn.format', '='],
  ['rollout.agent.defaultAgentLoop', '='],
  ['rollout.valKwargs.n', '=', 'num_generations_eval'],
  ['rollout.valKwargs.temperature', '='],
  ['rollout.valKwargs.topK', '='],
  ['rollout.valKwargs.topP', '='],
  ['actor.ppoMiniBatchSize', '=', 'per_device_train_batch_size', 'prompts; TRL counts samples: x rollout.n'],
  ['actor.ppoEpochs', '=', 'num_iterations'],
  ['actor.ppoMicroBatchSizePerGpu', 'actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu'],
  [
    'actor.ppoMaxTokenLenPerGpu',
    'actor_rollout_ref.actor.ppo_max_token_len_per_gpu',
    'gradient_accumulation_steps',
    'micro-batches are cut by tokens',
  ],
  [
    'actor.policyLoss.lossMode',
    'actor_rollout_ref.actor.policy_loss.loss_mode',
    'loss_type',
    "TRL's loss_type is loss and aggregation; algorithm.name sets both",
  ],
  ['actor.lossAggMode', '='],
  ['actor.clipRatio', '='],
  ['actor.clipRatioLow', '=', 'epsilon'],
  ['actor.clipRatioHigh', '=', 'epsilon_high', 'cispo: the weight itself in TRL, 1 + this in verl and here; see wMax'],
  ['actor.clipRatioC', '=', 'delta', 'dual clip'],
  ['actor.policyLoss.tauPos', 'actor_rollout_ref.actor.tau_pos', 'sapo_temperature_pos'],
  ['actor.policyLoss.tauNeg', 'actor_rollout_ref.actor.tau_neg', 'sapo_temperature_neg'],
  ['actor.policyLoss.clipCovRatio', '='],
  ['actor.policyLoss.clipCovLb', '='],
  ['actor.policyLoss.clipCovUb', '='],
  ['actor.policyLoss.klCovRatio', '='],
  ['actor.policyLoss.ppoKlCoef', '='],
  ['actor.policyLoss.droBeta', '='],
  ['actor.policyLoss.vespoKPos', '', 'vespo_k_pos'],
  ['actor.policyLoss.vespoKNeg', '', 'vespo_k_neg'],
  ['actor.policyLoss.vespoLambdaPos', '', 'vespo_lambda_pos'],
  ['actor.policyLoss.vespoLambdaNeg', '', 'vespo_lambda_neg'],
  ['actor.entropyCoeff', '=', 'entropy_coef'],
  ['actor.entropyTarget', '', 'entropy_target'],
  ['actor.entropyCoeffDelta', '', 'entropy_coef_delta'],
  ['actor.entropyCoeffMin', '', 'entropy_coef_min'],
  ['actor.entropyCoeffMax', '', 'entropy_coef_max'],
  ['actor.topEntropyQuantile', '', 'top_entropy_quantile'],
  ['actor.useKlLoss', '='],
  ['actor.klLossCoef', '=', 'beta'],
  ['actor.klLossType', '=', 'use_bias_correction_kl', 'TRL: k3, or r*k3 by this switch'],
  ['actor.gradClip', '=', 'max_grad_norm'],
  ['actor.shuffle', '='],
  ['actor.optim.optimizer', '=', 'optim'],
  ['actor.optim.lr', '=', 'learning_rate'],
  ['actor.optim.betas', '=', 'adam_beta1', 'TRL: adam_beta1, adam_beta2'],
  ['actor.optim.eps', '', 'adam_epsilon'],
  ['actor.optim.weightDecay', '=', 'weight_decay'],
  ['actor.optim.lrSchedulerType', 'actor_rollout_ref.actor.optim.lr_scheduler_type', 'lr_scheduler_type'],
  ['actor.optim.lrWarmupSteps', '=', 'warmup_steps'],
  ['actor.optim.lrWarmupStepsRatio', '=', 'warmup_ratio'],
  ['actor.optim.minLrRatio', '='],
  ['actor.optim.numCycles', '='],
  ['algorithm.advEstimator', '=', 'multi_objective_aggregation', 'TRL: grpo, or gdpo by normalize_then_sum'],
  ['algorithm.normAdvByStdInGrpo', '='],
  ['algorithm.scaleRewards', '', 'scale_rewards', 'group or none: normAdvByStdInGrpo of verl'],
  ['algorithm.gdpoRewardKeys', '='],
  ['algorithm.gdpoRewardWeights', '=', 'reward_weights'],
  ['algorithm.gamma', '='],
  ['algorithm.maskTruncated', '', 'mask_truncated_completions'],
  ['algorithm.filterGroups.enable', '='],
  ['algorithm.filterGroups.metric', '='],
  ['algorithm.filterGroups.maxNumGenBatches', '='],
  ['reward.overlongBuffer.len', 'reward.reward_kwargs.overlong_buffer_cfg.len'],
  ['reward.overlongBuffer.penaltyFactor', 'reward.reward_kwargs.overlong_buffer_cfg.penalty_factor'],
  ['algorithm.useKlInReward', '='],
  ['algorithm.klPenalty', '='],
  ['algorithm.klCtrl.type', '='],
  ['algorithm.klCtrl.klCoef', '='],
  ['algorithm.klCtrl.horizon', '='],
  ['algorithm.klCtrl.targetKl', '='],
  ['algorithm.rolloutCorrection.rolloutIs', '=', 'vllm_importance_sampling_mode'],
  ['algorithm.rolloutCorrection.rolloutIsThreshold', '=', 'vllm_importance_sampling_clip_max'],
  ['algorithm.rolloutCorrection.rolloutIsBatchNormalize', '='],
  ['algorithm.rolloutCorrection.rolloutRs', '='],
  ['algorithm.rolloutCorrection.rolloutRsThreshold', '='],
  ['algorithm.rolloutCorrection.bypassMode', '='],
  ['algorithm.rolloutCorrection.offPolicyMaskThreshold', '', 'off_policy_mask_threshold'],
  ['trainer.totalTrainingSteps', '=', 'max_steps', "TRL's step is an update, ours and verl's a batch of rollouts"],
  ['trainer.totalEpochs', '=', 'num_train_epochs'],
  ['trainer.testFreq', '=', 'eval_steps', 'off is 0; -1 is read as well'],
  ['trainer.saveFreq', '=', 'save_steps', 'off is 0; -1 is read as well'],
  ['trainer.valBeforeTrain', '=', 'eval_on_start'],
  ['asyncTraining.stalenessThreshold', '=', '', 'of verl.experimental.fully_async_policy, as the next three'],
  ['asyncTraining.triggerParameterSyncStep', '='],
  ['asyncTraining.requireBatches', '='],
  ['asyncTraining.partialRollout', '='],
  ['trainer.defaultLocalDir', 'trainer.default_local_dir', 'output_dir'],
  ['trainer.logger', '=', 'report_to'],
  ['trainer.logValGenerations', '='],
  ['trainer.resumeMode', '=', 'resume_from_checkpoint'],
  ['trainer.maxActorCkptToKeep', '=', 'save_total_limit'],
  ['trainer.metricForBestModel', '', 'metric_for_best_model'],
  ['trainer.greaterIsBetter', '', 'greater_is_better'],
  ['trainer.resumeFromPath', '='],
  ['trainer.refUpdateFreq', '', 'ref_model_sync_steps'],
  ['trainer.refMixupAlpha', '', 'ref_model_mixup_alpha'],
];

const snake = (key: string) => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (key: string) => key.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** verl's path of a key whose name is verl's. */
const verlPath = (key: string) =>
  /^(actor|rollout|model)\./.test(key) ? `actor_rollout_ref.${snake(key)}` : snake(key);

export const PEER_NAMES: readonly PeerName[] = ROWS.map(([key, verl, trl, note]) => ({
  key,
  ...(verl && { verl: verl === '=' ? verlPath(key) : verl }),
  ...(trl && { trl }),
  ...(note && { note }),
}));

/** Names without a row above: each is a part of one of our keys. Key '': there is no such setting here, for this reason. */
export const OTHER_NAMES: readonly (readonly [peer: string, name: string, key: string, why?: string])[] = [
  ['TRL', 'adam_beta2', 'actor.optim.betas'],
  ['TRL', 'importance_sampling_level', 'actor.policyLoss.lossMode'],
  ['TRL', 'bf16', 'model.dtype'],
  ['TRL', 'fp16', 'model.dtype'],
  ['TRL', 'eval_strategy', 'trainer.testFreq'],
  ['TRL', 'save_strategy', 'trainer.saveFreq'],
  ['vLLM', 'max_tokens', 'data.maxResponseLength'],
  ['Tinker', 'group_size', 'rollout.n'],
  ['TRL', 'use_vllm', '', 'the trainer samples itself'],
  ['TRL', 'vllm_mode', '', 'the trainer samples itself'],
  ['verl', 'n_gpus_per_node', '', 'a run has one device, or two by trainer.placement'],
  ['verl', 'nnodes', '', 'a run has one device, or two by trainer.placement'],
  ['verl', 'tensor_model_parallel_size', '', 'a run has one device, or two by trainer.placement'],
];

/**
 * Our key of a name of TRL, vLLM or Tinker or of an override path of verl, in whatever case and with or without its first part;
 * with the trainer that has the name, and the reason if there is no such key here. undefined if none has it.
 */
export function ofPeer(
  path: string,
  known: ReadonlySet<string>,
): { key: string; peer: string; why?: string } | undefined {
  const plain = (name: string) => camel(name).replace(/^actorRolloutRef\./, '');
  for (const peer of ['verl', 'TRL'] as const) {
    const row = PEER_NAMES.find(({ key, verl, trl }) => {
      const name = peer === 'verl' ? verl : trl;
      return name !== undefined && plain(name) === plain(path) && known.has(key);
    });
    if (row) return { key: row.key, peer };
  }
  const last = plain(path).split('.').at(-1);
  const other = OTHER_NAMES.find(([, name, key]) => camel(name) === last && (key === '' || known.has(key)));
  return other && { peer: other[0], key: other[2], ...(other[3] && { why: other[3] }) };
}

/** The first key inside an unknown part that was written, `actor_rollout_ref.actor.lr` for `actor_rollout_ref`. */
export const firstKeyOf = (path: string, value: unknown): string =>
  isTree(value) ? (leaves(value, `${path}.`)[0]?.[0] ?? path) : path;

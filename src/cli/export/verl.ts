/**
 * Our config as Hydra overrides of verl's `ppo_trainer` (names checked against its generated config by
 * test/unit/export.test.ts, against a checkout of it by exportPeers.test.ts), and the list of what has no name there.
 */

import type { TrainConfig } from '../../grpo/config/types.ts';
import { correctionSettings } from '../../grpo/correction/settings.ts';
import { optimizerOf } from '../../model/optimizer/spec.ts';

export type OverrideValue = string | number | boolean | null | readonly (string | number)[];

interface VerlRun {
  overrides: [key: string, value: OverrideValue][];
  /** Sentences: settings of ours that verl's trainer does not have. */
  notCarried: string[];
}

const VERL_LOSSES = ['vanilla', 'gspo', 'sapo', 'gpg', 'clip_cov', 'kl_cov', 'geo_mean', 'cispo'];
const VERL_AGGREGATIONS = ['token-mean', 'seq-mean-token-sum', 'seq-mean-token-mean', 'seq-mean-token-sum-norm'];
const VERL_ESTIMATORS = [
  'grpo',
  'rloo',
  'opo',
  'reinforce_plus_plus',
  'reinforce_plus_plus_baseline',
  'remax',
  'grpo_passk',
  'gpg',
];

/** Files lie beside each other: `folder` is where verl finds them. */
export function verlRun(config: TrainConfig, folder: string): VerlRun {
  const overrides = [
    ...dataOverrides(config, folder),
    ...actorOverrides(config),
    ...rolloutOverrides(config, folder),
    ...algorithmOverrides(config),
    ...trainerOverrides(config),
  ];
  return { overrides, notCarried: notCarried(config) };
}

function dataOverrides({ data, seed }: TrainConfig, folder: string): VerlRun['overrides'] {
  return [
    ['data.train_files', `${folder}/data/train.parquet`],
    ['data.val_files', `${folder}/data/test.parquet`],
    ['data.train_batch_size', data.trainBatchSize],
    ['data.max_prompt_length', data.maxPromptLength],
    ['data.max_response_length', data.maxResponseLength],
    ['data.truncation', data.truncation],
    ['data.filter_overlong_prompts', data.filterOverlongPrompts],
    ...Object.entries(data.chatTemplateKwargs).map(([name, value]): VerlRun['overrides'][number] => [
      `+data.apply_chat_template_kwargs.${name}`,
      value,
    ]),
    ['data.seed', seed],
    ['custom_reward_function.path', `${folder}/reward.py`],
    ['custom_reward_function.name', 'compute_score'],
    ['actor_rollout_ref.model.path', `${folder}/model`],
  ];
}

function actorOverrides({ actor }: TrainConfig): VerlRun['overrides'] {
  const at = 'actor_rollout_ref.actor';
  const { optim, policyLoss } = actor;
  const [beta1, beta2] = optim.betas;
  const ofLoss: [string, string, number | undefined][] = [
    ['sapo', `${at}.tau_pos`, policyLoss.tauPos],
    ['sapo', `${at}.tau_neg`, policyLoss.tauNeg],
    ['clip_cov', `${at}.policy_loss.clip_cov_ratio`, policyLoss.clipCovRatio],
    ['clip_cov', `${at}.policy_loss.clip_cov_lb`, policyLoss.clipCovLb],
    ['clip_cov', `${at}.policy_loss.clip_cov_ub`, policyLoss.clipCovUb],
    ['kl_cov', `${at}.policy_loss.kl_cov_ratio`, policyLoss.klCovRatio],
    ['kl_cov', `${at}.policy_loss.ppo_kl_coef`, policyLoss.ppoKlCoef],
  ];
  return [
    [`${at}.ppo_mini_batch_size`, actor.ppoMiniBatchSize],
    [`${at}.ppo_epochs`, actor.ppoEpochs],
    [`${at}.shuffle`, actor.shuffle],
    [`${at}.use_dynamic_bsz`, true],
    [`${at}.ppo_max_token_len_per_gpu`, actor.maxTokenLen],
    [`${at}.policy_loss.loss_mode`, VERL_LOSSES.includes(actor.lossMode) ? actor.lossMode : 'vanilla'],
    [`${at}.loss_agg_mode`, VERL_AGGREGATIONS.includes(actor.lossAggMode) ? actor.lossAggMode : 'token-mean'],
    [`${at}.clip_ratio`, actor.clipRatioLow],
    [`${at}.clip_ratio_low`, actor.clipRatioLow],
    [`${at}.clip_ratio_high`, actor.clipRatioHigh],
    [`${at}.clip_ratio_c`, actor.clipRatioC],
    [`${at}.entropy_coeff`, actor.entropyCoeff],
    [`${at}.use_kl_loss`, actor.useKlLoss],
    [`${at}.kl_loss_coef`, actor.klLossCoef],
    [`${at}.kl_loss_type`, actor.klLossType],
    [`${at}.grad_clip`, actor.gradClip],
    [`${at}.optim.clip_grad`, actor.gradClip],
    [`${at}.optim.lr`, optim.lr],
    [`${at}.optim.betas`, [beta1, beta2]],
    [`${at}.optim.weight_decay`, optim.weightDecay],
    [`${at}.optim.lr_scheduler_type`, optim.lrScheduler],
    [`${at}.optim.lr_warmup_steps`, optim.lrWarmupSteps],
    ...optimizerOverrides(`${at}.optim`, optim),
    [`${at}.optim.lr_warmup_steps_ratio`, optim.lrWarmupStepsRatio],
    ...ofLoss.flatMap(([loss, key, value]): VerlRun['overrides'] =>
      actor.lossMode === loss && value !== undefined ? [[key, value]] : [],
    ),
  ];
}

/** verl takes a class of PyTorch by its name; a trainer of all weights cannot be given Muon, which is for matrices alone. */
function optimizerOverrides(at: string, optim: TrainConfig['actor']['optim']): VerlRun['overrides'] {
  const spec = optimizerOf(optim);
  if (spec.name !== 'SGD') return [];
  return [
    [`${at}.optimizer`, spec.name],
    [`${at}.optimizer_impl`, 'torch.optim'],
    [`+${at}.override_optimizer_config.momentum`, spec.momentum],
    [`+${at}.override_optimizer_config.nesterov`, spec.nesterov],
  ];
}

function rolloutOverrides({ rollout }: TrainConfig, folder: string): VerlRun['overrides'] {
  const at = 'actor_rollout_ref.rollout';
  const { multiTurn, valKwargs } = rollout;
  const turns: VerlRun['overrides'] = [
    [`${at}.multi_turn.enable`, true],
    [`${at}.multi_turn.max_assistant_turns`, multiTurn.maxAssistantTurns],
    [`${at}.multi_turn.max_parallel_calls`, multiTurn.maxToolCalls],
    [`${at}.multi_turn.max_tool_response_length`, multiTurn.maxToolResponseLength],
    [`${at}.multi_turn.tool_response_truncate_side`, multiTurn.toolResponseTruncateSide],
    [`${at}.multi_turn.format`, multiTurn.format],
    [`${at}.multi_turn.tool_config_path`, `${folder}/tools.yaml`],
    [`${at}.agent.default_agent_loop`, 'tool_agent'],
  ];
  return [
    [`${at}.name`, 'vllm'],
    [`${at}.tensor_model_parallel_size`, 1],
    [`${at}.n`, rollout.n],
    [`${at}.temperature`, rollout.temperature],
    [`${at}.top_k`, rollout.topK === 0 ? -1 : rollout.topK],
    [`${at}.top_p`, rollout.topP],
    [`${at}.calculate_log_probs`, true],
    [`${at}.val_kwargs.n`, valKwargs.n],
    [`${at}.val_kwargs.temperature`, valKwargs.temperature],
    [`${at}.val_kwargs.top_k`, valKwargs.topK === 0 ? -1 : valKwargs.topK],
    [`${at}.val_kwargs.top_p`, valKwargs.topP],
    [`${at}.val_kwargs.do_sample`, valKwargs.temperature > 0],
    ...(multiTurn.enable ? turns : []),
  ];
}

function algorithmOverrides(config: TrainConfig): VerlRun['overrides'] {
  const { algorithm } = config;
  const { advEstimator, klCtrl } = algorithm;
  const { rolloutIs, rolloutIsThreshold } = correctionSettings(config);
  return [
    ['algorithm.adv_estimator', VERL_ESTIMATORS.includes(advEstimator) ? advEstimator : 'grpo'],
    ['algorithm.norm_adv_by_std_in_grpo', algorithm.scaleRewards !== 'none'],
    ['algorithm.gamma', algorithm.gamma],
    ['algorithm.use_kl_in_reward', algorithm.useKlInReward],
    ['algorithm.kl_penalty', algorithm.klPenalty],
    ['algorithm.kl_ctrl.type', klCtrl.type],
    ['algorithm.kl_ctrl.kl_coef', klCtrl.klCoef],
    ['algorithm.kl_ctrl.horizon', klCtrl.horizon],
    ['algorithm.kl_ctrl.target_kl', klCtrl.targetKl],
    ['algorithm.rollout_correction.rollout_is', rolloutIs === 'none' ? null : rolloutIs],
    ['algorithm.rollout_correction.rollout_is_threshold', rolloutIsThreshold],
  ];
}

function trainerOverrides({ trainer, name }: TrainConfig): VerlRun['overrides'] {
  return [
    ['trainer.project_name', 'webgrpo'],
    ['trainer.experiment_name', name],
    ['trainer.total_training_steps', trainer.totalTrainingSteps],
    ['trainer.test_freq', trainer.testFreq === 0 ? -1 : trainer.testFreq],
    ['trainer.save_freq', trainer.saveFreq === 0 ? -1 : trainer.saveFreq],
    ['trainer.val_before_train', trainer.valBeforeTrain],
    ['trainer.logger', ['console']],
    ['trainer.n_gpus_per_node', 1],
    ['trainer.nnodes', 1],
  ];
}

function notCarried(config: TrainConfig): string[] {
  const { actor, algorithm, rollout, task } = config;
  const missing: [boolean, string][] = [
    [
      !VERL_LOSSES.includes(actor.lossMode),
      `actor.lossMode ${actor.lossMode}: verl 0.8 has no such loss; the run uses vanilla.`,
    ],
    [
      !VERL_AGGREGATIONS.includes(actor.lossAggMode),
      `actor.lossAggMode ${actor.lossAggMode}: verl has no such mode; the run uses token-mean.`,
    ],
    [
      !VERL_ESTIMATORS.includes(algorithm.advEstimator),
      `algorithm.advEstimator ${algorithm.advEstimator}: verl has no such estimator; the run uses grpo.`,
    ],
    [algorithm.scaleRewards === 'batch', 'algorithm.scaleRewards batch: verl normalises by the group or not at all.'],
    [algorithm.maskTruncated, 'algorithm.maskTruncated: samples cut at the length limit are trained on.'],
    [
      algorithm.filterGroups.enable === true,
      'algorithm.filterGroups: verl has it in its DAPO recipe, not in this trainer; groups of one score stay.',
    ],
    [
      (algorithm.overlongBuffer.len ?? 0) > 0,
      "algorithm.overlongBuffer: verl's dapo reward manager has it; here the reward is reward.py alone.",
    ],
    [algorithm.replayBufferSize > 0, 'algorithm.replayBufferSize: verl has no replay of groups.'],
    [algorithm.lengthPenalty.type !== 'none', 'algorithm.lengthPenalty: prime-rl has it, verl has not.'],
    [rollout.minP > 0, "rollout.minP: verl's rollout has no such setting."],
    [rollout.valKwargs.minP > 0, "rollout.valKwargs.minP: verl's rollout has no such setting."],
    [actor.optim.eps !== 1e-8, `actor.optim.eps ${actor.optim.eps}: PyTorch's default of 1e-8 is used.`],
    [
      !['AdamW', 'SGD'].includes(actor.optim.optimizer),
      `actor.optim.optimizer ${actor.optim.optimizer}: verl has none of that kind; the run uses AdamW.`,
    ],
    [actor.gradClip === 0, 'actor.gradClip 0 (no clipping): give a large number to verl instead.'],
    [
      Number(task.options['toolCallBonus'] ?? 0) !== 0,
      'task.options.toolCallBonus: a reward function of verl does not see how tool calls went.',
    ],
    [
      rollout.multiTurn.enable && rollout.multiTurn.toolResponseTruncateSide !== 'middle',
      'tool_response_truncate_side is the part that goes, as in verl 0.10; verl 0.8 reads it as the part that stays: exchange left and right there.',
    ],
    [
      rollout.multiTurn.enable,
      'The reward reads the last 300 characters of the whole response in verl, of the last message here.',
    ],
    [true, 'Random numbers: the same seed draws other samples. Optimizer state: moments start at zero.'],
    [
      true,
      "verl's sampler and trainer are two programs that round differently; consider algorithm.rollout_correction.rollout_is=token.",
    ],
    [
      correctionSettings(config).rolloutRs !== '',
      "algorithm.rolloutCorrection.rolloutRs: set verl's rollout_rs by hand.",
    ],
  ];
  return missing.flatMap(([applies, sentence]) => (applies ? [sentence] : []));
}

/** `key=value` as Hydra reads it in a shell. */
export function hydraWord([key, value]: [string, OverrideValue]): string {
  if (value === null) return `${key}=null`;
  if (Array.isArray(value)) return `'${key}=[${value.join(',')}]'`;
  if (typeof value === 'string') return `"${key}=${value}"`;
  return `${key}=${String(value)}`;
}

/** The script that starts the run from its own folder. */
export function verlScript(run: VerlRun): string {
  const words = run.overrides.map((override) => `  ${hydraWord(override)}`).join(' \\\n');
  return `#!/usr/bin/env bash
# Starts this run in verl (one GPU; raise trainer.n_gpus_per_node). Needs verl with vLLM installed.
set -euo pipefail
HERE="$(cd "$(dirname "$0")" && pwd)"
export PYTHONPATH="$HERE\${PYTHONPATH:+:$PYTHONPATH}"

python3 -m verl.trainer.main_ppo \\
${words} \\
  "$@"
`;
}

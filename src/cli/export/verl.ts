/**
 * Converts our config to Hydra overrides for verl's `ppo_trainer` (0.9). test/unit/export.test.ts compares the names with verl's generated
 * config, exportPeers.test.ts with a checkout of verl.
 */

import { correctionSettings } from '../../grpo/correction/settings.ts';
import { pipelineOf } from '../../grpo/pipeline/settings.ts';
import { optimizerOf } from '../../model/optimizer/spec.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { carry, type Peer, type Setting } from './carry.ts';
import { callsTools } from '../../rollout/agent/prompt.ts';

type Override = [key: string, value: Setting];

const LOSSES = /^(vanilla|dppo_tv|dppo_kl|gspo|sapo|gpg|clip_cov|kl_cov|geo_mean|dro|cispo)$/;
const ESTIMATORS = /^(grpo|rloo|opo|reinforce_plus_plus|reinforce_plus_plus_baseline|remax|grpo_passk|gpg|gdpo)$/;
const KL_TYPES = /^(kl|(k1|abs|k3)\+?|mse|k2|low_var_kl)$/;
const known = (names: RegExp, name: string, otherwise: string) => (names.test(name) ? name : otherwise);

/** True for a run that verl expresses as the REINFORCE mode of its rollout correction. verl has no separate REINFORCE loss. */
const isReinforce = (config: TrainConfig) =>
  config.actor.policyLoss.lossMode === 'reinforce' && correctionSettings(config).bypassMode;

const off = (value: number) => (value === 0 ? -1 : value);
const ifTools = (key: keyof TrainConfig['rollout']['multiTurn']) => (config: TrainConfig) =>
  callsTools(config.rollout) ? config.rollout.multiTurn[key] : undefined;

const VERL: Peer = {
  name: 'verl',
  elsewhere:
    /^(model\.|task\.|seed$|asyncTraining\.|rollout\.(maxNumSeqs|agent\.)|actor\.(ppoMicroBatch|clipRatio$)|algorithm\.normAdv|data\.chatTemplateKwargs|trainer\.(defaultLocalDir|resume|logger))/,
  values: {
    'actor.policyLoss.lossMode': ({ actor }) => known(LOSSES, actor.policyLoss.lossMode, 'vanilla'),
    // For CISPO, our `wMax` (as in TRL, the maximum of the ratio as a weight) equals 1 + clip_ratio_high of verl.
    'actor.clipRatioHigh': ({ actor: { policyLoss, clipRatioHigh } }) =>
      policyLoss.lossMode === 'cispo' && policyLoss.wMax !== undefined ? policyLoss.wMax - 1 : clipRatioHigh,
    'actor.klLossType': ({ actor }) => known(KL_TYPES, actor.klLossType, 'low_var_kl'),
    'actor.optim.optimizer': ({ actor: { optim } }) => (optimizerOf(optim).name === 'SGD' ? 'SGD' : undefined),
    'actor.optim.lrSchedulerType': ({ actor: { optim } }) => known(/^cosine$/, optim.lrSchedulerType, 'constant'),
    // `overSampleRate` is not written: verl's sampler does not start more prompts than it trains on.
    'rollout.overSampleRate': () => undefined,
    'rollout.topK': ({ rollout }) => off(rollout.topK),
    'rollout.valKwargs.topK': ({ rollout }) => off(rollout.valKwargs.topK),
    'rollout.multiTurn.enable': ifTools('enable'),
    'rollout.multiTurn.maxAssistantTurns': ifTools('maxAssistantTurns'),
    'rollout.multiTurn.maxToolCalls': ifTools('maxToolCalls'),
    'rollout.multiTurn.maxToolResponseLength': ifTools('maxToolResponseLength'),
    'rollout.multiTurn.toolResponseTruncateSide': ifTools('toolResponseTruncateSide'),
    'rollout.multiTurn.format': ifTools('format'),
    'algorithm.advEstimator': ({ algorithm }) => known(ESTIMATORS, algorithm.advEstimator, 'grpo'),
    'algorithm.klPenalty': ({ algorithm }) => known(KL_TYPES, algorithm.klPenalty, 'low_var_kl'),
    'algorithm.filterGroups.enable': ({ algorithm }) => algorithm.filterGroups.enable || undefined,
    'algorithm.filterGroups.metric': ({ algorithm }) => (algorithm.filterGroups.enable ? 'acc' : undefined),
    'algorithm.filterGroups.maxNumGenBatches': ({ algorithm: { filterGroups } }) =>
      filterGroups.enable ? filterGroups.maxNumGenBatches : undefined,
    'algorithm.rolloutCorrection.rolloutIs': (config) => {
      const { rolloutIs } = correctionSettings(config);
      return rolloutIs === 'none' ? null : rolloutIs;
    },
    'algorithm.rolloutCorrection.rolloutIsThreshold': (config) => correctionSettings(config).rolloutIsThreshold,
    'algorithm.rolloutCorrection.rolloutRs': (config) => correctionSettings(config).rolloutRs || undefined,
    // `bypassMode` is written only if the loss is REINFORCE, which requires the value true. With false, verl recomputes old log-probs with
    // the training engine, as it must if rollout and training use different engines.
    'algorithm.rolloutCorrection.bypassMode': (config) => isReinforce(config) || undefined,
    'reward.overlongBuffer.len': ({ reward }) => reward.overlongBuffer.len || undefined,
    'reward.overlongBuffer.penaltyFactor': ({ reward: { overlongBuffer } }) =>
      overlongBuffer.len ? overlongBuffer.penaltyFactor : undefined,
    'trainer.testFreq': ({ trainer }) => off(trainer.testFreq),
    'trainer.saveFreq': ({ trainer }) => off(trainer.saveFreq),
  },
  lost(config) {
    const { actor, algorithm, rollout, task } = config;
    const { lossMode } = actor.policyLoss;
    const klKey = actor.useKlLoss ? actor.klLossType : algorithm.useKlInReward ? algorithm.klPenalty : '';
    return {
      'trainer.pipeline': pipelineOf(config).isAsync && 'a program of its own in verl.experimental',
      'actor.policyLoss.lossMode':
        lossMode === 'dro'
          ? 'since verl 0.9.0'
          : !LOSSES.test(lossMode) && !isReinforce(config) && 'the run uses vanilla',
      'actor.lossAggMode': actor.lossAggMode === 'token-sum' && 'since verl 0.9.0',
      'actor.klLossType': actor.useKlLoss && !KL_TYPES.test(actor.klLossType) && 'the run uses low_var_kl (k3)',
      'actor.klClamp':
        /^k3|^low/.test(klKey) && actor.klClamp !== 10 && 'verl bounds k3 at 10, as actor.klClamp=10 does',
      'actor.optim.lrSchedulerType': actor.optim.lrSchedulerType === 'linear' && 'the run keeps the rate constant',
      'actor.optim.eps': actor.optim.eps !== 1e-8 && "PyTorch's 1e-8 is used",
      'actor.optim.optimizer': !/^(AdamW|SGD)$/.test(actor.optim.optimizer) && 'the run uses AdamW',
      'actor.gradClip': actor.gradClip === 0 && 'give a large number to verl instead',
      'algorithm.advEstimator': ESTIMATORS.test(algorithm.advEstimator)
        ? algorithm.advEstimator === 'gdpo' &&
          'since verl 0.8.0; compute_score must return the named rewards beside "score"'
        : 'the run uses grpo',
      'algorithm.klPenalty':
        algorithm.useKlInReward && !KL_TYPES.test(algorithm.klPenalty) && 'the run uses low_var_kl (k3)',
      'algorithm.scaleRewards': algorithm.scaleRewards === 'batch',
      'algorithm.maskTruncated': algorithm.maskTruncated,
      'algorithm.filterGroups.enable':
        algorithm.filterGroups.enable === true && 'since verl 0.9.0 (trainer.use_v1); before, in its DAPO recipe alone',
      'rollout.multiTurn.maxToolCalls':
        callsTools(config.rollout) && "verl's max_parallel_calls bounds a turn, ours the sample",
      'rollout.multiTurn.toolResponseTruncateSide':
        callsTools(config.rollout) &&
        rollout.multiTurn.toolResponseTruncateSide !== 'middle' &&
        'the part that goes, as in verl 0.10; verl 0.8 reads the part that stays: exchange left and right there',
      'task.options.toolCallBonus': Number(task.options['toolCallBonus'] ?? 0) !== 0,
    };
  },
};

/**
 * Keys that are missing in verl's default config, so an override must add them. `++` adds a key, or sets it in a version of verl that has
 * it.
 */
const ADDED =
  /^(algorithm\.(filter_groups\.|gdpo_)|reward\.reward_kwargs\.|actor_rollout_ref\.actor\.policy_loss\.dro_beta)/;

/**
 * Returns the Hydra overrides, and one sentence per setting that verl's trainer lacks.
 * @param folder folder of the exported files, as run.sh names it
 */
export function verlRun(config: TrainConfig, folder: string): { overrides: Override[]; notCarried: string[] } {
  const { settings, notCarried } = carry(config, VERL);
  const carried = settings.map(([name, value]): Override => [ADDED.test(name) ? `++${name}` : name, value]);
  return {
    overrides: [...carried, ...fixed(config, folder)],
    notCarried: [
      ...notCarried,
      "verl's sampler and trainer are two programs that round differently; consider algorithm.rollout_correction.rollout_is=token.",
      ...(callsTools(config.rollout)
        ? ['The reward reads the last 300 characters of the whole response in verl, of the last message here.']
        : []),
    ],
  };
}

/**
 * Returns overrides for the optimizer. verl takes the name of a PyTorch optimizer class and uses it for all weights, so it cannot use Muon,
 * which is only for matrices.
 */
function optimizerOverrides(optim: TrainConfig['actor']['optim']): Override[] {
  const at = 'actor_rollout_ref.actor.optim';
  const spec = optimizerOf(optim);
  if (spec.name !== 'SGD') return [];
  return [
    [`${at}.optimizer_impl`, 'torch.optim'],
    [`+${at}.override_optimizer_config.momentum`, spec.momentum],
    [`+${at}.override_optimizer_config.nesterov`, spec.nesterov],
  ];
}

/**
 * Returns the overrides that no single key of ours determines: paths in the exported folder, the use of one GPU, and values computed from
 * several keys.
 */
function fixed(config: TrainConfig, folder: string): Override[] {
  const { actor, algorithm, data, reward, rollout } = config;
  const overridesIf = (applies: boolean, ...overrides: Override[]) => (applies ? overrides : []);
  return [
    ['data.train_files', `${folder}/data/train.parquet`],
    ['data.val_files', `${folder}/data/test.parquet`],
    ...Object.entries(data.chatTemplateKwargs).map(([name, value]): Override => [
      `+data.apply_chat_template_kwargs.${name}`,
      value,
    ]),
    ['data.seed', config.seed],
    ['custom_reward_function.path', `${folder}/reward.py`],
    ['custom_reward_function.name', 'compute_score'],
    ['actor_rollout_ref.model.path', `${folder}/model`],
    ['actor_rollout_ref.actor.use_dynamic_bsz', true],
    ['actor_rollout_ref.actor.clip_ratio', actor.clipRatioLow],
    ['actor_rollout_ref.actor.optim.clip_grad', actor.gradClip],
    ...optimizerOverrides(actor.optim),
    // Without loss_scale_factor, verl divides by the length of the longest response in the batch.
    ...overridesIf(actor.lossAggMode === 'seq-mean-token-sum-norm', [
      'actor_rollout_ref.actor.loss_scale_factor',
      data.maxResponseLength,
    ]),
    ['algorithm.norm_adv_by_std_in_grpo', algorithm.scaleRewards !== 'none'],
    ...overridesIf(isReinforce(config), ['algorithm.rollout_correction.loss_type', 'reinforce']),
    ...overridesIf(
      reward.overlongBuffer.len > 0,
      ['reward.reward_manager.name', 'dapo'],
      ['++reward.reward_kwargs.overlong_buffer_cfg.enable', true],
      ['++reward.reward_kwargs.overlong_buffer_cfg.log', false],
      ['++reward.reward_kwargs.max_resp_len', data.maxResponseLength],
    ),
    ['actor_rollout_ref.rollout.name', 'vllm'],
    ['actor_rollout_ref.rollout.tensor_model_parallel_size', 1],
    ['actor_rollout_ref.rollout.calculate_log_probs', true],
    ['actor_rollout_ref.rollout.val_kwargs.do_sample', rollout.valKwargs.temperature > 0],
    ...overridesIf(
      callsTools(config.rollout),
      ['actor_rollout_ref.rollout.multi_turn.tool_config_path', `${folder}/tools.yaml`],
      ['actor_rollout_ref.rollout.agent.default_agent_loop', 'tool_agent'],
    ),
    ['trainer.project_name', 'webgrpo'],
    ['trainer.logger', ['console']],
    ['trainer.n_gpus_per_node', 1],
    ['trainer.nnodes', 1],
  ];
}

/** Returns `key=value`, quoted for the shell and for Hydra. */
export function hydraWord([key, value]: Override): string {
  if (Array.isArray(value)) return `'${key}=[${value.join(',')}]'`;
  return typeof value === 'string' ? `"${key}=${value}"` : `${key}=${JSON.stringify(value)}`;
}

/** Returns the text of run.sh, which starts verl and changes to its own folder first. */
export function verlScript({ overrides }: { overrides: Override[] }): string {
  const words = overrides.map((override) => `  ${hydraWord(override)}`).join(' \\\n');
  return `#!/usr/bin/env bash
# Starts this run in verl (one GPU: raise trainer.n_gpus_per_node for more). Needs verl with vLLM installed.
set -euo pipefail
HERE="$(cd "$(dirname "$0")" && pwd)"
export PYTHONPATH="$HERE\${PYTHONPATH:+:$PYTHONPATH}"

python3 -m verl.trainer.main_ppo \\
${words} \\
  "$@"
`;
}

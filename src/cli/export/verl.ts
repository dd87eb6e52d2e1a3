/**
 * Our config as Hydra overrides of verl's `ppo_trainer` (0.9), and the list of what has no name there. Names are those of
 * src/grpo/config/peerNames.ts; test/unit/export.test.ts holds them against verl's generated config, exportPeers.test.ts
 * against a checkout of it.
 */

import { correctionSettings } from '../../grpo/correction/settings.ts';
import { optimizerOf } from '../../model/optimizer/spec.ts';
import { PEER_NAMES } from '../../grpo/config/peerNames.ts';
import { valueAt } from '../../grpo/config/tree.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { callsTools } from './chatTemplate.ts';
import { unnamed } from './unnamed.ts';

export type OverrideValue = string | number | boolean | null | readonly (string | number)[];

interface VerlRun {
  overrides: [key: string, value: OverrideValue][];
  /** Sentences: settings of ours that verl's trainer does not have. */
  notCarried: string[];
}

const VERL_LOSSES = [
  'vanilla',
  'dppo_tv',
  'dppo_kl',
  'gspo',
  'sapo',
  'gpg',
  'clip_cov',
  'kl_cov',
  'geo_mean',
  'dro',
  'cispo',
];
const VERL_ESTIMATORS = [
  'grpo',
  'rloo',
  'opo',
  'reinforce_plus_plus',
  'reinforce_plus_plus_baseline',
  'remax',
  'grpo_passk',
  'gpg',
  'gdpo',
];
const VERL_KL_TYPES = ['kl', 'k1', 'k1+', 'abs', 'abs+', 'mse', 'k2', 'low_var_kl', 'k3', 'k3+'];

/** REINFORCE is a mode of verl's rollout correction, not a loss of its own. */
const isReinforce = (config: TrainConfig) =>
  config.actor.policyLoss.lossMode === 'reinforce' && correctionSettings(config).bypassMode;

/** Not settings of the method: the export sets what fits its own folder, or they stay with this machine. */
const OWN = [
  'model.',
  'task.',
  'seed',
  'trainer.defaultLocalDir',
  'trainer.resumeMode',
  'trainer.resumeFromPath',
  'trainer.logger',
  'rollout.maxNumSeqs',
  'actor.ppoMicroBatchSizePerGpu',
  'actor.clipRatio',
  'algorithm.normAdvByStdInGrpo',
  'rollout.agent.',
  'asyncTraining.',
];

type Value = OverrideValue | undefined;
const off = (value: number) => (value === 0 ? -1 : value);
const ifTools = (config: TrainConfig, value: Value): Value => (callsTools(config) ? value : undefined);

/** Where the value is not the one our key has. undefined = not written. */
const VALUES: Readonly<Record<string, (config: TrainConfig) => Value>> = {
  'actor.policyLoss.lossMode': ({ actor }) =>
    VERL_LOSSES.includes(actor.policyLoss.lossMode) ? actor.policyLoss.lossMode : 'vanilla',
  // TRL's absolute bound as verl reads it, 1 + clip_ratio_high.
  'actor.clipRatioHigh': ({ actor }) =>
    actor.policyLoss.lossMode === 'cispo' && actor.policyLoss.wMax !== undefined
      ? actor.policyLoss.wMax - 1
      : actor.clipRatioHigh,
  'actor.klLossType': ({ actor: { klLossType } }) => (VERL_KL_TYPES.includes(klLossType) ? klLossType : 'low_var_kl'),
  'algorithm.klPenalty': ({ algorithm: { klPenalty } }) =>
    VERL_KL_TYPES.includes(klPenalty) ? klPenalty : 'low_var_kl',
  'algorithm.advEstimator': ({ algorithm: { advEstimator } }) =>
    VERL_ESTIMATORS.includes(advEstimator) ? advEstimator : 'grpo',
  'actor.optim.optimizer': ({ actor: { optim } }) => (optimizerOf(optim).name === 'SGD' ? 'SGD' : undefined),
  // Read where there is a warm-up and a cosine; a linear fall verl has not.
  'actor.optim.lrSchedulerType': ({ actor: { optim } }) =>
    optim.lrSchedulerType === 'linear' ? 'constant' : optim.lrSchedulerType,
  // Each is a key of its own there.
  'data.chatTemplateKwargs': () => undefined,
  'rollout.topK': ({ rollout }) => off(rollout.topK),
  'rollout.valKwargs.topK': ({ rollout }) => off(rollout.valKwargs.topK),
  'trainer.testFreq': ({ trainer }) => off(trainer.testFreq),
  'trainer.saveFreq': ({ trainer }) => off(trainer.saveFreq),
  'rollout.multiTurn.enable': (config) => ifTools(config, true),
  'rollout.multiTurn.maxAssistantTurns': (config) => ifTools(config, config.rollout.multiTurn.maxAssistantTurns),
  'rollout.multiTurn.maxToolCalls': (config) => ifTools(config, config.rollout.multiTurn.maxToolCalls),
  'rollout.multiTurn.maxToolResponseLength': (config) =>
    ifTools(config, config.rollout.multiTurn.maxToolResponseLength),
  'rollout.multiTurn.toolResponseTruncateSide': (config) =>
    ifTools(config, config.rollout.multiTurn.toolResponseTruncateSide),
  'rollout.multiTurn.format': (config) => ifTools(config, config.rollout.multiTurn.format),
  // Partial rollout is this trainer's own; verl's sampler does not start more prompts than it trains on.
  'rollout.overSampleRate': () => undefined,
  'algorithm.filterGroups.enable': ({ algorithm }) => algorithm.filterGroups.enable || undefined,
  'algorithm.filterGroups.metric': ({ algorithm }) => (algorithm.filterGroups.enable ? 'acc' : undefined),
  'algorithm.filterGroups.maxNumGenBatches': ({ algorithm: { filterGroups } }) =>
    filterGroups.enable ? filterGroups.maxNumGenBatches : undefined,
  'reward.overlongBuffer.len': (config) => config.reward.overlongBuffer.len || undefined,
  'reward.overlongBuffer.penaltyFactor': (config) =>
    config.reward.overlongBuffer.len ? config.reward.overlongBuffer.penaltyFactor : undefined,
  'algorithm.rolloutCorrection.rolloutIs': (config) => {
    const { rolloutIs } = correctionSettings(config);
    return rolloutIs === 'none' ? null : rolloutIs;
  },
  'algorithm.rolloutCorrection.rolloutIsThreshold': (config) => correctionSettings(config).rolloutIsThreshold,
  'algorithm.rolloutCorrection.rolloutRs': (config) => correctionSettings(config).rolloutRs || undefined,
  // verl's false computes the log-probs again, which is what its two programs need; only REINFORCE is defined by true.
  'algorithm.rolloutCorrection.bypassMode': (config) => isReinforce(config) || undefined,
};

/** verl's config has no such keys until they are added; `++` is right where a version has them. */
const ADDED = [
  'algorithm.filter_groups.',
  'algorithm.gdpo_',
  'reward.reward_kwargs.',
  'actor_rollout_ref.actor.policy_loss.dro_beta',
];

/** Files lie beside each other: `folder` is where verl finds them. */
export function verlRun(config: TrainConfig, folder: string): VerlRun {
  const carried = PEER_NAMES.flatMap(({ key, verl }): [string, string, OverrideValue][] => {
    if (verl === undefined || OWN.some((own) => key === own || (own.endsWith('.') && key.startsWith(own)))) return [];
    if (key.startsWith('actor.policyLoss.') && !(key in VALUES) && !usesNumber(config, key)) return [];
    const value = key in VALUES ? VALUES[key](config) : (valueAt(config, key) as Value);
    const name = ADDED.some((added) => verl.startsWith(added)) ? `++${verl}` : verl;
    return value === undefined ? [] : [[key, name, value]];
  });
  const said = notCarried(config);
  const keys = carried.map(([key]) => key);
  const besides = unnamed(config, (key) => keys.includes(key) || OWN.some((own) => key.startsWith(own)), said);
  return {
    overrides: [...carried.map(([, name, value]): [string, OverrideValue] => [name, value]), ...fixed(config, folder)],
    notCarried: [...said, ...besides.map((key) => `${key}: verl has no such setting.`), ...ALWAYS],
  };
}

/** True if the loss that is written reads the number. */
function usesNumber({ actor }: TrainConfig, key: string): boolean {
  const readers: Readonly<Record<string, RegExp>> = {
    sapo: /\.tau/,
    clip_cov: /\.clipCov/,
    kl_cov: /\.klCov|\.ppoKlCoef/,
    dro: /\.droBeta/,
  };
  return readers[actor.policyLoss.lossMode]?.test(key) ?? false;
}

/** verl takes a class of PyTorch by its name; a trainer of all weights cannot be given Muon, which is for matrices alone. */
function optimizerOverrides(optim: TrainConfig['actor']['optim']): VerlRun['overrides'] {
  const at = 'actor_rollout_ref.actor.optim';
  const spec = optimizerOf(optim);
  if (spec.name !== 'SGD') return [];
  return [
    [`${at}.optimizer_impl`, 'torch.optim'],
    [`+${at}.override_optimizer_config.momentum`, spec.momentum],
    [`+${at}.override_optimizer_config.nesterov`, spec.nesterov],
  ];
}

/** What follows from where the files lie, from one GPU, or from several of our keys. */
function fixed(config: TrainConfig, folder: string): VerlRun['overrides'] {
  const { actor, algorithm, data, rollout } = config;
  const rolloutAt = 'actor_rollout_ref.rollout';
  const overlong = config.reward.overlongBuffer.len > 0;
  return [
    ['data.train_files', `${folder}/data/train.parquet`],
    ['data.val_files', `${folder}/data/test.parquet`],
    ...Object.entries(data.chatTemplateKwargs).map(([name, value]): VerlRun['overrides'][number] => [
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
    // Else verl divides by the longest response of the batch.
    ...(actor.lossAggMode === 'seq-mean-token-sum-norm'
      ? ([['actor_rollout_ref.actor.loss_scale_factor', data.maxResponseLength]] as VerlRun['overrides'])
      : []),
    ['algorithm.norm_adv_by_std_in_grpo', algorithm.scaleRewards !== 'none'],
    ...(isReinforce(config) ? ([['algorithm.rollout_correction.loss_type', 'reinforce']] as VerlRun['overrides']) : []),
    ...(overlong
      ? ([
          ['reward.reward_manager.name', 'dapo'],
          ['++reward.reward_kwargs.overlong_buffer_cfg.enable', true],
          ['++reward.reward_kwargs.overlong_buffer_cfg.log', false],
          ['++reward.reward_kwargs.max_resp_len', data.maxResponseLength],
        ] as VerlRun['overrides'])
      : []),
    [`${rolloutAt}.name`, 'vllm'],
    [`${rolloutAt}.tensor_model_parallel_size`, 1],
    [`${rolloutAt}.calculate_log_probs`, true],
    [`${rolloutAt}.val_kwargs.do_sample`, rollout.valKwargs.temperature > 0],
    ...(callsTools(config)
      ? ([
          [`${rolloutAt}.multi_turn.tool_config_path`, `${folder}/tools.yaml`],
          [`${rolloutAt}.agent.default_agent_loop`, 'tool_agent'],
        ] as VerlRun['overrides'])
      : []),
    ['trainer.project_name', 'webgrpo'],
    ['trainer.logger', ['console']],
    ['trainer.n_gpus_per_node', 1],
    ['trainer.nnodes', 1],
  ];
}

const ALWAYS = [
  'Random numbers: the same seed draws other samples. Optimizer state: moments start at zero.',
  "verl's sampler and trainer are two programs that round differently; consider algorithm.rollout_correction.rollout_is=token.",
];

function notCarried(config: TrainConfig): string[] {
  const { actor, algorithm, rollout, task, trainer } = config;
  const { klLossType } = actor;
  const lossMode = actor.policyLoss.lossMode;
  const isKl = actor.useKlLoss || algorithm.useKlInReward;
  const missing: [boolean, string][] = [
    [
      trainer.pipeline !== 'on-policy',
      `trainer.pipeline ${trainer.pipeline}: verl.experimental has it as a program of its own; this one is ppo_trainer, on-policy.`,
    ],
    [
      !VERL_LOSSES.includes(lossMode) && !isReinforce(config),
      `actor.policyLoss.lossMode ${lossMode}: verl has no such loss; the run uses vanilla.`,
    ],
    [lossMode === 'dro', 'actor.policyLoss.lossMode dro: since verl 0.9.0.'],
    [actor.lossAggMode === 'token-sum', 'actor.lossAggMode token-sum: since verl 0.9.0.'],
    [
      !VERL_ESTIMATORS.includes(algorithm.advEstimator),
      `algorithm.advEstimator ${algorithm.advEstimator}: verl has no such estimator; the run uses grpo.`,
    ],
    [
      algorithm.advEstimator === 'gdpo',
      'algorithm.advEstimator gdpo: since verl 0.8.0; compute_score must return a dict with the named rewards beside "score".',
    ],
    [algorithm.scaleRewards === 'batch', 'algorithm.scaleRewards batch: verl normalises by the group or not at all.'],
    [algorithm.maskTruncated, 'algorithm.maskTruncated: samples cut at the length limit are trained on.'],
    [
      algorithm.filterGroups.enable === true,
      "algorithm.filterGroups: verl's V1 trainer has it (trainer.use_v1, since 0.9.0); 0.8.0 has it in its DAPO recipe alone.",
    ],
    [
      actor.useKlLoss && !VERL_KL_TYPES.includes(klLossType),
      `actor.klLossType ${klLossType}: verl has no such estimator; the run uses low_var_kl (k3).`,
    ],
    [
      algorithm.useKlInReward && !VERL_KL_TYPES.includes(algorithm.klPenalty),
      `algorithm.klPenalty ${algorithm.klPenalty}: verl has no such estimator; the run uses low_var_kl (k3).`,
    ],
    [
      isKl && /^k3|^low/.test(actor.useKlLoss ? klLossType : algorithm.klPenalty) && actor.klClamp !== 10,
      'actor.klClamp: verl bounds k3 at 10 and has no gradient beyond; actor.klClamp=10 does the same here.',
    ],
    [
      actor.optim.lrSchedulerType === 'linear',
      'actor.optim.lrSchedulerType linear: verl has constant and cosine; the run keeps the rate constant.',
    ],
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
      callsTools(config),
      'rollout.multiTurn.maxToolCalls: max_parallel_calls bounds the calls of a turn, ours those of the whole sample.',
    ],
    [
      callsTools(config) && rollout.multiTurn.toolResponseTruncateSide !== 'middle',
      'tool_response_truncate_side is the part that goes, as in verl 0.10; verl 0.8 reads it as the part that stays: exchange left and right there.',
    ],
    [
      callsTools(config),
      'The reward reads the last 300 characters of the whole response in verl, of the last message here.',
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

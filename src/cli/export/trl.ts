/**
 * Our config as a script that runs TRL's GRPOTrainer (1.10 to 1.16), and the list of what it does not have. Names are those of
 * src/grpo/config/peerNames.ts.
 */

import { PEER_NAMES } from '../../grpo/config/peerNames.ts';
import { policyLossOf } from '../../grpo/losses/index.ts';
import { correctionSettings } from '../../grpo/correction/settings.ts';
import { valueAt } from '../../grpo/config/tree.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { warmupSteps } from '../../grpo/update/learningRate.ts';
import { CALL_FIELDS, callsTools } from './chatTemplate.ts';
import { unnamed } from './unnamed.ts';

type Setting = string | number | boolean | { readonly [name: string]: Setting };

interface TrlRun {
  /** Arguments of TRL's GRPOConfig. */
  settings: Record<string, Setting>;
  notCarried: string[];
}

/** TRL's loss_type of our loss and of the aggregation that it runs with; undefined if TRL has none. */
function lossType(actor: TrainConfig['actor']): string | undefined {
  const lossMode = actor.policyLoss.lossMode;
  if (['cispo', 'sapo', 'luspo', 'vespo'].includes(lossMode)) return lossMode;
  if (lossMode !== 'vanilla' && lossMode !== 'gspo') return undefined;
  const byAggregation: Record<string, string> = {
    'token-mean': 'dapo',
    'seq-mean-token-mean': 'grpo',
    'seq-mean-token-sum-norm': 'dr_grpo',
  };
  return byAggregation[policyLossOf(lossMode).aggregation ?? actor.lossAggMode];
}

/** The aggregation that a loss_type is. */
const AGGREGATION: Readonly<Record<string, string>> = {
  dapo: 'token-mean',
  cispo: 'token-mean',
  vespo: 'token-mean',
  grpo: 'seq-mean-token-mean',
  sapo: 'seq-mean-token-mean',
  dr_grpo: 'seq-mean-token-sum-norm',
  luspo: 'seq-mean-token-sum',
};

const updatesOf = ({ data, actor }: TrainConfig) => (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
const isSequenceLevel = ({ actor }: TrainConfig) => ['gspo', 'luspo'].includes(actor.policyLoss.lossMode);
/** The upper weight of CISPO: TRL's epsilon_high is the weight itself. */
const cispoBound = ({ policyLoss, clipRatioHigh }: TrainConfig['actor']) => policyLoss.wMax ?? 1 + clipRatioHigh;
/** TRL's delta bounds the ratio itself; where it is below the clip it would cut good advantages too. */
const deltaHolds = ({ clipRatioC, clipRatioHigh }: TrainConfig['actor']) => clipRatioC >= 1 + clipRatioHigh;
const isKl = ({ actor }: TrainConfig) => actor.useKlLoss && ['k3', 'low_var_kl', 'r*k3'].includes(actor.klLossType);

type Value = Setting | undefined;
const ofLoss =
  (...losses: string[]) =>
  (key: string) =>
  (config: TrainConfig): Value =>
    losses.includes(config.actor.policyLoss.lossMode) ? (valueAt(config, key) as Value) : undefined;
const ofAdaptive =
  (key: string) =>
  (config: TrainConfig): Value =>
    config.actor.entropyTarget === undefined ? undefined : (valueAt(config, key) as Value);

/** Updates of linear rise, by either key. */
function warmup(config: TrainConfig): number {
  return warmupSteps(config.actor.optim, config.trainer.totalTrainingSteps * updatesOf(config));
}

/** Where the value is not the one our key has. undefined = not written. */
const VALUES: Readonly<Record<string, (config: TrainConfig) => Value>> = {
  // Arguments of the trainer, or of its data.
  'model.path': () => undefined,
  'task.path': () => undefined,
  'task.tools': () => undefined,
  'model.loraRank': () => undefined,
  'model.loraAlpha': () => undefined,
  'model.targetModules': () => undefined,
  'model.loraDropout': () => undefined,
  'model.useRslora': () => undefined,
  'model.dtype': () => undefined,
  'data.maxPromptLength': () => undefined,
  'data.trainBatchSize': ({ data, actor }) => data.trainBatchSize / actor.ppoMiniBatchSize,
  'actor.ppoMiniBatchSize': ({ actor, rollout }) => actor.ppoMiniBatchSize * rollout.n,
  'actor.ppoMaxTokenLenPerGpu': () => undefined,
  'rollout.minP': ({ rollout }) => rollout.minP || undefined,
  'rollout.repetitionPenalty': ({ rollout }) =>
    rollout.repetitionPenalty === 1 ? undefined : rollout.repetitionPenalty,
  'rollout.multiTurn.maxAssistantTurns': (config) =>
    callsTools(config) ? config.rollout.multiTurn.maxAssistantTurns - 1 : undefined,
  'actor.policyLoss.lossMode': ({ actor }) => lossType(actor) ?? 'dapo',
  'actor.clipRatioHigh': ({ actor }) =>
    actor.policyLoss.lossMode === 'cispo' ? cispoBound(actor) : actor.clipRatioHigh,
  'actor.clipRatioC': ({ actor }) =>
    actor.policyLoss.lossMode === 'vanilla' && deltaHolds(actor) ? actor.clipRatioC : undefined,
  'actor.policyLoss.tauPos': ofLoss('sapo')('actor.policyLoss.tauPos'),
  'actor.policyLoss.tauNeg': ofLoss('sapo')('actor.policyLoss.tauNeg'),
  'actor.policyLoss.vespoKPos': ofLoss('vespo')('actor.policyLoss.vespoKPos'),
  'actor.policyLoss.vespoKNeg': ofLoss('vespo')('actor.policyLoss.vespoKNeg'),
  'actor.policyLoss.vespoLambdaPos': ofLoss('vespo')('actor.policyLoss.vespoLambdaPos'),
  'actor.policyLoss.vespoLambdaNeg': ofLoss('vespo')('actor.policyLoss.vespoLambdaNeg'),
  'actor.entropyCoeff': ({ actor }) => actor.entropyCoeff || undefined,
  'actor.entropyCoeffDelta': ofAdaptive('actor.entropyCoeffDelta'),
  'actor.entropyCoeffMin': ofAdaptive('actor.entropyCoeffMin'),
  'actor.entropyCoeffMax': ofAdaptive('actor.entropyCoeffMax'),
  'actor.topEntropyQuantile': ({ actor }) => (actor.topEntropyQuantile < 1 ? actor.topEntropyQuantile : undefined),
  'actor.klLossCoef': (config) => (isKl(config) ? config.actor.klLossCoef : 0),
  'actor.klLossType': (config) => (isKl(config) && config.actor.klLossType === 'r*k3') || undefined,
  'actor.optim.betas': ({ actor }) => actor.optim.betas[0],
  'actor.optim.optimizer': () => undefined,
  'actor.optim.lrSchedulerType': (config) => {
    const { optim } = config.actor;
    if (optim.lrSchedulerType === 'constant') return warmup(config) > 0 ? 'constant_with_warmup' : 'constant';
    if (optim.lrSchedulerType === 'linear') return 'linear';
    return isPlainCosine(optim) ? 'cosine' : 'cosine_with_min_lr';
  },
  'actor.optim.lrWarmupSteps': warmup,
  'actor.optim.lrWarmupStepsRatio': () => undefined,
  'data.chatTemplateKwargs': ({ data }) =>
    Object.keys(data.chatTemplateKwargs).length > 0 ? data.chatTemplateKwargs : undefined,
  'algorithm.advEstimator': ({ algorithm }) =>
    algorithm.advEstimator === 'gdpo' ? 'normalize_then_sum' : 'sum_then_normalize',
  'algorithm.gdpoRewardWeights': () => undefined,
  'algorithm.rolloutCorrection.rolloutIs': () => undefined,
  'algorithm.rolloutCorrection.rolloutIsThreshold': () => undefined,
  // One "step" of TRL is one update; ours draws so many prompts and then updates several times.
  'trainer.totalTrainingSteps': (config) => config.trainer.totalTrainingSteps * updatesOf(config),
  'trainer.totalEpochs': () => undefined,
  'trainer.testFreq': (config) => config.trainer.testFreq * updatesOf(config) || undefined,
  'trainer.saveFreq': (config) =>
    Math.max(1, (config.trainer.saveFreq || config.trainer.totalTrainingSteps) * updatesOf(config)),
  'trainer.defaultLocalDir': () => 'out',
  'trainer.logger': () => undefined,
  'trainer.resumeMode': () => undefined,
  'trainer.refUpdateFreq': (config) =>
    config.trainer.refUpdateFreq > 0 ? config.trainer.refUpdateFreq * updatesOf(config) : undefined,
  'trainer.refMixupAlpha': ({ trainer }) => (trainer.refUpdateFreq > 0 ? trainer.refMixupAlpha : undefined),
};

const isPlainCosine = ({ minLrRatio, numCycles }: TrainConfig['actor']['optim']) =>
  minLrRatio === 0 && numCycles === 0.5;

export function trlRun(config: TrainConfig): TrlRun {
  const carried = PEER_NAMES.flatMap(({ key, trl }): [string, string, Setting][] => {
    const value = trl === undefined ? undefined : key in VALUES ? VALUES[key](config) : (valueAt(config, key) as Value);
    return value === undefined ? [] : [[key, trl!, value]];
  });
  const said = notCarried(config);
  const keys = new Set(carried.map(([key]) => key));
  const besides = unnamed(config, (key) => keys.has(key) || ELSEWHERE.some((start) => key.startsWith(start)), said);
  return {
    settings: { ...Object.fromEntries(carried.map(([, name, value]) => [name, value])), ...besidesNames(config) },
    notCarried: [...said, ...besides.map((key) => `${key}: TRL has no such setting.`), ...ALWAYS],
  };
}

/** Carried by another key, named if it matters, or of our machine. */
const ELSEWHERE = [
  'actor.useKlLoss',
  'actor.klLossCoef',
  'actor.lossAggMode',
  'actor.ppoMaxTokenLenPerGpu',
  'actor.ppoMicroBatchSizePerGpu',
  'actor.shuffle',
  'actor.optim.minLrRatio',
  'actor.optim.lrWarmupStepsRatio',
  'actor.optim.numCycles',
  'algorithm.klPenalty',
  'algorithm.klCtrl',
  'algorithm.filterGroups',
  'algorithm.rolloutCorrection.rolloutIsThreshold',
  'algorithm.rolloutCorrection.rolloutRsThreshold',
  'algorithm.rolloutCorrection.bypassMode',
  'data.maxPromptLength',
  'rollout.multiTurn.enable',
  'rollout.maxNumSeqs',
];

/** Arguments that go with others. */
function besidesNames(config: TrainConfig): Record<string, Setting> {
  const { actor, rollout, trainer } = config;
  const { optim } = actor;
  return {
    adam_beta2: optim.betas[1],
    importance_sampling_level: isSequenceLevel(config) ? 'sequence' : 'token',
    ...(optim.lrSchedulerType === 'cosine' &&
      !isPlainCosine(optim) && {
        lr_scheduler_kwargs: { min_lr_rate: optim.minLrRatio, num_cycles: optim.numCycles },
      }),
    ...(actor.entropyTarget !== undefined && { use_adaptive_entropy: true }),
    ...(trainer.refUpdateFreq > 0 && { sync_ref_model: true }),
    // A batch of TRL's evaluation holds whole groups.
    ...(trainer.testFreq > 0 && {
      eval_strategy: 'steps',
      per_device_eval_batch_size: actor.ppoMiniBatchSize * rollout.valKwargs.n,
    }),
    logging_steps: 1,
  };
}

const ALWAYS = [
  'data.maxPromptLength: TRL does not check it.',
  'Numbers: TRL computes in bfloat16 if the GPU has it, unless bf16=False.',
  'Random numbers: the same seed draws other samples. Optimizer state: moments start at zero.',
];

function notCarried(config: TrainConfig): string[] {
  const { actor, algorithm, data, rollout, task, trainer } = config;
  const { lossAggMode } = actor;
  const lossMode = actor.policyLoss.lossMode;
  const type = lossType(actor) ?? 'dapo';
  const { rolloutIs, rolloutRs } = correctionSettings(config);
  const updates = data.trainBatchSize / actor.ppoMiniBatchSize;
  const missing: [boolean, string][] = [
    [
      trainer.pipeline !== 'on-policy',
      `trainer.pipeline ${trainer.pipeline}: the script generates and trains in turn.`,
    ],
    [
      lossType(actor) === undefined,
      `actor.policyLoss.lossMode ${lossMode} with lossAggMode ${lossAggMode}: TRL has no such loss; the script uses dapo's.`,
    ],
    [
      ['cispo', 'vespo'].includes(lossMode) && lossAggMode !== 'token-mean',
      `actor.lossAggMode ${lossAggMode}: TRL's ${lossMode} is a mean over tokens.`,
    ],
    [
      updates > 1 && ['dapo', 'cispo', 'vespo'].includes(type),
      `actor.lossAggMode token-mean: TRL 1.10 and later divides an update by the mean tokens of the ${updates} updates of a step, ours by its own tokens; TRL before 1.10 divides by all of them, so its gradient is 1/${updates} of ours.`,
    ],
    [
      updates > 1,
      `actor.shuffle ${actor.shuffle}: TRL shuffles the samples of a step over its updates; here the samples of a prompt stay in one update.`,
    ],
    [
      lossMode === 'cispo' && actor.clipRatioLow < 1,
      `actor.clipRatioLow ${actor.clipRatioLow}: TRL's cispo has no lower bound.`,
    ],
    [
      lossMode === 'vanilla' && !deltaHolds(actor),
      `actor.clipRatioC ${actor.clipRatioC}: as TRL's delta, below 1 + clipRatioHigh, it would bound good advantages too; left out.`,
    ],
    [
      (actor.useKlLoss || actor.entropyCoeff !== 0) &&
        lossType(actor) !== undefined &&
        AGGREGATION[type] !== lossAggMode,
      `actor.lossAggMode ${lossAggMode}: here it is of the KL and entropy terms, whose weights in TRL follow its loss_type ${type}.`,
    ],
    [
      actor.entropyCoeff !== 0 && lossAggMode !== 'token-mean',
      `actor.entropyCoeff: TRL's bonus is a mean over tokens whatever the loss; here it follows lossAggMode ${lossAggMode}.`,
    ],
    [
      actor.entropyTarget !== undefined && updatesOf(config) > 1,
      `actor.entropyTarget: TRL moves the weight once an update, of which a step has ${updatesOf(config)} here.`,
    ],
    [
      actor.useKlLoss && !isKl(config),
      `actor.klLossType ${actor.klLossType}: TRL's KL is k3, or r*k3; the script has no KL term.`,
    ],
    [
      actor.optim.lrSchedulerType === 'linear' && actor.optim.minLrRatio > 0,
      `actor.optim.minLrRatio ${actor.optim.minLrRatio}: TRL's linear schedule ends at 0.`,
    ],
    [isKl(config) && actor.klClamp !== undefined, "actor.klClamp: TRL's KL has no bound."],
    [
      isKl(config) && actor.klLossType === 'r*k3' && isSequenceLevel(config),
      `actor.klLossType r*k3: TRL takes the ratio of the sequence for ${lossMode}, here it is the token's.`,
    ],
    [
      algorithm.advEstimator === 'gdpo',
      'algorithm.advEstimator gdpo: the script has one reward; give each named reward as a function of its own, with reward_weights.',
    ],
    [
      !['grpo', 'gdpo'].includes(algorithm.advEstimator),
      `algorithm.advEstimator ${algorithm.advEstimator}: TRL's GRPOTrainer has grpo's.`,
    ],
    [
      actor.optim.optimizer !== 'AdamW',
      `actor.optim.optimizer ${actor.optim.optimizer}: the script uses AdamW; give GRPOTrainer its \`optimizers\`.`,
    ],
    [algorithm.useKlInReward, 'algorithm.useKlInReward: TRL has the KL in the loss only.'],
    [algorithm.filterGroups.enable === true, 'algorithm.filterGroups: TRL does not draw groups of one score again.'],
    [config.reward.overlongBuffer.len > 0, 'reward.overlongBuffer: add get_soft_overlong_punishment as a reward.'],
    [
      algorithm.replayBufferSize > 0,
      'algorithm.replayBufferSize: that is replay_buffer_size of trl.experimental.grpo_with_replay_buffer.',
    ],
    [
      rolloutIs !== 'none',
      'algorithm.rolloutCorrection.rolloutIs: TRL corrects what vLLM drew alone; with use_vllm=True set vllm_importance_sampling_mode.',
    ],
    [rolloutRs !== '', 'algorithm.rolloutCorrection.rolloutRs: TRL corrects by weights only.'],
    [
      Number(task.options['toolCallBonus'] ?? 0) !== 0,
      'task.options.toolCallBonus: the reward function of the script does not look at tool calls.',
    ],
    [
      callsTools(config),
      'rollout.multiTurn: transformers 5.13 or later parses tool calls; a call that cannot be read ends the sample, and tool output is not cut.',
    ],
    [
      callsTools(config) && !Object.hasOwn(CALL_FIELDS, rollout.multiTurn.format),
      `rollout.multiTurn.format ${rollout.multiTurn.format}: TRL must know the chat template, or model/tokenizer_config.json needs a response_template for this format.`,
    ],
    [
      (['temperature', 'topK', 'topP', 'minP'] as const).some((key) => rollout.valKwargs[key] !== rollout[key]),
      'rollout.valKwargs: TRL evaluates with the temperature, top_k, top_p and min_p of training.',
    ],
    [trainer.testFreq === 0, 'trainer.testFreq 0: the script does not evaluate after the last update.'],
  ];
  return missing.flatMap(([applies, sentence]) => (applies ? [sentence] : []));
}

/** A value as Python writes it. */
function python(value: Setting): string {
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, inner]) => `${JSON.stringify(name)}: ${python(inner)}`)
    .join(', ')}}`;
}

/** train.py, to be started in its own folder. */
export function trlScript({ settings }: TrlRun, withTools: boolean): string {
  const lines = Object.entries(settings).map(([key, value]) => `        ${key}=${python(value)},`);
  // On a device without bfloat16, such as a CPU, TRL's default stops the script.
  lines.push('        bf16=is_torch_bf16_gpu_available(),');
  return `"""Starts this run in TRL: python train.py (or accelerate launch train.py)."""

from datasets import load_dataset
from transformers.utils import is_torch_bf16_gpu_available
from trl import GRPOConfig, GRPOTrainer

${withTools ? 'from calculator import calculator\n' : ''}from reward import compute_score


def reward(completions, answer, **kwargs):
    """Score of the last message of every completion."""
    return [compute_score("", messages[-1]["content"], truth) for messages, truth in zip(completions, answer)]


def main():
    data = load_dataset("parquet", data_files={"train": "data/train.parquet", "test": "data/test.parquet"})
    args = GRPOConfig(
${lines.join('\n')}
    )
    trainer = GRPOTrainer(
        model="model",
        args=args,
        reward_funcs=reward,
        train_dataset=data["train"],
        eval_dataset=data["test"],${withTools ? '\n        tools=[calculator],' : ''}
    )
    trainer.train()
    trainer.save_model("out/model")


if __name__ == "__main__":
    main()
`;
}

/**
 * Converts our config to a script that runs TRL's GRPOTrainer (1.10 to 1.16). test/unit/exportMeanings.test.ts compares the losses of both.
 */

import { policyLossOf } from '../../grpo/losses/index.ts';
import { correctionSettings } from '../../grpo/correction/settings.ts';
import { pipelineOf } from '../../grpo/pipeline/settings.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { warmupSteps } from '../../grpo/update/learningRate.ts';
import { loraModules } from '../../model/lora/config.ts';
import { carry, type Peer, type Setting } from './carry.ts';
import { CALL_FIELDS } from './chatTemplate.ts';
import { callsTools } from '../../rollout/agent/prompt.ts';
import train from './python/train.py?raw';

/** Our lossAggMode that each loss_type of TRL corresponds to. */
const AGGREGATION: Readonly<Record<string, string>> = {
  dapo: 'token-mean',
  cispo: 'token-mean',
  vespo: 'token-mean',
  grpo: 'seq-mean-token-mean',
  sapo: 'seq-mean-token-mean',
  dr_grpo: 'seq-mean-token-sum-norm',
  luspo: 'seq-mean-token-sum',
};

/** Returns TRL's loss_type for our lossMode and lossAggMode; undefined if TRL has none. */
function lossType({ policyLoss: { lossMode }, lossAggMode }: TrainConfig['actor']): string | undefined {
  if (['cispo', 'sapo', 'luspo', 'vespo'].includes(lossMode)) return lossMode;
  if (lossMode !== 'vanilla' && lossMode !== 'gspo') return undefined;
  const aggregation = policyLossOf(lossMode).aggregation ?? lossAggMode;
  return ['dapo', 'grpo', 'dr_grpo'].find((type) => AGGREGATION[type] === aggregation);
}

/**
 * Returns the number of optimizer updates in one of our steps. A step of TRL is one update; a step here generates samples and then makes
 * several updates.
 */
const updatesOf = ({ data, actor }: TrainConfig) => (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
const isSequenceLevel = ({ actor }: TrainConfig) => ['gspo', 'luspo'].includes(actor.policyLoss.lossMode);
/**
 * True if TRL's `delta` can replace clipRatioC. TRL bounds the ratio by delta for advantages of either sign, so a delta below 1 +
 * clipRatioHigh would also clip positive advantages.
 */
const deltaHolds = ({ clipRatioC, clipRatioHigh }: TrainConfig['actor']) => clipRatioC >= 1 + clipRatioHigh;
const isKl = ({ actor }: TrainConfig) => actor.useKlLoss && ['k3', 'low_var_kl', 'r*k3'].includes(actor.klLossType);
const isPlainCosine = ({ minLrRatio, numCycles }: TrainConfig['actor']['optim']) =>
  minLrRatio === 0 && numCycles === 0.5;
/** Returns the number of warm-up updates, whether the config gives it as a number or as a ratio. */
const warmup = (config: TrainConfig) =>
  warmupSteps(config.actor.optim, config.trainer.totalTrainingSteps) * updatesOf(config);
const ifAdaptive = (key: 'entropyCoeffDelta' | 'entropyCoeffMin' | 'entropyCoeffMax') => (config: TrainConfig) =>
  config.actor.entropyTarget === undefined ? undefined : config.actor[key];

const TRL: Peer = {
  name: 'TRL',
  elsewhere:
    /^(model\.(path|lora|target|useRslora|dtype)|task\.|data\.maxPromptLength|rollout\.(multiTurn\.(enable|maxToolResponseLength)|maxNumSeqs)|actor\.(useKlLoss|lossAggMode|shuffle|ppoMaxTokenLen|ppoMicroBatch|optim\.(optimizer|minLrRatio|numCycles|lrWarmupStepsRatio))|algorithm\.(klPenalty|klCtrl|filterGroups|rolloutCorrection\.(rollout[IR]s|bypass))|trainer\.(totalEpochs|logger|resume))/,
  values: {
    'data.trainBatchSize': ({ data, actor }) => data.trainBatchSize / actor.ppoMiniBatchSize,
    'data.chatTemplateKwargs': ({ data }) =>
      Object.keys(data.chatTemplateKwargs).length > 0 ? data.chatTemplateKwargs : undefined,
    'rollout.minP': ({ rollout }) => rollout.minP || undefined,
    'rollout.repetitionPenalty': ({ rollout: { repetitionPenalty } }) =>
      repetitionPenalty === 1 ? undefined : repetitionPenalty,
    'rollout.multiTurn.maxAssistantTurns': (config) =>
      callsTools(config.rollout) ? config.rollout.multiTurn.maxAssistantTurns - 1 : undefined,
    'actor.ppoMiniBatchSize': ({ actor, rollout }) => actor.ppoMiniBatchSize * rollout.n,
    'actor.policyLoss.lossMode': ({ actor }) => lossType(actor) ?? 'dapo',
    // For CISPO, TRL's epsilon_high is the maximum of the weight itself, not of its distance from 1.
    'actor.clipRatioHigh': ({ actor: { policyLoss, clipRatioHigh } }) =>
      policyLoss.lossMode === 'cispo' ? (policyLoss.wMax ?? 1 + clipRatioHigh) : clipRatioHigh,
    'actor.clipRatioC': ({ actor }) =>
      actor.policyLoss.lossMode === 'vanilla' && deltaHolds(actor) ? actor.clipRatioC : undefined,
    'actor.entropyCoeff': ({ actor }) => actor.entropyCoeff || undefined,
    'actor.entropyCoeffDelta': ifAdaptive('entropyCoeffDelta'),
    'actor.entropyCoeffMin': ifAdaptive('entropyCoeffMin'),
    'actor.entropyCoeffMax': ifAdaptive('entropyCoeffMax'),
    'actor.topEntropyQuantile': ({ actor }) => (actor.topEntropyQuantile < 1 ? actor.topEntropyQuantile : undefined),
    'actor.klLossCoef': (config) => (isKl(config) ? config.actor.klLossCoef : 0),
    'actor.klLossType': (config) => (isKl(config) && config.actor.klLossType === 'r*k3') || undefined,
    'actor.optim.betas': ({ actor }) => actor.optim.betas[0],
    'actor.optim.lrSchedulerType': (config) => {
      const { optim } = config.actor;
      if (optim.lrSchedulerType === 'constant') return warmup(config) > 0 ? 'constant_with_warmup' : 'constant';
      return optim.lrSchedulerType === 'linear' || isPlainCosine(optim) ? optim.lrSchedulerType : 'cosine_with_min_lr';
    },
    'actor.optim.lrWarmupSteps': warmup,
    'algorithm.advEstimator': ({ algorithm }) =>
      algorithm.advEstimator === 'gdpo' ? 'normalize_then_sum' : 'sum_then_normalize',
    'algorithm.gdpoRewardWeights': () => undefined,
    'trainer.totalTrainingSteps': (config) => config.trainer.totalTrainingSteps * updatesOf(config),
    'trainer.testFreq': (config) => config.trainer.testFreq * updatesOf(config) || undefined,
    'trainer.saveFreq': (config) =>
      Math.max(1, (config.trainer.saveFreq || config.trainer.totalTrainingSteps) * updatesOf(config)),
    'trainer.defaultLocalDir': () => 'out',
    'trainer.refUpdateFreq': (config) => config.trainer.refUpdateFreq * updatesOf(config) || undefined,
    'trainer.refMixupAlpha': ({ trainer }) => (trainer.refUpdateFreq > 0 ? trainer.refMixupAlpha : undefined),
  },
  lost(config) {
    const { actor, algorithm, data, reward, rollout, task, trainer } = config;
    const { lossMode } = actor.policyLoss;
    const { rolloutIs, rolloutRs } = correctionSettings(config);
    const type = lossType(actor) ?? 'dapo';
    const isMultiple = data.trainBatchSize > actor.ppoMiniBatchSize;
    const isByTokens = AGGREGATION[type] === 'token-mean';
    const hasTerms = actor.useKlLoss || actor.entropyCoeff !== 0 || ['cispo', 'vespo'].includes(lossMode);
    const isElsewise = lossType(actor) !== undefined && AGGREGATION[type] !== actor.lossAggMode;
    return {
      'data.maxPromptLength': 'TRL does not check it',
      'actor.ppoMaxTokenLenPerGpu':
        'TRL trains all samples of an update at once; if memory runs out, halve per_device_train_batch_size and double gradient_accumulation_steps',
      'model.quantization':
        config.model.loraRank > 0 &&
        config.model.quantization !== 'none' &&
        'the script does not quantize the frozen weights',
      'trainer.pipeline': pipelineOf(config).isAsync,
      'trainer.testFreq': trainer.testFreq === 0 && 'the script does not evaluate after the last update',
      'actor.policyLoss.lossMode': lossType(actor) === undefined && 'TRL has no such loss; the script uses dapo',
      'actor.lossAggMode':
        ((hasTerms && isElsewise) || (isMultiple && isByTokens)) &&
        `loss_type ${type} averages in its own way; TRL before 1.10 also divides by the tokens of all updates of a step`,
      'actor.shuffle': isMultiple && 'TRL shuffles samples over the updates of a step, not prompts',
      'actor.clipRatioLow': lossMode === 'cispo' && actor.clipRatioLow < 1,
      'actor.clipRatioC': lossMode === 'vanilla' && !deltaHolds(actor),
      'actor.entropyCoeff':
        actor.entropyCoeff !== 0 && actor.lossAggMode !== 'token-mean' && "TRL's bonus is a mean over tokens",
      'actor.entropyTarget':
        actor.entropyTarget !== undefined && updatesOf(config) > 1 && 'TRL moves the weight at every update',
      'actor.klLossType':
        ((actor.useKlLoss && !isKl(config)) ||
          (isKl(config) && actor.klLossType === 'r*k3' && isSequenceLevel(config))) &&
        'TRL has k3, and r*k3 by the ratio of its loss; without either the script has no KL term',
      'actor.klClamp': isKl(config) && actor.klClamp !== undefined,
      'actor.optim.minLrRatio': actor.optim.lrSchedulerType === 'linear' && actor.optim.minLrRatio > 0,
      'actor.optim.optimizer': actor.optim.optimizer !== 'AdamW' && 'give GRPOTrainer its `optimizers`',
      'algorithm.advEstimator':
        algorithm.advEstimator !== 'grpo' &&
        'TRL has grpo, and gdpo if each named reward is a function of its own, with reward_weights',
      'algorithm.useKlInReward': algorithm.useKlInReward,
      'algorithm.filterGroups.enable': algorithm.filterGroups.enable === true,
      'algorithm.replayBufferSize':
        algorithm.replayBufferSize > 0 && 'see replay_buffer_size of trl.experimental.grpo_with_replay_buffer',
      'algorithm.rolloutCorrection.rolloutIs':
        rolloutIs !== 'none' && 'with use_vllm=True set vllm_importance_sampling_mode',
      'algorithm.rolloutCorrection.rolloutRs': rolloutRs !== '',
      'reward.overlongBuffer.len': reward.overlongBuffer.len > 0 && 'add get_soft_overlong_punishment as a reward',
      'rollout.multiTurn.enable':
        callsTools(config.rollout) &&
        'transformers 5.13 or later parses tool calls; a call that cannot be read ends the sample, and tool output is not cut',
      'rollout.multiTurn.format':
        callsTools(config.rollout) &&
        !Object.hasOwn(CALL_FIELDS, rollout.multiTurn.format) &&
        'TRL must know the chat template, or model/tokenizer_config.json needs a response_template',
      ...Object.fromEntries(
        (['temperature', 'topK', 'topP', 'minP'] as const).map((key) => [
          `rollout.valKwargs.${key}`,
          rollout.valKwargs[key] !== rollout[key] && 'TRL evaluates with the value of training',
        ]),
      ),
      'task.options.toolCallBonus': Number(task.options['toolCallBonus'] ?? 0) !== 0,
    };
  },
};

/** Arguments of TRL's GRPOConfig, and of PEFT's LoraConfig if the run trains adapters. */
interface TrlRun {
  settings: Record<string, Setting>;
  lora?: Record<string, Setting>;
}

/** Returns the arguments that train.py passes to TRL, and one sentence per setting that TRL lacks. */
export function trlRun(config: TrainConfig): TrlRun & { notCarried: string[] } {
  const { settings, notCarried } = carry(config, TRL);
  const { actor, rollout, trainer } = config;
  const { optim } = actor;
  const { minLrRatio: min_lr_rate, numCycles: num_cycles } = optim;
  return {
    settings: {
      ...Object.fromEntries(settings),
      adam_beta2: optim.betas[1],
      importance_sampling_level: isSequenceLevel(config) ? 'sequence' : 'token',
      ...(optim.lrSchedulerType === 'cosine' &&
        !isPlainCosine(optim) && { lr_scheduler_kwargs: { min_lr_rate, num_cycles } }),
      ...(actor.entropyTarget !== undefined && { use_adaptive_entropy: true }),
      ...(trainer.refUpdateFreq > 0 && { sync_ref_model: true }),
      // TRL requires an evaluation batch to contain complete groups of samples.
      ...(trainer.testFreq > 0 && {
        eval_strategy: 'steps',
        per_device_eval_batch_size: actor.ppoMiniBatchSize * rollout.valKwargs.n,
      }),
      logging_steps: 1,
    },
    ...(config.model.loraRank > 0 && { lora: loraArguments(config.model) }),
    notCarried: [...notCarried, 'Numbers: TRL computes in bfloat16 if the GPU has it, unless bf16=False.'],
  };
}

const loraArguments = (model: TrainConfig['model']): Record<string, Setting> => ({
  r: model.loraRank,
  lora_alpha: model.loraAlpha,
  lora_dropout: model.loraDropout,
  target_modules: loraModules(model.targetModules),
  use_rslora: model.useRslora,
  task_type: 'CAUSAL_LM',
});

/** Formats a value as Python source. */
function python(value: Setting): string {
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${python(inner)}`);
  return `{${entries.join(', ')}}`;
}

/** Returns the text of train.py. The script expects to be started in its own folder. */
export function trlScript({ settings, lora }: TrlRun, withTools: boolean): string {
  const lines = Object.entries(settings).map(([key, value]) => `        ${key}=${python(value)},\n`);
  const adapter = Object.entries(lora ?? {}).map(([key, value]) => `${key}=${python(value)}`);
  const unused = [...(withTools ? [] : ['calculator']), ...(lora ? [] : ['LoraConfig'])];
  return unused
    .reduce((script, word) => script.replaceAll(new RegExp(`.*${word}.*\\n`, 'g'), ''), train)
    .replace('GRPOConfig(\n', () => `GRPOConfig(\n${lines.join('')}`)
    .replace('LoraConfig()', () => `LoraConfig(${adapter.join(', ')})`);
}

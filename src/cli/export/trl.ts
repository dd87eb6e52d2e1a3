/** Our config as a script that runs TRL's GRPOTrainer, and the list of what it does not have. */

import type { TrainConfig } from '../../grpo/config/types.ts';
import { correctionSettings } from '../../grpo/correction/settings.ts';

interface TrlRun {
  /** Arguments of TRL's GRPOConfig. */
  settings: Record<string, string | number | boolean>;
  notCarried: string[];
}

/** TRL's loss_type of our loss and aggregation; undefined where it has none. */
function lossType({ lossMode, lossAggMode }: TrainConfig['actor']): string | undefined {
  if (['cispo', 'sapo', 'luspo'].includes(lossMode)) return lossMode;
  if (lossMode !== 'vanilla' && lossMode !== 'gspo') return undefined;
  const byAggregation: Record<string, string> = {
    'token-mean': 'dapo',
    'seq-mean-token-mean': 'grpo',
    'seq-mean-token-sum-norm': 'dr_grpo',
  };
  return byAggregation[lossAggMode];
}

export function trlRun(config: TrainConfig): TrlRun {
  const { actor, algorithm, data, rollout, trainer, seed } = config;
  const { optim } = actor;
  const updates = (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
  const settings = {
    output_dir: 'out',
    seed,
    // One "step" of TRL is one update; ours draws so many prompts and then updates several times.
    max_steps: trainer.totalTrainingSteps * updates,
    per_device_train_batch_size: actor.ppoMiniBatchSize * rollout.n,
    steps_per_generation: data.trainBatchSize / actor.ppoMiniBatchSize,
    num_iterations: actor.ppoEpochs,
    num_generations: rollout.n,
    max_completion_length: data.maxResponseLength,
    temperature: rollout.temperature,
    top_p: rollout.topP,
    top_k: rollout.topK,
    ...(rollout.minP > 0 && { min_p: rollout.minP }),
    learning_rate: optim.lr,
    adam_beta1: optim.betas[0],
    adam_beta2: optim.betas[1],
    adam_epsilon: optim.eps,
    weight_decay: optim.weightDecay,
    max_grad_norm: actor.gradClip,
    lr_scheduler_type:
      optim.lrScheduler === 'constant' && optim.lrWarmupSteps > 0 ? 'constant_with_warmup' : optim.lrScheduler,
    warmup_steps: optim.lrWarmupSteps,
    beta: actor.klLossCoef,
    epsilon: actor.clipRatioLow,
    epsilon_high: actor.clipRatioHigh,
    loss_type: lossType(actor) ?? 'dapo',
    importance_sampling_level: ['gspo', 'luspo'].includes(actor.lossMode) ? 'sequence' : 'token',
    scale_rewards: algorithm.scaleRewards,
    mask_truncated_completions: algorithm.maskTruncated,
    ...(actor.lossMode === 'sapo' && sapoSettings(config)),
    ...(rollout.multiTurn.enable && { max_tool_calling_iterations: rollout.multiTurn.maxAssistantTurns - 1 }),
    logging_steps: 1,
    save_steps: Math.max(1, trainer.saveFreq * updates || trainer.totalTrainingSteps * updates),
  };
  return { settings, notCarried: notCarried(config) };
}

function sapoSettings({ actor: { policyLoss } }: TrainConfig) {
  return {
    ...(policyLoss.tauPos !== undefined && { sapo_temperature_pos: policyLoss.tauPos }),
    ...(policyLoss.tauNeg !== undefined && { sapo_temperature_neg: policyLoss.tauNeg }),
  };
}

function notCarried(config: TrainConfig): string[] {
  const { actor, algorithm, rollout, task } = config;
  const missing: [boolean, string][] = [
    [
      lossType(actor) === undefined,
      `actor.lossMode ${actor.lossMode} with lossAggMode ${actor.lossAggMode}: TRL has no such loss; the script uses dapo's.`,
    ],
    [
      algorithm.advEstimator !== 'grpo',
      `algorithm.advEstimator ${algorithm.advEstimator}: TRL's GRPOTrainer has grpo's.`,
    ],
    [actor.clipRatioC < 1e6, 'actor.clipRatioC (dual clip): TRL clips from above alone (its delta is another rule).'],
    [
      actor.optim.optimizer !== 'AdamW',
      `actor.optim.optimizer ${actor.optim.optimizer}: the script uses AdamW; give GRPOTrainer its \`optimizers\`.`,
    ],
    [actor.entropyCoeff !== 0, 'actor.entropyCoeff: TRL has no entropy bonus.'],
    [algorithm.useKlInReward, 'algorithm.useKlInReward: TRL has the KL in the loss only.'],
    [algorithm.filterGroups.enable === true, 'algorithm.filterGroups: TRL does not draw groups of one score again.'],
    [
      (algorithm.overlongBuffer.len ?? 0) > 0,
      'algorithm.overlongBuffer: add get_soft_overlong_punishment as a reward.',
    ],
    [
      algorithm.replayBufferSize > 0,
      'algorithm.replayBufferSize: that is replay_buffer_size of trl.experimental.grpo_with_replay_buffer.',
    ],
    [algorithm.lengthPenalty.type !== 'none', 'algorithm.lengthPenalty: prime-rl has it, TRL has not.'],
    [
      correctionSettings(config).rolloutRs !== '',
      'algorithm.rolloutCorrection.rolloutRs: TRL corrects by weights only.',
    ],
    [
      Number(task.options['toolCallBonus'] ?? 0) !== 0,
      'task.options.toolCallBonus: the reward function of the script does not look at tool calls.',
    ],
    [rollout.multiTurn.enable, 'Tools: tool calls are parsed by TRL, from the chat template; a recent TRL is needed.'],
    [true, 'data.maxPromptLength: TRL does not check it.'],
    [true, 'Random numbers: the same seed draws other samples. Optimizer state: moments start at zero.'],
  ];
  return missing.flatMap(([applies, sentence]) => (applies ? [sentence] : []));
}

/** train.py, to be started in its own folder. */
export function trlScript({ settings }: TrlRun, withTools: boolean): string {
  const python = (value: string | number | boolean) =>
    typeof value === 'boolean' ? (value ? 'True' : 'False') : JSON.stringify(value);
  const lines = Object.entries(settings).map(([key, value]) => `        ${key}=${python(value)},`);
  return `"""Starts this run in TRL: python train.py (or accelerate launch train.py)."""

from datasets import load_dataset
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

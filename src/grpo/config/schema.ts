/**
 * The schema of a training run's YAML. Names are verl's in camelCase; where a default is not verl's, the reason says so.
 * Keys marked "from algorithm.name" have no default of their own: a config is read over its recipe, `recipes.ts`.
 */

import * as v from 'valibot';
import { ADVANTAGE_ESTIMATORS, type AdvantageEstimator } from '../advantages/index.ts';
import { LOSS_AGG_MODES } from '../losses/aggregate.ts';
import {
  choice,
  count,
  flag,
  names,
  number,
  optionalChoice,
  optionalCount,
  optionalFlag,
  optionalNames,
  optionalNumber,
  optionalNumberOrText,
  optionalNumbers,
  optionalText,
  optionalTexts,
  options,
  pair,
  part,
  positive,
  requiredText,
  text,
} from './keys.ts';
import { PACKED_FORMATS } from '../../gpu/packedFormat.ts';
import { LORA_MODULES } from '../../model/lora/config.ts';
import { KL_TYPES } from '../losses/kl.ts';
import { TOOL_PARSERS } from '../../rollout/tools/parser.ts';
import { JUDGE_PROMPT } from '../../tasks/rewards/judgePrompt.ts';
import { SHIPPED_TOOLS } from '../../tasks/shippedTools.ts';
import { POLICY_LOSSES } from '../losses/index.ts';
import { DEFAULT_RECIPE, RECIPES } from './recipes.ts';

const ANY: [number, number] = [0, Infinity];
const SHARE: [number, number] = [0, 1];
const ESTIMATORS = Object.keys(ADVANTAGE_ESTIMATORS) as AdvantageEstimator[];

const model = part({
  path: requiredText(
    'Hugging Face checkpoint: a folder, org/name (@revision), the URL of a folder; or a YAML of webgrpo sft, run first.',
  ),
  maxMemoryMib: optionalCount('MiB', 'Cap on GPU memory; absent = none, since WebGPU cannot tell how much there is.'),
  loraRank: count(0, '', 'Train LoRA adapters of this rank and keep the weights frozen; 0 = train every weight.', 0),
  loraAlpha: positive(16, '', 'Adapters count loraAlpha / loraRank times (with useRslora: / sqrt(loraRank)).'),
  targetModules: names(
    ['all-linear'],
    [...LORA_MODULES, 'all-linear'],
    "What gets an adapter, by PEFT's names; all-linear = every linear module of the layers.",
  ),
  loraDropout: number(0, [0, 0.99], 'share', "Adapter inputs set to 0 in training; PEFT's lora_dropout."),
  useRslora: flag(false, 'Rank-stabilised scale (arXiv:2312.03732), for large ranks.'),
  quantization: choice(
    'none',
    ['none', ...PACKED_FORMATS],
    'How the frozen weights under adapters are kept, block-wise; made float32 where they are used. Only with LoRA.',
  ),
  dtype: choice(
    'float32',
    ['float32', 'float16'],
    'What products read and write: weights, activations, KV cache. Sums, gradients and what AdamW updates stay float32. ' +
      'float16 needs shader-f16; an adapter without it goes on in float32 and says so.',
  ),
  loraAdapterPath: optionalText('Folder of a PEFT adapter to start from; its rank, alpha and modules hold.'),
  enableGradientCheckpointing: flag(
    false,
    "Keep only each layer's input and run layers again in backward: less memory, slower. verl has true.",
  ),
});

const task = part({
  name: text('gsm8k', 'Which task: its problems, tools and reward.'),
  path: optionalText('JSONL file of training problems; absent = the task generates its own.'),
  valPath: optionalText('JSONL file of held-out problems; absent = the task generates its own.'),
  options: options("The task's own settings, checked by the task."),
  tools: optionalNames(SHIPPED_TOOLS, 'What the model may call beside the tools of the task; absent = nothing.'),
});

const data = part({
  trainBatchSize: count(16, 'prompts', 'Prompts a step; samples a step = this x rollout.n.'),
  maxPromptLength: count(160, 'tokens', 'A longer prompt is refused, never cut.'),
  maxResponseLength: count(160, 'tokens', 'Everything after the prompt, tool output included.'),
  valSize: count(256, 'problems', 'Held-out problems an evaluation uses; 256 gives pass@1 to about 3 points.'),
});

const multiTurn = part({
  enable: flag(true, 'Lets the model call tools; false = one answer, tool calls are plain text.'),
  maxAssistantTurns: count(6, 'turns', 'Assistant messages a sample may write.'),
  maxToolCalls: count(5, 'calls', 'Tool calls a sample may make, over all turns.'),
  maxToolResponseLength: count(64, 'characters', 'Longer tool output is cut at its end.'),
  toolResponseTruncateSide: choice('right', ['left', 'right', 'middle'], 'Which part of too long tool output goes.'),
  toolTimeoutS: positive(10, 's', 'A tool that takes longer answers with an error text.'),
  sampleTimeoutS: optionalNumber(ANY, 's', 'A sample that takes longer ends as it is; absent = no limit.'),
  onParseError: choice('tell', ['tell', 'stop'], 'tell = the model reads what is wrong with its call; stop = it ends.'),
  onToolFailure: choice('tell', ['tell', 'stop'], 'The same for a tool that throws or takes too long.'),
  format: choice(
    'hermes',
    Object.keys(TOOL_PARSERS),
    'How a tool call is written; hermes = <tool_call>{json}</tool_call>.',
  ),
  constrainToolCalls: flag(
    false,
    'A call that was begun can only go on validly, by the schemas. A step a read-back, or a guess.',
  ),
  toolSchemasInPrompt: flag(
    false,
    "The template writes the tools' schemas into the prompt; models made for that want it.",
  ),
});

const agent = part({
  defaultAgentLoop: text('tool_agent', 'single_turn, tool_agent, or one registered by registerAgentLoop().'),
});

const valKwargs = part({
  n: count(1, 'samples', 'Samples per held-out problem; more narrows the error of pass@1 and gives pass@k.'),
  temperature: number(1, ANY, '', '1 = what training samples from; 0 = greedy.'),
  topK: count(0, 'tokens', '0 = off.', 0),
  topP: number(1, [1e-6, 1], 'probability', '1 = off.'),
  minP: number(0, SHARE, 'share of the largest probability', '0 = off.'),
});

const speculative = part({
  enable: flag(
    false,
    'Guess tokens and check several in one pass; no token or log-prob changes. For few, repetitive sequences.',
  ),
  maxDraftTokens: count(8, 'tokens', 'Guessed at once for a sequence, at most; adapts to how many come true.'),
  minNgram: count(3, 'tokens', 'So many last tokens must have occurred before, in the prompt or a sample of it.'),
  history: count(8, 'samples', 'Finished samples remembered for each prompt, over steps.', 0),
  adapt: flag(true, 'Guess only while a token takes less time with guesses than without; no token depends on it.'),
  verifyRows: optionalCount('rows', 'Rows of logits a pass may check; absent = maxSlots, which takes no memory more.'),
});

const rollout = part({
  n: count(8, 'samples', 'Samples per prompt: the group that advantages are computed over.'),
  temperature: positive(1, '', 'Training divides logits by it as well, so that both see one distribution.'),
  topK: count(0, 'tokens', 'Keep the k likeliest; 0 = off. Training renormalises by the kept mass.', 0),
  topP: number(1, [1e-6, 1], 'probability', 'Keep the smallest set of this mass; 1 = off.'),
  minP: number(0, SHARE, 'share of the largest probability', 'Keep tokens above this share; 0 = off.'),
  repetitionPenalty: positive(1, '', 'Above 1 makes tokens of the context and the turn less likely; 1 = off.'),
  presencePenalty: number(0, [-Infinity, Infinity], 'logit', 'Taken off tokens that the turn has drawn; 0 = off.'),
  frequencyPenalty: number(0, [-Infinity, Infinity], 'logit', 'Taken off for each time it was drawn; 0 = off.'),
  minNewTokens: count(0, 'tokens', 'A turn cannot end before so many; 0 = off.', 0),
  stop: optionalTexts('Texts that end a turn, wherever in a token; absent = only its end token does.'),
  includeStopStrInOutput: flag(false, "Whether tools and rewards see such a text in the turn; vLLM's name."),
  overSampleRate: number(0, [0, 8], 'share of prompts', 'Start so many more, train on the first complete; 0 = off.'),
  partialRollout: flag(false, 'Go on in the next step with what overSampleRate left over; false = throw it away.'),
  maxSlots: count(128, 'sequences', 'Sequences decoded at once; bounds the KV cache.'),
  preemption: choice(
    'parked',
    ['off', 'parked', 'latest'],
    'Whose slot goes to one that waits: samples in a slow tool call, or latest arrived first; no token changes.',
  ),
  asyncScheduling: choice(
    'auto',
    ['auto', 'on', 'off'],
    'Start a pass before the last one was read, so that the GPU never waits; auto = where it pays; no token changes.',
  ),
  speculative: v.optional(speculative, {}),
  multiTurn: v.optional(multiTurn, {}),
  agent: v.optional(agent, {}),
  valKwargs: v.optional(valKwargs, {}),
});

const optim = part({
  lr: positive(
    2.5e-4,
    '',
    'Peak rate, for models of about a million parameters; real ones want 1e-6 (all) or 1e-5 (LoRA).',
  ),
  betas: pair([0.9, 0.95], [0, 1], 'Decay of the two moments; 0.95 follows the fast changing gradients of RL.'),
  eps: positive(1e-8, '', 'Added to the root of the second moment.'),
  weightDecay: number(0, ANY, '', "Decoupled, matrices only. verl's 0.01 makes no difference over so few steps."),
  lrScheduler: choice('constant', ['constant', 'cosine'], 'cosine falls to minLrRatio over totalTrainingSteps.'),
  lrWarmupSteps: count(0, 'updates', 'Linear rise from 0 to lr.', 0),
  minLrRatio: number(0, SHARE, 'share of lr', 'Where cosine ends.'),
  numCycles: positive(0.5, 'periods', 'Of cosine over the run; 0.5 falls once from lr to its end.'),
});

/** Numbers of single losses; each is read by the loss it is named for, whose file in `losses/` has its default. */
const policyLoss = part({
  tauPos: optionalNumber(ANY, '', 'SAPO: temperature of the gate where the advantage is positive.'),
  tauNeg: optionalNumber(ANY, '', 'SAPO: the same where it is negative.'),
  wMax: optionalNumber(ANY, '', 'CISPO: upper weight itself; absent = 1 + clipRatioHigh, as verl reads its bound.'),
  clipCovRatio: optionalNumber(SHARE, 'share of tokens', 'clip_cov: how many tokens lose their gradient.'),
  clipCovLb: optionalNumber([-Infinity, Infinity], '', 'clip_cov: lower bound of the covariance picked from.'),
  clipCovUb: optionalNumber([-Infinity, Infinity], '', 'clip_cov: upper bound.'),
  klCovRatio: optionalNumber(SHARE, 'share of tokens', 'kl_cov: how many tokens get the KL penalty.'),
  ppoKlCoef: optionalNumber(ANY, '', 'kl_cov: weight of that penalty.'),
  droBeta: optionalNumber(ANY, '', 'DRO: weight of the quadratic term.'),
  vespoKPos: optionalNumber(ANY, '', 'VESPO, positive advantage.'),
  vespoKNeg: optionalNumber(ANY, '', 'VESPO, negative advantage.'),
  vespoLambdaPos: optionalNumber(ANY, '', 'VESPO, positive advantage.'),
  vespoLambdaNeg: optionalNumber(ANY, '', 'VESPO, negative advantage.'),
});

const actor = part({
  ppoMiniBatchSize: count(8, 'prompts', 'Prompts an update; trainBatchSize / this = updates a step.'),
  ppoEpochs: count(1, 'passes', "Passes over a step's samples."),
  ppoMicroBatchSize: optionalCount('sequences', 'Sequences a micro-batch; absent = cut by maxTokenLen. Memory only.'),
  maxTokenLen: count(4096, 'tokens', 'Tokens a micro-batch at most. Memory and speed only, never the gradient.'),
  lossMode: optionalChoice(Object.keys(POLICY_LOSSES), 'Policy loss; from algorithm.name.'),
  lossAggMode: optionalChoice(LOSS_AGG_MODES, 'How token losses become one number; from algorithm.name.'),
  clipRatio: optionalNumber(ANY, '', 'Sets clipRatioLow and clipRatioHigh together.'),
  clipRatioLow: optionalNumber(ANY, '', 'Lower clip: ratio >= 1 - this; from algorithm.name.'),
  clipRatioHigh: optionalNumber(ANY, '', 'Upper clip: ratio <= 1 + this; from algorithm.name.'),
  clipRatioC: optionalNumber([1, Infinity], '', 'Dual clip constant, above 1; from algorithm.name.'),
  policyLoss: v.optional(policyLoss, {}),
  entropyCoeff: optionalNumber([-Infinity, Infinity], '', 'Weight of the entropy bonus; from algorithm.name (0).'),
  entropyTarget: optionalNumber(
    ANY,
    'nats a token',
    'Adaptive bonus: the weight rises while entropy is at or below this, else falls and is not applied; absent = fixed.',
  ),
  entropyCoeffDelta: number(0.005, ANY, '', 'Adaptive bonus: change of the weight a step.'),
  entropyCoeffMin: number(0, ANY, '', 'Adaptive bonus: lower end of the weight.'),
  entropyCoeffMax: number(1, ANY, '', 'Adaptive bonus: upper end of the weight.'),
  topEntropyQuantile: number(
    1,
    [1e-6, 1],
    'share of tokens',
    'Policy loss on the tokens of highest entropy only (0.2 in arXiv:2506.01939); below 1 costs a forward pass an update.',
  ),
  useKlLoss: optionalFlag('KL to the frozen reference in the loss; absent = when klLossCoef is above 0.'),
  klLossCoef: optionalNumber(ANY, '', 'Weight of that KL; 0 = off. 0.001 where only useKlLoss is set.'),
  klLossType: optionalChoice([...KL_TYPES, 'kl', 'mse', 'low_var_kl'], 'Its estimator; from algorithm.name (k3).'),
  klClamp: optionalNumber(
    ANY,
    'nats',
    "Bound on k3's value. 10 = verl, where a policy far below the reference then gets no gradient back; absent = none.",
  ),
  gradClip: number(1, ANY, '', 'Largest global L2 norm of the gradient; 0 = no clipping.'),
  shuffle: flag(true, 'Order of mini-batches anew in each epoch, by seed.'),
  optim: v.optional(optim, {}),
});

const algorithm = part({
  name: choice(
    DEFAULT_RECIPE,
    Object.keys(RECIPES),
    'Published method: sets loss, advantage, aggregation and clip together.',
  ),
  advEstimator: optionalChoice(ESTIMATORS, 'Advantage; from algorithm.name.'),
  normAdvByStdInGrpo: optionalFlag(
    "Divide by the group's std; false = Dr. GRPO. The same as scaleRewards group | none.",
  ),
  scaleRewards: optionalChoice(['group', 'batch', 'none'], 'Which std divides the advantage; from algorithm.name.'),
  gdpoRewardKeys: optionalTexts("gdpo: which of the task's named rewards; absent = all of them."),
  gdpoRewardWeights: optionalNumbers('gdpo: weight of each, in the same order; absent = 1.'),
  gamma: number(1, SHARE, '', 'Discount per token or turn, for the estimators that have one.'),
  maskTruncated: optionalFlag('Do not train on samples cut at the length limit; from algorithm.name.'),
  filterGroups: v.optional(
    part({
      enable: optionalFlag('Replace groups whose samples all score the same (DAPO); from algorithm.name.'),
      metric: choice('acc', ['acc', 'score'], 'What must differ within a group.'),
      maxNumGenBatches: count(
        10,
        'batches',
        'Give up filling the batch after so many; it then trains on what there is.',
      ),
    }),
    {},
  ),
  overlongBuffer: v.optional(
    part({
      len: optionalCount('tokens', 'Penalty grows over the last tokens before the limit (DAPO); 0 = off.', 0),
      penaltyFactor: number(1, ANY, 'reward', 'Penalty at the limit itself.'),
    }),
    {},
  ),
  useKlInReward: flag(false, 'KL as a reward penalty instead of a loss term.'),
  klPenalty: choice('k1', [...KL_TYPES, 'kl', 'mse', 'low_var_kl'], 'Its estimator.'),
  klCtrl: v.optional(
    part({
      type: choice('fixed', ['fixed', 'adaptive'], 'adaptive moves klCoef towards targetKl.'),
      klCoef: number(0.001, ANY, '', 'Weight of the KL in the reward.'),
      horizon: count(10_000, 'samples', 'adaptive: how slowly it moves.'),
      targetKl: number(0.1, ANY, 'nats', 'adaptive: where it moves to.'),
    }),
    {},
  ),
  rolloutCorrection: v.optional(
    part({
      rolloutIs: optionalChoice(['none', 'token', 'sequence'], 'Importance weight of trainer against sampler.'),
      rolloutIsThreshold: optionalNumberOrText(
        '',
        'Weights above are cut to it; "low_high", e.g. 0.5_5, drops those outside (IcePop). Absent = 2.',
      ),
      rolloutIsBatchNormalize: flag(false, 'Divide the weights by their mean.'),
      rolloutRs: optionalText(
        'Rejection: token_k1|k2|k3, seq_sum_k1|k2|k3, seq_mean_k1|k2|k3, seq_max_k2|k3, several joined by commas.',
      ),
      rolloutRsThreshold: optionalNumberOrText(
        '',
        'Of rolloutRs: one for all or one each, joined by commas; for k1 "low_high" bounds on the ratio.',
      ),
      bypassMode: optionalFlag(
        'true = ratios are against the sampler; false = log-probs are computed anew before the update (three policies). ' +
          "Absent = false where rolloutIs or rolloutRs is set. verl's false would cost a pass that finds the same bits here.",
      ),
      offPolicyMaskThreshold: optionalNumber(
        ANY,
        'nats a token',
        'Drop samples with a negative advantage that drifted further from the sampler (OPSM); absent = off.',
      ),
    }),
    {},
  ),
});

/** Models that score samples beside the task's rule; see modelRewards.ts. */
const reward = part({
  ruleWeight: number(1, [-Infinity, Infinity], '', "Weight of the task's own score; the models' are added to it."),
  judge: v.optional(
    part({
      weight: number(0, [-Infinity, Infinity], '', 'Of a score from 0 to 1 by a judge; 0 = no judge.'),
      path: optionalText(
        'Chat model for transformers.js (ONNX), a folder or a name; absent = the reference weights, on our own engine.',
      ),
      prompt: text(JUDGE_PROMPT, 'What it reads, with {question}, {response} and {answer}; it replies with a number.'),
      max: positive(10, '', 'The number that counts as 1; others out of 0 to this count as 0.'),
      maxPromptLength: count(512, 'tokens', 'A sample whose prompt is longer is not judged.'),
      maxNewTokens: count(16, 'tokens', 'Room for its reply, drawn greedily.'),
      maxSlots: count(16, 'sequences', 'Samples judged at once by the reference; bounds its KV cache.'),
    }),
    {},
  ),
  model: v.optional(
    part({
      path: optionalText('Text classifier for transformers.js, a folder or a name; absent = none.'),
      label: optionalText('The label whose probability is the score; absent = the likeliest. One output: its sigmoid.'),
      weight: number(1, [-Infinity, Infinity], '', 'Of that probability.'),
    }),
    {},
  ),
});

const trainer = part({
  totalTrainingSteps: count(60, 'steps', 'Rollout batches to train on.', 0),
  testFreq: count(20, 'steps', 'Evaluate every so many; 0 = only before and after.', 0),
  saveFreq: count(0, 'steps', 'Checkpoint every so many; 0 = only at the end and on Ctrl-C.', 0),
  valBeforeTrain: flag(true, 'Evaluate at step 0, so that there is something to compare with.'),
  profile: flag(true, 'Write what every sample spent its time on, for webgrpo profile.'),
  profileGpu: flag(false, 'The profile also says how long the GPU computed, where the adapter has timestamps.'),
  logRollouts: count(8, 'samples', 'Sampled rollouts written per step, for reading; 0 = none.', 0),
  outDir: text('runs', 'The run folder is <outDir>/<name>.'),
  refUpdateFreq: count(0, 'steps', 'Refresh the reference of KL terms from the policy every so many; 0 = never.', 0),
  refMixupAlpha: number(1, SHARE, '', 'Share of the policy in a refreshed reference; 1 = a copy.'),
  kernelTuning: text(
    'auto',
    'auto = time the kernels once where the built-in choice was not measured; off = built in; or a file of webgrpo tune.',
  ),
  resume: flag(false, 'Continue from the last checkpoint in the run folder.'),
});

export const TRAIN_SCHEMA = part({
  name: requiredText('Name of the run; letters, digits, ., _ and -.'),
  engine: choice('wgsl', ['wgsl', 'tfjs'], 'wgsl = own kernels; tfjs = gradients by autodiff, slower, a check.'),
  seed: count(1, '', 'Everything random follows from it: same seed and adapter, same run.', 0),
  model,
  task: v.optional(task, {}),
  data: v.optional(data, {}),
  rollout: v.optional(rollout, {}),
  actor: v.optional(actor, {}),
  algorithm: v.optional(algorithm, {}),
  reward: v.optional(reward, {}),
  trainer: v.optional(trainer, {}),
});

/** As written: what the recipe gives may still be absent. */
export type WrittenConfig = v.InferOutput<typeof TRAIN_SCHEMA>;

/**
 * Explains why a run does not learn, from its metrics, config and logged samples. Used by `webgrpo doctor`, the page's table of runs, and
 * the notes of `webgrpo compare`.
 */

import { valueAt } from '../grpo/config/tree.ts';
import type { TrainConfig } from '../grpo/config/types.ts';
import { CALLS_FAIL, commonError } from '../grpo/health.ts';
import type { Metrics } from '../grpo/metrics.ts';
import type { LoggedRollout } from '../runs/rollouts.ts';
import { PASS_AT_1 } from './metricOf.ts';

export interface DiagnosedRun {
  /** Lines of metrics.jsonl. */
  history: readonly Metrics[];
  config: TrainConfig;
  /** Logged samples of the run. Without them, causes are decided by metrics alone. */
  samples: readonly LoggedRollout[];
}

/** Value of a metric, or its mean over steps. */
export interface Evidence {
  metric: string;
  /** First and last step. */
  steps: [number, number];
  value: number;
}

interface Finding {
  found: boolean;
  evidence: (Evidence | undefined)[];
  /** The most frequent error text in the logged samples, if the cause has one. */
  quote?: string | undefined;
}

export interface Cause {
  name: string;
  /** Fault as one sentence, without a full stop. */
  say: string;
  /** Condition in words, with its thresholds, which are rules of thumb. */
  when: string;
  /** Advice on what to change. */
  change: string;
  /** Keys of settings whose values are shown with the cause. */
  settings: readonly string[];
  /** Names of causes that follow from this one. They are not reported together with it. */
  hides?: readonly string[];
  /** Looks for the cause in a run. Returns undefined if the run lacks metrics or steps. */
  find(run: Curves): Finding | undefined;
}

/** Number of steps at the start and at the end of a run that are averaged. */
const windowOf = (steps: number) => Math.max(3, Math.min(10, Math.floor(steps / 4)));

const average = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

/** Metrics of a run: of all its training steps with a finite score, of the first and of the last of them. */
class Curves {
  readonly config: TrainConfig;
  readonly samples: readonly LoggedRollout[];
  readonly history: readonly Metrics[];
  readonly steps: readonly Metrics[];
  readonly first: readonly Metrics[];
  readonly last: readonly Metrics[];

  constructor({ history, config, samples }: DiagnosedRun) {
    [this.history, this.config, this.samples] = [history, config, samples];
    this.steps = history.filter((line) => Number.isFinite(line['critic/score/mean']));
    const size = windowOf(this.steps.length);
    [this.first, this.last] = [this.steps.slice(0, size), this.steps.slice(-size)];
  }

  /** Returns the mean over the lines that have the metric; undefined if none has. */
  mean(metric: string, lines: readonly Metrics[] = this.last): Evidence | undefined {
    const known = lines.filter((line) => Number.isFinite(line[metric] ?? NaN));
    if (known.length === 0) return undefined;
    return { metric, steps: ends(known), value: average(known.map((line) => line[metric])) };
  }

  /** Like `mean`, for metrics that a line omits if they are 0. */
  share(metric: string): Evidence | undefined {
    const filled = this.last.map((line) => ({ ...line, [metric]: line[metric] ?? 0 }));
    return this.mean(metric, filled);
  }

  /** Returns the step at which the metric has its largest absolute value. */
  peak(metric: string): Evidence | undefined {
    const each = this.steps.flatMap((line) => this.mean(metric, [line]) ?? []);
    return each.length === 0 ? undefined : each.reduce((a, b) => (Math.abs(b.value) > Math.abs(a.value) ? b : a));
  }

  /**
   * Noise of the difference between the means of the last and the first steps: twice its standard error, estimated from the changes between
   * adjacent steps.
   */
  noise(metric: string): number {
    const values = this.steps.map((line) => line[metric]).filter((value) => Number.isFinite(value));
    const changes = values.slice(1).map((value, i) => (value - values[i]) ** 2);
    return changes.length === 0 ? 0 : 2 * Math.sqrt(average(changes) / windowOf(values.length));
  }

  /** Returns the score of the first and the last steps, and whether it rose by more than its noise. */
  get score(): { first: Evidence; last: Evidence; rose: boolean } {
    const name = 'critic/score/mean';
    const [first, last] = [this.mean(name, this.first)!, this.mean(name)!];
    return { first, last, rose: last.value - first.value > Math.max(this.noise(name), 1e-6) };
  }

  /** Returns the best mean score of adjacent steps, as many as are averaged at the end. */
  get best(): Evidence {
    const size = this.last.length;
    const parts = this.steps.map((_, i) => this.steps.slice(i, i + size)).filter((part) => part.length === size);
    const means = parts.map((part) => this.mean('critic/score/mean', part)!);
    return means.reduce((a, b) => (b.value > a.value ? b : a));
  }

  /** True if samples of a group earned different scores in at least a fifth of the groups. */
  get differs(): boolean {
    return (this.mean('frac_reward_zero_std', this.steps)?.value ?? 0) < 0.8;
  }

  /**
   * Fraction of logged groups of the last steps in which all samples have the same text. Undefined with fewer than three groups of four
   * samples.
   */
  get equalGroups(): Evidence | undefined {
    const steps = ends(this.last);
    const groups = new Map<string, string[]>();
    for (const { step, group, messages, promptMessages } of this.samples) {
      if (step < steps[0] || step > steps[1]) continue;
      const text = JSON.stringify(messages.slice(promptMessages).map(({ content }) => content));
      groups.set(`${step} ${group}`, [...(groups.get(`${step} ${group}`) ?? []), text]);
    }
    const several = [...groups.values()].filter((texts) => texts.length >= Math.min(4, this.config.rollout.n));
    if (several.length < 3) return undefined;
    const value = several.filter((texts) => new Set(texts).size === 1).length / several.length;
    return { metric: 'share of logged groups whose samples are the same text', steps, value };
  }
}

const ends = (lines: readonly Metrics[]): [number, number] => [
  lines[0]?.['training/global_step'] ?? 0,
  lines.at(-1)?.['training/global_step'] ?? 0,
];

/** Causes, in the order in which to look at them. */
export const CAUSES: readonly Cause[] = [
  {
    name: 'not-finite',
    say: 'Numbers of the run are not finite',
    when: '`training/not_finite` is 1 in a step',
    change:
      'Lower actor.optim.lr, or look at the rewards, the loss and the start model. errors/step-N.jsonl has the inputs.',
    settings: ['actor.optim.lr', 'actor.gradClip'],
    hides: ['rate-too-high', 'tool-calls-fail', 'reward-never', 'reward-always', 'no-spread', 'truncated', 'longer'],
    find: (run) => {
      const lines = run.history.filter((line) => line['training/not_finite'] === 1);
      return { found: lines.length > 0, evidence: [run.mean('training/not_finite', lines)] };
    },
  },
  {
    name: 'probabilities-differ',
    say: 'Sampler and trainer compute different probabilities for the same tokens',
    when: 'the mean of `training/rollout_probs_diff_max` over the steps without stale tokens is at least 0.02',
    change:
      'Both must use the same weights, temperature and tokens: look at custom agent loops, clients and quantised weights. algorithm.rolloutCorrection corrects what must remain.',
    settings: ['rollout.agent.defaultAgentLoop', 'rollout.temperature', 'model.quantization'],
    find: (run) => {
      const fresh = run.steps.filter((line) => !line['training/stale_tokens_share']);
      const [most, mean] = ['max', 'mean'].map((kind) => run.mean(`training/rollout_probs_diff_${kind}`, fresh));
      return most && { found: most.value >= 0.02, evidence: [most, mean] };
    },
  },
  {
    name: 'rate-too-high',
    say: 'The learning rate is too high: the reward fell back',
    when: '`critic/score/mean` of the last steps is below its best by more than its noise and a third of the best, and a step moved the policy by 0.01 nats (`actor/ppo_kl`); or a step moved it by 0.1 nats and the score has not risen',
    change:
      'Lower actor.optim.lr to a third. Shipped recipes use 3e-4 for 0.4 M parameters, 2e-5 to 1e-4 for 135 M and 1e-5 for 500 M. A klLossCoef of 0.001 also helps.',
    settings: ['actor.optim.lr', 'actor.gradClip', 'actor.ppoEpochs'],
    hides: ['tool-calls-fail', 'reward-never', 'no-spread', 'truncated', 'longer', 'entropy-collapsed', 'clipped'],
    find: (run) => {
      const { last, rose } = run.score;
      const [best, kl] = [run.best, run.peak('actor/ppo_kl')];
      const fall = best.value - last.value;
      const fell = fall > run.noise('critic/score/mean') && fall > Math.abs(best.value) / 3;
      // With one update per step, the policy of the update is the one that sampled, so actor/ppo_kl is always 0.
      const moved = Math.abs(kl?.value ?? 0);
      const found = moved >= 0.1 ? !rose : fell && (moved >= 0.01 || moved === 0);
      return { found, evidence: [best, last, kl] };
    },
  },
  {
    name: 'tool-calls-fail',
    say: CALLS_FAIL.say,
    when: `\`tool_call_counts/error_rate\` is at least ${CALLS_FAIL.share} in the last ${CALLS_FAIL.steps} steps with calls`,
    change: CALLS_FAIL.change,
    settings: ['rollout.multiTurn.format', 'rollout.multiTurn.toolSchemasInPrompt'],
    hides: ['reward-never', 'no-spread', 'truncated', 'entropy-collapsed'],
    find: (run) => {
      const lines = run.steps
        .filter((line) => line['tool_call_counts/error_rate'] !== undefined)
        .slice(-CALLS_FAIL.steps);
      const rate = run.mean('tool_call_counts/error_rate', lines);
      const found =
        lines.length === CALLS_FAIL.steps &&
        lines.every((line) => line['tool_call_counts/error_rate'] >= CALLS_FAIL.share);
      return rate && { found, evidence: [rate], quote: commonError(run.samples) };
    },
  },
  {
    name: 'entropy-collapsed',
    say: 'The entropy has collapsed: the policy no longer tries anything new',
    when: '`actor/entropy` of the last steps is below a tenth of that of the first steps, or below a third and 0.02 nats, and `critic/acc/mean` is below 0.85',
    change: 'Raise actor.entropyCoeff, set actor.entropyTarget or a larger clipRatioHigh, and lower actor.optim.lr.',
    settings: ['actor.entropyCoeff', 'actor.entropyTarget', 'actor.clipRatioHigh', 'actor.optim.lr'],
    hides: ['no-spread', 'reward-never', 'reward-always'],
    find: (run) => {
      const [before, after] = [run.mean('actor/entropy', run.first), run.mean('actor/entropy')];
      const acc = run.mean('critic/acc/mean');
      if (!before || !after) return undefined;
      const isLow = after.value < before.value / 10 || (after.value < 0.02 && after.value < before.value / 3);
      const isSolved = acc ? acc.value >= 0.85 : run.score.rose;
      return { found: isLow && !isSolved, evidence: [before, after, acc] };
    },
  },
  {
    name: 'no-spread',
    say: 'Sampling has no variety: the samples of a group are alike',
    when: '`frac_reward_zero_std` of the last steps is at least 0.8, and three quarters of the logged groups have equal texts (without samples: the temperature is below 0.2 or topK is 1), or some groups are always solved and others never (`solved/none` and `solved/all` at least 0.2)',
    change: 'Set rollout.temperature to 1, topK to 0 and topP to 1. Also raise rollout.n or actor.entropyCoeff.',
    settings: ['rollout.temperature', 'rollout.topK', 'rollout.topP', 'rollout.n'],
    hides: ['reward-never', 'reward-always'],
    find: (run) => {
      const [silent, none, all] = ['frac_reward_zero_std', 'solved/none', 'solved/all'].map((name) => run.mean(name));
      const equal = run.equalGroups;
      const isSplit = Math.min(none?.value ?? 0, all?.value ?? 0) >= 0.2;
      const { temperature, topK } = run.config.rollout;
      const isAlike = equal ? equal.value >= 0.75 : temperature < 0.2 || topK === 1;
      return (
        silent && {
          found: silent.value >= 0.8 && (isSplit || (isAlike && !run.score.rose)),
          evidence: [silent, none, all, equal],
        }
      );
    },
  },
  {
    name: 'reward-never',
    say: 'The reward never fires: no sample is better than another',
    when: '`frac_reward_zero_std` of the last steps is at least 0.95 and `critic/score/mean` has not risen, with `solved/none` at least 0.95 or no score above 0',
    change:
      'Easier problems, partial rewards, a warm start (docs/guides/no-learning.md), or a larger rollout.n. If samples are right, the reward does not read them: look at rollouts/step-N.jsonl.',
    settings: ['task.name', 'task.module', 'rollout.n'],
    hides: ['reward-always'],
    find: (run) => {
      const [silent, none, acc] = ['frac_reward_zero_std', 'solved/none', 'critic/acc/mean'].map((name) =>
        run.mean(name),
      );
      const { last, rose } = run.score;
      const isUnpaid = (none?.value ?? 0) >= 0.95 || (run.mean('critic/score/max')?.value ?? 1) <= 0;
      return silent && { found: silent.value >= 0.95 && !rose && isUnpaid, evidence: [silent, last, none, acc] };
    },
  },
  {
    name: 'reward-always',
    say: 'The reward always fires: every sample earns the same',
    when: '`frac_reward_zero_std` is at least 0.95 at both ends of the run, with `solved/all` at least 0.9 or equal scores above 0',
    change:
      'Harder problems, data.sampler=difficulty or algorithm.filterGroups.enable=true. If samples are wrong, the reward is too lenient: look at rollouts/step-N.jsonl.',
    settings: ['task.name', 'data.sampler'],
    find: (run) => {
      const silent = run.mean('frac_reward_zero_std');
      const before = run.mean('frac_reward_zero_std', run.first);
      const [all, low] = [run.mean('solved/all'), run.mean('critic/score/min')];
      const high = run.mean('critic/score/max');
      const isPaid = (all?.value ?? 0) >= 0.9 || (high !== undefined && low?.value === high.value && high.value > 0);
      return (
        silent &&
        before && {
          found: silent.value >= 0.95 && before.value >= 0.95 && isPaid,
          evidence: [before, silent, low, high, all],
        }
      );
    },
  },
  {
    name: 'kl-pulls-back',
    say: 'The KL to the reference holds the policy back',
    when: 'the weight of the KL (`actor.klLossCoef`, or `algorithm.klCtrl.klCoef` with `useKlInReward`) is at least 0.1, groups differ, and `critic/score/mean` has not risen',
    change: 'Lower the weight to 0.001, or leave the KL out (actor.useKlLoss=false, algorithm.useKlInReward=false).',
    settings: ['actor.klLossCoef', 'algorithm.useKlInReward', 'algorithm.klCtrl.klCoef'],
    hides: ['rate-too-low'],
    find: (run) => {
      const { actor, algorithm } = run.config;
      const weight = Math.max(
        actor.useKlLoss ? actor.klLossCoef : 0,
        algorithm.useKlInReward ? algorithm.klCtrl.klCoef : 0,
      );
      const kl = run.peak('actor/kl_loss') ?? run.peak('actor/reward_kl_penalty');
      const { first, last, rose } = run.score;
      return kl && { found: weight >= 0.1 && !rose && run.differs, evidence: [kl, first, last] };
    },
  },
  {
    name: 'rate-too-low',
    say: 'The learning rate is too low: the updates do not move the policy',
    when: 'groups differ, no update moved the policy by 1e-5 nats (`actor/ppo_kl`), and neither `critic/score/mean` rose nor `actor/entropy` changed by a quarter',
    change:
      'Raise actor.optim.lr tenfold, and look at lrWarmupSteps. Shipped recipes use 3e-4 for 0.4 M parameters, 2e-5 to 1e-4 for 135 M and 1e-5 for 500 M.',
    settings: ['actor.optim.lr', 'actor.optim.lrWarmupSteps', 'actor.optim.lrSchedulerType'],
    find: (run) => {
      const [kl, norm, entropy] = [run.peak('actor/ppo_kl'), run.mean('actor/grad_norm'), run.mean('actor/entropy')];
      const before = run.mean('actor/entropy', run.first);
      const { first, last, rose } = run.score;
      if (!kl || !norm || !entropy || !before || run.steps.length < 6) return undefined;
      const isStill = Math.abs(kl.value) < 1e-5 && Math.abs(entropy.value - before.value) < before.value / 4;
      return { found: isStill && !rose && run.differs, evidence: [kl, norm, first, last, before, entropy] };
    },
  },
  {
    name: 'truncated',
    say: 'Answers are truncated',
    when: '`stop/max_tokens` or `response_length/clip_ratio` of the last steps is at least 0.2',
    change:
      'Raise data.maxResponseLength (tool output counts in it), set algorithm.maskTruncated=true, or give length a price (reward.overlongBuffer.len).',
    settings: ['data.maxResponseLength', 'algorithm.maskTruncated'],
    hides: ['reward-never', 'no-spread', 'longer'],
    find: (run) => {
      const [cut, full] = [run.share('stop/max_tokens'), run.mean('response_length/clip_ratio')];
      return full && { found: Math.max(cut?.value ?? 0, full.value) >= 0.2, evidence: [cut, full] };
    },
  },
  {
    name: 'held-out-falls',
    say: 'The reward rises while held-out problems are solved less often',
    when: 'the last evaluation is below the best by more than 0.05 and its noise, and `critic/score/mean` has risen since the best',
    change:
      'If critic/acc/mean falls too, the reward pays for something else: lower the weights of shaping rewards (reward.weights). Otherwise more problems, or stop at the best (trainer.metricForBestModel).',
    settings: ['reward.weights', 'data.valMaxSamples'],
    hides: ['longer'],
    find: (run) => {
      const name = run.history.flatMap((line) => Object.keys(line)).find((key) => PASS_AT_1.test(key));
      const tests = run.history.flatMap((line) => (name ? (run.mean(name, [line]) ?? []) : []));
      if (tests.length < 2) return undefined;
      const best = tests.reduce((a, b) => (b.value > a.value ? b : a));
      const last = tests.at(-1)!;
      // An upper bound: a small file has fewer held-out problems, and no file of a run has their number.
      const problems = run.config.data.valMaxSamples * run.config.rollout.valKwargs.n;
      const noise = 2 * Math.sqrt((best.value * (1 - best.value) + last.value * (1 - last.value)) / problems);
      const since = run.steps.filter((line) => line['training/global_step'] > best.steps[0] - run.last.length / 2);
      const before = run.mean('critic/score/mean', since.slice(0, run.last.length));
      if (!before) return undefined; // no finite score since the best evaluation
      const { last: score } = run.score;
      const isRising = score.value - before.value > run.noise('critic/score/mean');
      const isFalling = best.value - last.value > Math.max(0.05, noise);
      return { found: isFalling && isRising, evidence: [best, last, before, score, run.mean('critic/acc/mean')] };
    },
  },
  {
    name: 'longer',
    say: 'Answers grow longer without earning more',
    when: 'after 10 steps `response_length/mean` of the last steps is 1.5 times that of the first and more than its noise above it, and `critic/acc/mean` has not risen',
    change:
      'Penalise length: algorithm.lengthPenalty.type=linear or algorithm.name=dr_grpo. Look at which samples get the higher rewards.',
    settings: ['algorithm.lengthPenalty.type', 'algorithm.name', 'data.maxResponseLength'],
    find: (run) => {
      const [before, after] = [run.mean('response_length/mean', run.first), run.mean('response_length/mean')];
      const earned = run.mean('critic/acc/mean') ? 'critic/acc/mean' : 'critic/score/mean';
      const [acc, now] = [run.mean(earned, run.first), run.mean(earned)];
      if (!before || !after || run.steps.length < 10) return undefined;
      const isLonger =
        after.value > 1.5 * before.value && after.value - before.value > run.noise('response_length/mean');
      const rose = (now?.value ?? 0) - (acc?.value ?? 0) > run.noise(earned);
      return { found: isLonger && !rose, evidence: [before, after, acc, now] };
    },
  },
  {
    name: 'clipped',
    say: 'Most tokens are clipped: the updates hardly move the policy',
    when: '`actor/pg_clipfrac` of the last steps is above 0.3 and `critic/score/mean` has not risen, except with GSPO, whose range is narrow',
    change: 'Lower actor.optim.lr, use fewer ppoEpochs, or widen the clip.',
    settings: ['actor.clipRatioLow', 'actor.clipRatioHigh', 'actor.ppoEpochs', 'actor.optim.lr'],
    find: (run) => {
      const clipped = run.mean('actor/pg_clipfrac');
      const { first, last } = run.score;
      const isGspo = run.config.actor.policyLoss.lossMode === 'gspo';
      return clipped && !isGspo
        ? { found: clipped.value > 0.3 && !run.score.rose, evidence: [clipped, first, last] }
        : undefined;
    },
  },
];

/** A cause that was found or excluded, with its evidence. */
export interface Diagnosis extends Pick<Cause, 'name' | 'say' | 'change' | 'when'> {
  evidence: Evidence[];
  quote?: string;
  /** Settings to change, each with its value, as `key=value`. */
  settings: string[];
}

export interface Diagnoses {
  /** Number of training steps that were read. */
  steps: number;
  found: Diagnosis[];
  /** Causes that were excluded. */
  excluded: Diagnosis[];
  /** Names of causes for which the run lacks metrics or steps. */
  unknown: string[];
}

/** Looks for each cause. Skips causes that follow from another one that was found. */
export function diagnose(run: DiagnosedRun): Diagnoses {
  const curves = new Curves(run);
  const result: Diagnoses = { steps: curves.steps.length, found: [], excluded: [], unknown: [] };
  const hidden = new Set<string>();
  for (const cause of CAUSES) {
    const { name, say, when, change, hides = [] } = cause;
    const finding = curves.steps.length < 3 && name !== 'not-finite' ? undefined : cause.find(curves);
    if (hidden.has(name)) continue;
    if (finding === undefined) {
      result.unknown.push(name);
      continue;
    }
    const evidence = finding.evidence.filter((each) => each !== undefined);
    const settings = cause.settings.flatMap((key) => settingOf(run.config, key) ?? []);
    const { quote } = finding;
    const diagnosis = { name, say, when, change, evidence, settings, ...(quote !== undefined && { quote }) };
    (finding.found ? result.found : result.excluded).push(diagnosis);
    if (finding.found) hides.forEach((each) => hidden.add(each));
  }
  return result;
}

/** Returns `key=value` for a key of the config. Undefined if the config does not set the key. */
function settingOf(config: TrainConfig, key: string): string | undefined {
  const value = valueAt(config, key);
  return value === undefined ? undefined : `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`;
}

/** Returns the diagnoses as text. */
export function diagnosisText({ steps, found, excluded, unknown }: Diagnoses): string {
  const blocks = found.map(({ name, say, evidence, quote, change, settings }) =>
    [
      `${say} (${name}).`,
      ...evidence.map((each) => `  ${evidenceText(each)}`),
      ...(quote === undefined ? [] : [`  most frequent: ${quote}`]),
      `  Change: ${change}`,
      ...(settings.length === 0 ? [] : [`  Now: ${settings.join(', ')}`]),
    ].join('\n'),
  );
  const nothing = `Nothing found in ${steps} ${steps === 1 ? 'step' : 'steps'}.`;
  return [
    ...(found.length > 0 ? blocks : [nothing]),
    ...(excluded.length > 0 ? [`Checked: ${excluded.map(({ name }) => name).join(', ')}.`] : []),
    ...(unknown.length > 0 ? [`Not checked, because metrics or steps are missing: ${unknown.join(', ')}.`] : []),
  ].join('\n\n');
}

/** Formats one value with its metric and its steps. */
export function evidenceText({ metric, steps: [from, to], value }: Evidence): string {
  return `${metric} ${Number(value.toPrecision(3))} (${from === to ? `step ${from}` : `mean of steps ${from} to ${to}`})`;
}

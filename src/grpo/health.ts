/**
 * Watches a run for steps that do not train: numbers that are not finite, updates that were all skipped, rewards
 * without a spread, failing tool calls. Uses only values that the host has read already.
 */

import { NotFiniteError, type UserCodeError } from '../errors.ts';
import { isErrorText } from '../tasks/toolOutput.ts';
import type { TrainConfig } from './config/types.ts';
import type { Metrics } from './metrics.ts';
import type { StatefulPart } from './parts.ts';
import type { Sample } from './update/batch.ts';
import type { StepTokens } from './update/stepTokens.ts';

/** `fit` stops after this many steps in a row with numbers that are not finite. */
const FAULTS_TO_STOP = 3;
/** A fault is reported after this many steps in a row without a nonzero advantage. */
const SILENT_STEPS = 5;
/** Thresholds above which a run and `webgrpo doctor` report failing tool calls, and the texts of that report. */
export const CALLS_FAIL = {
  /** A step counts as failing if at least this share of its tool calls failed. */
  share: 0.9,
  /** The fault is reported after this many failing steps in a row. */
  steps: 3,
  say: 'Nearly all tool calls fail',
  change:
    'If the model does not know the tools, let it imitate calls first (model.path: sft.yaml, as webgrpo init writes it with demonstrate), ' +
    'or set rollout.multiTurn.toolSchemasInPrompt for a model that reads schemas.',
};
/** Maximum number of characters of an error message that are shown. */
const SHOWN_ERROR = 160;
/** Maximum number of steps with non-finite numbers whose inputs a run stores. */
const KEPT_FAULTS = 20;
/** Maximum number of tokens of samples stored per step: some megabytes as text. */
const KEPT_TOKENS = 20_000;

/**
 * Metrics of an update that are checked. Each is an average over mini-batches, so it is not finite if one mini-batch's
 * value is not.
 */
const WATCHED = ['actor/pg_loss', 'actor/grad_norm', 'actor/entropy', 'actor/kl_loss', 'actor/ppo_kl'];

/** A fault found in a step; the run continues. */
export interface Fault {
  /** Step in which the fault happened. */
  step: number;
  /** Description of the fault in one sentence. */
  reason: string;
  /**
   * Inputs of a step with numbers that were not finite, as plain JSON for a bug report: metrics and config, then the
   * samples with tokens, masks, log-probs, rewards and advantages. At most some megabytes, and only for the first such
   * steps of a run.
   */
  inputs?: unknown[];
}

interface WatchedStep {
  config: TrainConfig;
  step: number;
  samples: readonly Sample[];
  tokens: StepTokens;
  metrics: Metrics;
}

/**
 * Counts steps in a row that did not train. Checkpoints store the number of steps in a row without a signal, because a
 * metric reports it.
 */
export class RunHealth implements StatefulPart {
  #notFinite = 0;
  #silent = 0;
  /**
   * Number of steps in a row whose tool calls failed, and a sentence on the last one. Steps without a call do not
   * count.
   */
  #failing = { steps: 0, reason: '' };
  #kept = 0;
  /** Fault of the last step if FAULTS_TO_STOP steps in a row had numbers that were not finite. */
  #hopeless: string | undefined;

  /**
   * Adds the metrics of run health to those of a finished step; returns the faults to report.
   * @param wrong the number that was not finite, in words
   */
  observe({ metrics, ...rest }: WatchedStep, wrong: string | undefined): Fault[] {
    const { step } = rest;
    this.#notFinite = wrong === undefined ? 0 : this.#notFinite + 1;
    this.#hopeless = this.#notFinite >= FAULTS_TO_STOP ? wrong : undefined;
    if (wrong !== undefined) {
      metrics['training/not_finite'] = 1;
      const inputs = this.#kept++ < KEPT_FAULTS ? inputsOf({ ...rest, metrics }, wrong) : undefined;
      return [{ step, reason: `Step ${step} has numbers that are not finite: ${wrong}.`, ...(inputs && { inputs }) }];
    }
    this.#silent = metrics['critic/advantages/abs_mean'] ? 0 : this.#silent + 1;
    if (this.#silent > 0) metrics['training/steps_without_signal'] = this.#silent;
    const isFailing = this.#observeCalls(metrics, rest.samples);
    const score = metrics['critic/score/mean']?.toFixed(3);
    const silent =
      `The run has stopped learning: in the last ${SILENT_STEPS} steps all samples of a group earned the same (mean score ${score}), so no ` +
      'sample was better than another. The run continues. Look at the problems (too hard, too easy) and at the samples (all alike?).';
    return [
      ...(isFailing ? [{ step, reason: this.#failing.reason }] : []),
      ...(this.#silent === SILENT_STEPS ? [{ step, reason: silent }] : []),
    ];
  }

  /** True in the step in which failing calls must be reported. */
  #observeCalls(metrics: Metrics, samples: readonly Sample[]): boolean {
    const rate = metrics['tool_call_counts/error_rate'];
    if (rate === undefined) return false;
    const steps = rate >= CALLS_FAIL.share ? this.#failing.steps + 1 : 0;
    const error = commonError(samples);
    const shown = error === undefined ? '' : `, most often with "${error}"`;
    const reason =
      `${CALLS_FAIL.say} (${(100 * Math.min(rate, 1)).toFixed(0)}% in this step)${shown}. Look at the rollouts. ` +
      CALLS_FAIL.change;
    this.#failing = { steps, reason };
    return steps === CALLS_FAIL.steps;
  }

  /** Problems that persist at the end of the run, one sentence each. */
  get standing(): string[] {
    const { steps, reason } = this.#failing;
    return [
      ...(steps >= CALLS_FAIL.steps ? [reason.replace('in this step', `${steps} steps in a row`)] : []),
      ...(this.#silent >= SILENT_STEPS
        ? [`The last ${this.#silent} steps did not train: all samples of a group earned the same.`]
        : []),
    ];
  }

  state(): unknown {
    return this.#silent > 0 ? { stepsWithoutSignal: this.#silent } : undefined;
  }

  restore(state: unknown): void {
    this.#silent = (state as { stepsWithoutSignal: number }).stepsWithoutSignal;
  }

  /** Throws NotFiniteError if too many steps in a row were not finite, the last of them `step`. */
  check(step: number, lr: number | 'auto'): void {
    if (this.#hopeless === undefined) return;
    throw new NotFiniteError(
      step,
      `${FAULTS_TO_STOP} steps in a row had numbers that are not finite, the last of them step ${step}: ${this.#hopeless}. Lower actor.optim.lr (${lr}), ` +
        'or look at the rewards, the loss and the start model.',
    );
  }

  /** Resets all counts. */
  reset(): void {
    [this.#notFinite, this.#silent, this.#hopeless] = [0, 0, undefined];
    this.#failing = { steps: 0, reason: '' };
  }
}

/** Counts samples that were skipped because trainer.onError is skip; each kind of fault is reported once. */
export class SampleFaults {
  readonly #reasons = new Map<string, string>();
  readonly #reported = new Set<string>();

  add({ kind, message }: UserCodeError): void {
    if (!this.#reasons.has(kind)) this.#reasons.set(kind, message);
  }

  /** Returns the kinds of faults that were not reported yet. */
  take(step: number): Fault[] {
    const kinds = [...this.#reasons].filter(([kind]) => !this.#reported.has(kind));
    return kinds.map(([kind, message]) => {
      this.#reported.add(kind);
      const reason = `${message} The sample is skipped (trainer.onError: skip). More errors of this kind are only counted.`;
      return { step, reason };
    });
  }
}

/** Most frequent error message in tool replies; undefined if no reply is an error. */
export function commonError(samples: readonly Pick<Sample, 'messages'>[]): string | undefined {
  const counts = new Map<string, number>();
  for (const { role, content } of samples.flatMap(({ messages }) => messages))
    if (role !== 'assistant' && isErrorText(content)) counts.set(content, (counts.get(content) ?? 0) + 1);
  const [most] = [...counts].sort(([, a], [, b]) => b - a);
  return most?.[0].slice(0, SHOWN_ERROR);
}

/**
 * Describes the first number of a step's tokens that is not finite in float32; undefined if all are. Advantages are
 * trained in float32.
 */
export function wrongInputs(samples: readonly Sample[], tokens: StepTokens): string | undefined {
  const { masks, oldLogProbs, refLogProbs, advantages, isWeights } = tokens;
  for (const [s, { problem, trajectory }] of samples.entries()) {
    const values = {
      "the sampler's log-prob": trajectory.logProbs,
      'the log-prob': oldLogProbs[s],
      "the reference's log-prob": refLogProbs?.[s],
      'the advantage': advantages[s],
      'the importance weight': isWeights?.[s],
    };
    for (const [name, array] of Object.entries(values)) {
      const t = array
        ? Array.from(masks[s]).findIndex((m, i) => m !== 0 && !Number.isFinite(Math.fround(array[i])))
        : -1;
      if (t >= 0) return `${name} of token ${t} is ${array![t]} (problem "${problem.id}", sample ${s})`;
    }
  }
  return undefined;
}

/** Describes the first result of an update that is not finite; undefined if all are finite. */
export function wrongResults({ metrics, updates }: { metrics: Metrics; updates: number }): string | undefined {
  const wrong = WATCHED.filter((name) => metrics[name] !== undefined && !Number.isFinite(metrics[name])).map(
    (name) => `${name} is ${metrics[name]}`,
  );
  const skipped = metrics['actor/skipped_updates'] ?? 0;
  if (skipped > 0 && skipped >= updates)
    wrong.push(`all ${updates} updates were skipped, since their gradients are not finite`);
  return wrong.length > 0 ? wrong.join(', ') : undefined;
}

/** Returns the inputs of a step as plain JSON, with numbers that are not finite as words. */
function inputsOf({ config, step, samples, tokens, metrics }: WatchedStep, wrong: string): unknown[] {
  const { seed, model, data, actor, algorithm, rollout, reward } = config;
  let left = KEPT_TOKENS;
  const kept = samples.flatMap(({ problem, group, reward: given, trajectory }, s) => {
    const { promptIds, responseIds, stopReason } = trajectory;
    const room = left;
    left -= promptIds.length + responseIds.length;
    if (room <= 0) return [];
    const first = (values: ArrayLike<number> | undefined) => values && Array.from(values).slice(0, room);
    return {
      ...{ sample: s, problem: problem.id, group, reward: given, finalReward: tokens.rewards[s], stopReason },
      ...{ promptIds: first(promptIds), responseIds: first(responseIds), mask: first(tokens.masks[s]) },
      ...{ logProbs: first(trajectory.logProbs), oldLogProbs: first(tokens.oldLogProbs[s]) },
      ...{ refLogProbs: first(tokens.refLogProbs?.[s]), advantages: first(tokens.advantages[s]) },
    };
  });
  const head = { step, wrong, samples: samples.length, kept: kept.length, metrics };
  const lines = [{ ...head, config: { seed, model, data, actor, algorithm, rollout, reward } }, ...kept];
  const words = (_: string, value: unknown) =>
    typeof value === 'number' && !Number.isFinite(value) ? `${value}` : value;
  return JSON.parse(JSON.stringify(lines, words)) as unknown[];
}

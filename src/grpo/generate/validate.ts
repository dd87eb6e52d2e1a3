/** Evaluation on held-out problems. */

import { InputError } from '../../errors.ts';
import type { Problem, Reward, Task } from '../../tasks/task.ts';
import { mean } from '../advantages/index.ts';
import { bootstrapMetrics } from '../bootstrap.ts';
import { type Metrics, validationMetrics } from '../metrics.ts';
import type { Sample } from '../update/batch.ts';
import { type GenerationContext, generateOptions } from './options.ts';
import { generateSamples } from './samples.ts';
import { givenHeldOut, promptFits } from './trainingSet.ts';

export interface ValidateOptions {
  /** True to also answer every problem greedily. */
  greedy?: boolean;
  /** Step after which the evaluation runs; passed to the reward function. */
  globalStep?: number;
  /** Called with every sampled answer when it is complete; not with greedy answers. */
  onSample?: (sample: Sample) => void;
  /**
   * Called when problems are finished. `done` = problems that have all their sampled answers, `tokens` = tokens in
   * these answers.
   */
  onProgress?: (done: number, total: number, tokens: number) => void;
  /** Same as GenerateOptions.onQueued. */
  onQueued?: () => Promise<void>;
  /** Aborts the evaluation, which then rejects with the signal's reason. */
  signal?: AbortSignal;
}

const VALIDATION_BATCH = 0xffffffff; // a number that no training step has

/**
 * Returns held-out accuracy for each set of problems: of answers sampled as `rollout.valKwargs` sets, and of greedy
 * answers if requested. Uses the outcome, without reward shaping. `samples` = the sampled answers, problem by problem.
 */
export async function validate(
  generation: GenerationContext,
  options: ValidateOptions = {},
): Promise<{ metrics: Metrics; samples: Sample[] }> {
  const evaluation = await Evaluation.begin(generation, options);
  await evaluation.next();
  return evaluation.result();
}

/**
 * Returns an error handler for an evaluation: if the signal ended the evaluation, it returns no metrics, otherwise it
 * rethrows.
 */
export const unlessEnded =
  (signal: AbortSignal) =>
  (error: unknown): Metrics => {
    if (!signal.aborted || error !== signal.reason) throw error;
    return {};
  };

/**
 * An evaluation that runs in parts, between which other work can run. An answer does not depend on what else is
 * generated at the same time.
 */
export class Evaluation {
  readonly #generation: GenerationContext;
  readonly #options: ValidateOptions;
  readonly #problems: readonly Problem[];
  /** Answers to each finished problem: the n sampled ones, then the greedy one if configured. */
  readonly #answers: Sample[][] = [];
  #seconds = 0;
  /** Tokens of sampled answers. */
  #tokens = 0;

  private constructor(generation: GenerationContext, options: ValidateOptions, problems: readonly Problem[]) {
    [this.#generation, this.#options, this.#problems] = [generation, options, problems];
  }

  static async begin(generation: GenerationContext, options: ValidateOptions = {}): Promise<Evaluation> {
    return new Evaluation(generation, options, await heldOutProblems(generation));
  }

  get isDone(): boolean {
    return this.#answers.length === this.#problems.length;
  }

  /** Answers the next `count` problems, or all. Rejects if the signal aborts; those problems then stay unanswered. */
  async next(count = Infinity): Promise<void> {
    const { config, task, engine } = this.#generation;
    const { greedy = false, globalStep, onSample, onProgress, onQueued, signal } = this.#options;
    const started = performance.now();
    const [done, total] = [this.#answers.length, this.#problems.length];
    const problems = this.#problems.slice(done, done + count);
    const { n, ...override } = config.rollout.valKwargs;
    const { sampling, ...options } = generateOptions(
      { ...this.#generation, task: withOutcome(task) },
      VALIDATION_BATCH,
      n,
    );
    let sampled = 0;
    onProgress?.(done, total, this.#tokens);
    const { samples } = await generateSamples(problems, {
      ...options,
      sampling: { ...sampling, ...override },
      greedy,
      firstGroup: done,
      rewardTimeoutMs: config.reward.timeoutS * 1000, // no model scores the answers of an evaluation
      signal,
      onQueued,
      ...(globalStep !== undefined && { globalStep }),
      onSample: (sample) => {
        onSample?.(sample);
        this.#tokens += sample.trajectory.responseIds.length;
        if (++sampled % n === 0) onProgress?.(done + sampled / n, total, this.#tokens);
      },
    });
    signal?.throwIfAborted();
    const tries = n + (greedy ? 1 : 0);
    this.#answers.push(...problems.map((_, p) => samples.slice(p * tries, (p + 1) * tries)));
    // Resets the engine's statistics, so that the throughput of the next training step excludes the evaluation.
    await engine.rollout.takeStats();
    this.#seconds += (performance.now() - started) / 1000;
  }

  /** Returns metrics and samples of the finished problems. */
  result(): { metrics: Metrics; samples: Sample[] } {
    const { config, task } = this.#generation;
    const { n } = config.rollout.valKwargs;
    const sources = this.#answers.map((_, p) => sourceOf(this.#problems[p], task));
    const metrics: Metrics = {};
    for (const source of new Set(sources)) {
      const own = this.#answers.filter((_, p) => sources[p] === source);
      Object.assign(metrics, sourceMetrics(source, own, n));
    }
    return {
      metrics: { ...metrics, 'timing_s/testing': this.#seconds },
      samples: this.#answers.flatMap((tried) => tried.slice(0, n)),
    };
  }
}

/**
 * Returns the metrics of one set of problems.
 * @param answers [P] the n sampled answers of a problem, then optionally a greedy one
 */
function sourceMetrics(source: string, answers: readonly Sample[][], n: number): Metrics {
  const accs = answers.map((tried) => tried.map(({ reward }) => reward.acc));
  const sampled = answers.map((tried) => ({
    accs: tried.slice(0, n).map(({ reward }) => reward.acc),
    preds: tried.slice(0, n).map(({ reward }) => reward.pred),
  }));
  const known = accs.flatMap((tried) => tried.slice(n)).filter((acc) => !Number.isNaN(acc));
  return {
    ...validationMetrics(
      source,
      sampled.map((problem) => problem.accs),
    ),
    ...bootstrapMetrics(
      source,
      sampled.filter((problem) => !problem.accs.some(Number.isNaN)),
    ),
    ...(known.length > 0 && { [`val-core/${source}/acc/greedy`]: mean(known) }),
  };
}

/** Returns the name of a problem's held-out set, under which its metrics are logged. */
export const sourceOf = (problem: Problem, task: Task): string => problem.dataSource ?? task.name;

/** Returns the held-out problems. If the config says so, omits those whose prompt is too long. */
async function heldOutProblems({ config, engine, task }: GenerationContext): Promise<Problem[]> {
  const problems = await givenHeldOut(task, config);
  if (!config.data.filterOverlongPrompts) return problems;
  const fitting = problems.filter(promptFits({ config, tokenizer: engine.tokenizer, task }));
  if (fitting.length > 0 || problems.length === 0) return fitting;
  throw new InputError(
    `data.filterOverlongPrompts skipped all ${problems.length} held-out problems: their prompts have more than ` +
      `${config.data.maxPromptLength} tokens. Raise data.maxPromptLength.`,
  );
}

/** Returns the task with its reward reduced to the outcome. A value that is not a reward stays, for the check of all rewards. */
function withOutcome(task: Task): Task {
  return {
    ...task,
    async reward(sample) {
      const reward = await task.reward(sample);
      const { acc } = (reward ?? {}) as Partial<Reward>;
      return typeof acc === 'number' ? { ...reward, score: acc } : reward;
    },
  };
}

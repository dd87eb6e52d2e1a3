/** Evaluation on held-out problems. */

import { InputError } from '../../errors.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import { mean } from '../advantages/index.ts';
import { bootstrapMetrics } from '../bootstrap.ts';
import { type Metrics, validationMetrics } from '../metrics.ts';
import type { Sample } from '../update/batch.ts';
import { type GenerationContext, generateOptions } from './options.ts';
import { generateSamples } from './samples.ts';
import { promptFits } from './trainingSet.ts';

export interface ValidateOptions {
  /** Answers every problem greedily as well. */
  greedy?: boolean;
  /** The step that it follows, for the reward function. */
  globalStep?: number;
  /** Sees every sampled conversation as it ends, not the greedy ones. */
  onSample?: (sample: Sample) => void;
}

const VALIDATION_BATCH = 0xffffffff; // no training step has this number

/**
 * Held-out accuracy of each set of problems: sampled as `rollout.valKwargs` says, and greedy as well when asked. Uses the
 * outcome, not shaping. `samples` = the sampled answers, problem by problem.
 */
export async function validate(
  generation: GenerationContext,
  { greedy = false, globalStep, onSample }: ValidateOptions = {},
): Promise<{ metrics: Metrics; samples: Sample[] }> {
  const { config, task } = generation;
  const started = performance.now();
  const problems = heldOutProblems(generation);
  const { n, ...override } = config.rollout.valKwargs;
  const { sampling, ...options } = generateOptions({ ...generation, task: withOutcome(task) }, VALIDATION_BATCH, n);
  const { samples } = await generateSamples(problems, {
    ...options,
    sampling: { ...sampling, ...override },
    greedy,
    ...(globalStep !== undefined && { globalStep }),
    ...(onSample && { onSample }),
  });
  // The answers of a problem: the n sampled ones, then the greedy one if it was asked for.
  const tries = n + (greedy ? 1 : 0);
  const answers = problems.map((_, p) => samples.slice(p * tries, (p + 1) * tries));
  const metrics: Metrics = {};
  for (const source of new Set(problems.map((problem) => sourceOf(problem, task)))) {
    const own = answers.filter((_, p) => sourceOf(problems[p], task) === source);
    Object.assign(metrics, sourceMetrics(source, own, n));
  }
  await generation.engine.rollout.takeStats(); // of an evaluation, which the next step's throughput is not to count
  return {
    metrics: { ...metrics, 'timing_s/testing': (performance.now() - started) / 1000 },
    samples: answers.flatMap((tried) => tried.slice(0, n)),
  };
}

/** Metrics of one set of problems. @param answers [P] the n sampled answers of a problem, then perhaps a greedy one */
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

const sourceOf = (problem: Problem, task: Task): string => problem.dataSource ?? task.name;

/** Held-out problems, those with too long a prompt left out where the config says so. */
function heldOutProblems({ config, engine, task }: GenerationContext): Problem[] {
  const problems = task.heldOut(config.data.valMaxSamples);
  if (!config.data.filterOverlongPrompts) return problems;
  const fitting = problems.filter(promptFits({ config, tokenizer: engine.tokenizer, task }));
  if (fitting.length > 0 || problems.length === 0) return fitting;
  throw new InputError(
    `data.filterOverlongPrompts left out all ${problems.length} held-out problems: their prompts have more than ` +
      `${config.data.maxPromptLength} tokens; raise data.maxPromptLength.`,
  );
}

/** The task with its reward's shaping taken off. */
function withOutcome(task: Task): Task {
  return {
    ...task,
    async reward(sample) {
      const reward = await task.reward(sample);
      return { ...reward, score: reward.acc };
    },
  };
}

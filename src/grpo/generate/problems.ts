/**
 * Training problems by number: in order, or sampled by difficulty. Problems whose prompt is too long are skipped if the
 * config says so.
 */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { encodePrompt, writesSchemas } from '../../rollout/agent/prompt.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import { givenProblem } from '../../tasks/problem.ts';
import type { Problem, Reward, Task } from '../../tasks/task.ts';
import { mean } from '../advantages/index.ts';
import type { TrainConfig } from '../config/types.ts';
import type { Metrics } from '../metrics.ts';
import type { StatefulPart } from '../parts.ts';
import type { Sample } from '../update/batch.ts';
import { DifficultySampler } from './difficultySampler.ts';
import { limitedTask, promptFits } from './trainingSet.ts';

/** Number of problems skipped in a row after which an error says that no prompt is short enough. */
const MAX_LEFT_OUT = 10_000;

/** Hands out a task's training problems, and fetches those of the next step ahead of time. */
export class ProblemQueue {
  readonly #task: Task;
  /** Parts of the task that prompts contain. */
  #parts: Pick<Task, 'name' | 'tools' | 'environments'>;
  readonly #config: TrainConfig;
  readonly #tokenizer: ChatTokenizer;
  readonly #sampler: DifficultySampler | undefined;
  readonly #drawn = new Map<number, Problem | Promise<Problem>>();
  /** Index of each problem in the task. */
  readonly #indexOf = new WeakMap<Problem, number>();
  #position = 0;
  #leftOut = 0;

  /** Throws InputError if the config samples by difficulty and the task is endless. */
  constructor(task: Task, config: TrainConfig, tokenizer: ChatTokenizer) {
    this.#task = limitedTask(task, config);
    this.#parts = this.#task;
    this.#config = config;
    this.#tokenizer = tokenizer;
    this.#sampler = samplerOf(this.#task, config);
  }

  /** Number of the next problem, stored in checkpoints. */
  get position(): number {
    return this.#position;
  }

  /**
   * Parts whose state checkpoints store in addition to the position: the difficulty sampler, and the task if it adapts.
   */
  get parts(): Record<string, StatefulPart> {
    const task = this.#task;
    return {
      ...(this.#sampler && { sampler: this.#sampler }),
      ...(task.state && task.restore && { task: { state: () => task.state?.(), restore: (s) => task.restore?.(s) } }),
    };
  }

  /** Returns the next `count` problems. */
  async take(count: number): Promise<Problem[]> {
    return this.get(await this.takeNumbers(count));
  }

  /**
   * Returns the numbers of the next problems and reserves them for this call. Throws InputError if no prompt is short
   * enough.
   */
  async takeNumbers(count: number): Promise<number[]> {
    if (!this.#config.data.filterOverlongPrompts) return Array.from({ length: count }, () => this.#position++);
    const numbers: number[] = [];
    while (numbers.length < count) numbers.push(await this.#takeFitting());
    return numbers;
  }

  async #takeFitting(): Promise<number> {
    const fits = this.#fits();
    for (let leftOut = 0; leftOut < MAX_LEFT_OUT; leftOut++) {
      const number = this.#position++;
      if (fits(await this.#draw(number))) return number;
      this.#drawn.delete(number);
      this.#leftOut++;
    }
    throw new InputError(
      `data.filterOverlongPrompts skipped ${MAX_LEFT_OUT} training problems in a row: their prompts have more than ` +
        `${this.#config.data.maxPromptLength} tokens. Raise data.maxPromptLength.`,
    );
  }

  /** Returns the problems of reserved numbers. Requests all of them before it awaits the first. */
  async get(numbers: readonly number[]): Promise<Problem[]> {
    return Promise.all(
      numbers.map(async (number) => {
        const problem = this.#draw(number);
        this.#drawn.delete(number);
        return problem;
      }),
    );
  }

  /** Index of a problem in the task, if problems are sampled by difficulty; undefined otherwise. */
  indexOf(problem: Problem): number | undefined {
    return this.#indexOf.get(problem);
  }

  /**
   * Returns a problem that was drawn before a checkpoint: the task's own object if the task still returns the same
   * problem, otherwise the saved one.
   */
  async restored({
    number,
    index,
    problem: saved,
  }: {
    number: number;
    index?: number | undefined;
    problem: Problem;
  }): Promise<Problem> {
    const made = await this.#task.train(index ?? number, this.#config.seed);
    const problem = JSON.stringify(made) === JSON.stringify(saved) ? made : saved;
    if (index !== undefined) this.#indexOf.set(problem, index);
    return problem;
  }

  /** Records the scores of generated groups. The next draws already use them. */
  async observe(samples: readonly Sample[]): Promise<void> {
    const groups = new Map<number, { problem: Problem; rewards: Reward[] }>();
    for (const { group, problem, reward } of samples) {
      if (!groups.has(group)) groups.set(group, { problem, rewards: [] });
      groups.get(group)!.rewards.push(reward);
    }
    for (const { problem, rewards } of groups.values()) {
      const scores = rewards.map(({ score }) => score).filter((score) => !Number.isNaN(score));
      const index = this.#indexOf.get(problem);
      if (index !== undefined && scores.length > 0) this.#sampler?.observe(index, mean(scores));
      await this.#task.observe?.(problem, rewards);
    }
  }

  /**
   * Returns the metrics `pool/*` (number of problems by difficulty) and `training/overlong_prompts` (problems skipped
   * since the last call).
   */
  takeMetrics(): Metrics {
    const { filterOverlongPrompts } = this.#config.data;
    const metrics = {
      ...this.#sampler?.metrics(),
      ...(filterOverlongPrompts && { 'training/overlong_prompts': this.#leftOut }),
    };
    this.#leftOut = 0;
    return metrics;
  }

  /**
   * Fetches the problems of the next step and encodes their prompts, which the tokenizer caches. The CPU does this work
   * while the GPU trains. If the task throws, the error is thrown in the step that needs the problem, not here.
   */
  prefetch(): void {
    const { data, rollout } = this.#config;
    const tokenizer = this.#tokenizer;
    const end = this.#position + data.trainBatchSize;
    const forget = () => this.#drawn.clear();
    const encode = (problem: Problem): void => {
      const toolSchemasInPrompt = writesSchemas(rollout, tokenizer, problem);
      encodePrompt({ tokenizer, ...partsOf(this.#parts, problem), toolSchemasInPrompt, problem });
    };
    try {
      for (let number = this.#position; number < end; number++) {
        const problem = this.#draw(number);
        if (problem instanceof Promise) problem.then(encode).catch(forget);
        else encode(problem);
      }
    } catch {
      forget();
    }
  }

  /** Sets the tools that prompts describe from now on. */
  useTools(tools: Task['tools']): void {
    const { name, environments } = this.#task;
    this.#parts = { name, ...(environments && { environments }), ...(tools && { tools }) };
  }

  /** Resumes at the position of a checkpoint. */
  moveTo(position: number): void {
    this.#position = position;
    this.#drawn.clear();
  }

  #fits(): (problem: Problem) => boolean {
    return promptFits({ config: this.#config, tokenizer: this.#tokenizer, task: this.#parts });
  }

  /** Returns the problem with a number and caches it. */
  #draw(number: number): Problem | Promise<Problem> {
    const drawn = this.#drawn.get(number);
    if (drawn) return drawn;
    const index = this.#sampler?.draw(number);
    const at = index ?? number;
    const { seed } = this.#config;
    const known = (problem: Problem) => {
      if (index !== undefined) this.#indexOf.set(problem, index);
      return problem;
    };
    const what = `Training problem ${at} of task "${this.#task.name}"`;
    const given = givenProblem(what, () => this.#task.train(at, seed));
    const problem = given instanceof Promise ? given.then(known) : known(given);
    this.#drawn.set(number, problem);
    return problem;
  }
}

function samplerOf({ name, trainSize }: Task, config: TrainConfig): DifficultySampler | undefined {
  if (config.data.sampler !== 'difficulty') return undefined;
  if (trainSize !== undefined) return new DifficultySampler(config, trainSize);
  throw new InputError(
    `data.sampler is "difficulty", which samples repeatedly from a finite set, but task "${name}" generates problems ` +
      'without end. Set data.trainMaxSamples, say 512.',
  );
}

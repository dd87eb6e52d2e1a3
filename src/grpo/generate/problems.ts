/** Training problems by number: in order, or drawn by difficulty; those with too long a prompt left out where asked. */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { encodePrompt } from '../../rollout/agent/prompt.ts';
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

/** Problems in a row that are left out before we say that none fits. */
const MAX_LEFT_OUT = 10_000;

/** Hands out a task's training problems, and draws those of the next step ahead. */
export class ProblemQueue {
  readonly #task: Task;
  /** What prompts are written with. */
  #parts: Pick<Task, 'name' | 'tools' | 'environments'>;
  readonly #config: TrainConfig;
  readonly #tokenizer: ChatTokenizer;
  readonly #sampler: DifficultySampler | undefined;
  readonly #drawn = new Map<number, Problem | Promise<Problem>>();
  /** Which problem of the task it is. */
  readonly #indexOf = new WeakMap<Problem, number>();
  #position = 0;
  #leftOut = 0;

  /** Throws InputError if the config draws by difficulty and the task has no end. */
  constructor(task: Task, config: TrainConfig, tokenizer: ChatTokenizer) {
    this.#task = limitedTask(task, config);
    this.#parts = this.#task;
    this.#config = config;
    this.#tokenizer = tokenizer;
    this.#sampler = samplerOf(this.#task, config);
  }

  /** Number of the next problem; a checkpoint keeps it. */
  get position(): number {
    return this.#position;
  }

  /** What a checkpoint keeps beside the position. */
  get parts(): Record<string, StatefulPart> {
    const task = this.#task;
    return {
      ...(this.#sampler && { sampler: this.#sampler }),
      ...(task.state && task.restore && { task: { state: () => task.state?.(), restore: (s) => task.restore?.(s) } }),
    };
  }

  /** The next `count` problems. */
  async take(count: number): Promise<Problem[]> {
    return this.get(await this.takeNumbers(count));
  }

  /** Numbers of the next problems, which no other call gets. Throws InputError when none has a short enough prompt. */
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

  /** The problems of numbers that were taken; all are asked for before the first is awaited. */
  async get(numbers: readonly number[]): Promise<Problem[]> {
    return Promise.all(
      numbers.map(async (number) => {
        const problem = this.#draw(number);
        this.#drawn.delete(number);
        return problem;
      }),
    );
  }

  /** Which of the task's problems it is, where they are drawn by difficulty. */
  indexOf(problem: Problem): number | undefined {
    return this.#indexOf.get(problem);
  }

  /** A problem that had been taken before a checkpoint: the task's own, where it still makes the same one, or as it was saved. */
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

  /** Hears of generated groups; what they tell counts from the next draw on. */
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

  /** `pool/*`: problems by difficulty; `training/overlong_prompts`: problems left out since the last call. */
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
   * Draws the problems of the next step and encodes their prompts, which the tokenizer keeps: work for the host while the
   * device trains. A task that throws does so in the step that needs the problem, not here.
   */
  prefetch(): void {
    const { data, rollout } = this.#config;
    const { toolSchemasInPrompt } = rollout.multiTurn;
    const end = this.#position + data.trainBatchSize;
    const forget = () => this.#drawn.clear();
    const encode = (problem: Problem) =>
      void encodePrompt({ tokenizer: this.#tokenizer, ...partsOf(this.#parts, problem), toolSchemasInPrompt, problem });
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

  /** Prompts are written with these tools from now on. */
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

  /** The problem of a number, drawn once. */
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

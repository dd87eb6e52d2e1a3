/** Training problems by number, in order. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { encodePrompt } from '../../rollout/agent/prompt.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';

/** Hands out a task's training problems, and draws those of the next step ahead. */
export class ProblemQueue {
  readonly #task: Task;
  readonly #config: TrainConfig;
  readonly #tokenizer: ChatTokenizer;
  readonly #prefetched = new Map<number, Problem>();
  #position = 0;

  constructor(task: Task, config: TrainConfig, tokenizer: ChatTokenizer) {
    this.#task = task;
    this.#config = config;
    this.#tokenizer = tokenizer;
  }

  /** Number of the next problem; a checkpoint keeps it. */
  get position(): number {
    return this.#position;
  }

  /** The next `count` problems. */
  take(count: number): Problem[] {
    return Array.from({ length: count }, () => this.get(this.takeNumber()));
  }

  /** Number of the next problem, which nobody else gets. */
  takeNumber(): number {
    return this.#position++;
  }

  /** The problem of a number that was taken. */
  get(number: number): Problem {
    const problem = this.#prefetched.get(number) ?? this.#task.train(number, this.#config.seed);
    this.#prefetched.delete(number);
    return problem;
  }

  /**
   * Draws the problems of the next step and encodes their prompts, which the tokenizer keeps: work for the host while the
   * device trains. A task that throws does so in the step that needs the problem, not here.
   */
  prefetch(): void {
    const { data, rollout } = this.#config;
    const prompt = {
      tokenizer: this.#tokenizer,
      tools: this.#task.tools ?? [],
      toolSchemasInPrompt: rollout.multiTurn.toolSchemasInPrompt,
    };
    const end = this.#position + data.trainBatchSize;
    try {
      for (let number = this.#position; number < end; number++) {
        const problem = this.get(number);
        this.#prefetched.set(number, problem);
        encodePrompt({ ...prompt, problem });
      }
    } catch {
      this.#prefetched.clear();
    }
  }

  /** Goes on at the position of a checkpoint. */
  moveTo(position: number): void {
    this.#position = position;
    this.#prefetched.clear();
  }
}

/** Training problems by number. The next step's can be drawn, and their prompts encoded, while the device trains. */

import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { encodePrompt } from '../../rollout/agent/prompt.ts';
import type { Problem, Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';

export class UpcomingProblems {
  readonly #task: Task;
  readonly #config: TrainConfig;
  readonly #tokenizer: ChatTokenizer;
  readonly #drawn = new Map<number, Problem>();

  constructor(task: Task, config: TrainConfig, tokenizer: ChatTokenizer) {
    this.#task = task;
    this.#config = config;
    this.#tokenizer = tokenizer;
  }

  take(number: number): Problem {
    const problem = this.#drawn.get(number) ?? this.#task.train(number, this.#config.seed);
    this.#drawn.delete(number);
    return problem;
  }

  /** Draws the problems of a step and encodes their prompts, which the tokenizer keeps. Never throws: the step itself will. */
  prepare(first: number): void {
    const { data, rollout } = this.#config;
    const common = { tokenizer: this.#tokenizer, tools: this.#task.tools ?? [] };
    try {
      for (let number = first; number < first + data.trainBatchSize; number++) {
        const problem = this.take(number);
        this.#drawn.set(number, problem);
        encodePrompt({ ...common, problem, toolSchemasInPrompt: rollout.multiTurn.toolSchemasInPrompt });
      }
    } catch {
      this.#drawn.clear();
    }
  }

  /** Forgets what was drawn, for a run that goes on elsewhere. */
  clear(): void {
    this.#drawn.clear();
  }
}

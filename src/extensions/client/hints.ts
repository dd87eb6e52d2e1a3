import type { ServedModel } from './api/request.ts';

/** Maximum number of field names that are counted separately, because clients can send any names. Further names count as "other". */
const MAX_NAMES = 64;

const FIRST = 'only the first call of a reply is returned';
const WORDS: Readonly<Record<string, (served: ServedModel) => string>> = {
  model: ({ name }) => `model: this run serves ${name} under every name`,
  temperature: ({ temperature }) =>
    `temperature: replies are sampled at the run's ${temperature} (rollout.temperature)`,
  parallel_tool_calls: () => `parallel_tool_calls: ${FIRST}`,
  'tool_choice.disable_parallel_tool_use': () => `tool_choice.disable_parallel_tool_use: ${FIRST}`,
};

/** Counts request fields that are accepted but have no effect. Prints a note at the first occurrence of each. */
export class Hints {
  readonly #served: ServedModel;
  readonly #note: (line: string) => void;
  readonly #counts = new Map<string, number>();

  constructor(served: ServedModel, note: (line: string) => void) {
    this.#served = served;
    this.#note = note;
  }

  /** Number of requests that had each of the fields. */
  get counts(): Record<string, number> {
    return Object.fromEntries(this.#counts);
  }

  /** Counts the fields without effect of one request. */
  take(names: readonly string[]): void {
    for (const given of names) {
      const name = this.#counts.has(given) || this.#counts.size < MAX_NAMES ? given : 'other';
      const count = (this.#counts.get(name) ?? 0) + 1;
      this.#counts.set(name, count);
      if (count > 1) continue;
      const words = Object.hasOwn(WORDS, name) ? WORDS[name](this.#served) : `${JSON.stringify(name)}: changes nothing`;
      this.#note(`taken in requests, ${words}`);
    }
  }
}

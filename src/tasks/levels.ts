/** A difficulty that follows what a model can do: for generated tasks that `observe`. */

/** Groups of the hardest level whose mean outcome decides. */
const WINDOW = 16;
/** Share of right answers at which the level rises, and at or below which it falls. */
const [RISE, FALL] = [0.75, 0.25];

/** A level from `min` to `max` that starts at `min`; one up when its own problems are mostly solved, one down when hardly. */
export class Levels {
  readonly #min: number;
  readonly #max: number;
  #level: number;
  /** Mean outcomes of the last groups of the level in hand. */
  #recent: number[] = [];

  constructor(min: number, max: number) {
    [this.#min, this.#max, this.#level] = [min, max, min];
  }

  get level(): number {
    return this.#level;
  }

  /** @param level of the problem; only those of the level in hand count. @param outcomes of its samples, NaN left out */
  observe(level: number, outcomes: readonly number[]): void {
    const known = outcomes.filter((outcome) => !Number.isNaN(outcome));
    if (level !== this.#level || known.length === 0) return;
    this.#recent.push(average(known));
    if (this.#recent.length < WINDOW) return;
    const solved = average(this.#recent);
    this.#recent.shift();
    if (solved > RISE && this.#level < this.#max) this.#moveTo(this.#level + 1);
    else if (solved <= FALL && this.#level > this.#min) this.#moveTo(this.#level - 1);
  }

  state(): { level: number; recent: number[] } {
    return { level: this.#level, recent: [...this.#recent] };
  }

  restore(state: unknown): void {
    const { level, recent } = state as { level: number; recent: number[] };
    this.#level = level;
    this.#recent = [...recent];
  }

  #moveTo(level: number): void {
    this.#level = level;
    this.#recent = [];
  }
}

const average = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

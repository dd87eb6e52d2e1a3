/** Difficulty levels that adapt to the model, for generated tasks that have `observe`. */

/** Number of last groups of the current level whose mean outcome decides whether the level changes. */
const WINDOW = 16;
/** Fraction of right answers above which the level rises, and fraction at or below which it falls. */
const [RISE, FALL] = [0.75, 0.25];

/** A difficulty level between `min` and `max`, which starts at `min`. It rises if most of its problems are solved, and falls if few are. */
export class Levels {
  readonly #min: number;
  readonly #max: number;
  #level: number;
  /** Mean outcome of each of the last groups of the current level. */
  #recent: number[] = [];

  constructor(min: number, max: number) {
    [this.#min, this.#max, this.#level] = [min, max, min];
  }

  get level(): number {
    return this.#level;
  }

  /**
   * Records the outcomes of a group.
   * @param level level of the group's problem; the group is ignored unless this is the current level
   * @param outcomes outcomes of the group's samples; NaN is skipped
   */
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

/** Closed passes after which a draft pass is tried again, because the faster method changes with the batch. */
const TRY_AGAIN = 8;

/**
 * Compares the time per token of draft passes and decode steps, and opens if drafts are faster. The tokens do not
 * depend on it.
 */
export class SpeculationGate {
  /** Moving averages of milliseconds per token; undefined until a pass was counted. */
  #draftMs: number | undefined;
  #stepsMs: number | undefined;
  #passes = { draft: 0, steps: 0 };
  #closed = 0;

  /** True if the next pass should check guesses. */
  isOpen(): boolean {
    if (this.#draftMs === undefined || this.#stepsMs === undefined || this.#draftMs <= this.#stepsMs) return true;
    return ++this.#closed % TRY_AGAIN === 0;
  }

  /**
   * Records a pass that sampled `tokens` tokens. The first pass of each kind is ignored because it compiles its
   * kernels.
   */
  learn(kind: 'draft' | 'steps', milliseconds: number, tokens: number): void {
    if (this.#passes[kind]++ === 0 || tokens === 0) return;
    const now = milliseconds / tokens;
    const average = (old: number | undefined) => (old === undefined ? now : old + 0.2 * (now - old));
    if (kind === 'draft') this.#draftMs = average(this.#draftMs);
    else this.#stepsMs = average(this.#stepsMs);
  }
}

/** Number of passes without guesses after which guesses are tried again, because the faster method changes with the batch. */
const TRY_AGAIN = 8;

/**
 * Decides whether to check guesses: compares the time per token of passes that check guesses with that of plain decode steps. The sampled
 * tokens do not depend on the decision.
 */
export class SpeculationGate {
  /** Moving averages of milliseconds per token; undefined until such a pass was counted. */
  #draftMs: number | undefined;
  #stepsMs: number | undefined;
  #passes = { draft: 0, steps: 0 };
  #closed = 0;

  /** True if the next pass should check guesses. */
  isOpen(): boolean {
    if (this.#draftMs === undefined || this.#stepsMs === undefined || this.#draftMs <= this.#stepsMs) return true;
    return ++this.#closed % TRY_AGAIN === 0;
  }

  /** Records a pass that sampled `tokens` tokens. Ignores the first pass of each kind, because it compiles its kernels. */
  learn(kind: 'draft' | 'steps', milliseconds: number, tokens: number): void {
    if (this.#passes[kind]++ === 0 || tokens === 0) return;
    const now = milliseconds / tokens;
    const average = (old: number | undefined) => (old === undefined ? now : old + 0.2 * (now - old));
    if (kind === 'draft') this.#draftMs = average(this.#draftMs);
    else this.#stepsMs = average(this.#stepsMs);
  }
}

/** Tokens of the tries on screen, kept next to their text because a run does not log them. Dropped together with the tries. */

import type { StepInputs, TrainerEngine } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { UpdatedTokens } from '../../src/grpo/update/tokenNumbers.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';

/** A step with tokens of its tries. */
class TokenStep {
  readonly engine: TrainerEngine;
  readonly samples: readonly Sample[];
  readonly advantages: readonly ArrayLike<number>[];
  #updated: StepInputs['updated'];
  #numbers: UpdatedTokens | undefined;

  constructor(engine: TrainerEngine, samples: readonly Sample[], { tokens, updated }: StepInputs) {
    [this.engine, this.samples, this.advantages, this.#updated] = [engine, samples, tokens.advantages, updated];
  }

  /** Numbers of the tokens, computed on first use; undefined if first requested after the next step ended. */
  get numbers(): UpdatedTokens | undefined {
    this.#numbers ??= this.#updated?.();
    this.#updated = undefined;
    return this.#numbers;
  }

  /** Frees the tensors of the update. `numbers` can then no longer be computed. */
  forget(): void {
    this.#updated = undefined;
  }
}

/** Tokens of one try. `s` is the index of the try's sample in the step. */
export interface TryTokens {
  sample: Sample;
  s: number;
  step: TokenStep;
}

const kept = new WeakMap<LoggedRollout, TryTokens>();
let newest: TokenStep | undefined;

/** @param tries tries of the samples, in the same order */
export function keepTokens(
  tries: readonly LoggedRollout[],
  samples: readonly Sample[],
  inputs: StepInputs,
  engine: TrainerEngine,
): void {
  newest?.forget();
  const step = (newest = new TokenStep(engine, samples, inputs));
  tries.forEach((one, s) => kept.set(one, { sample: samples[s], s, step }));
}

/** Returns the tokens of a try; undefined if it is not scored yet, or comes from an earlier visit. */
export const tokensOf = (one: LoggedRollout): TryTokens | undefined => kept.get(one);

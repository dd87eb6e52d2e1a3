/** The tokens of tries that are on screen, beside their text: they are not part of what a run logs. Forgotten with the tries. */

import type { StepInputs, TrainerEngine } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { UpdatedTokens } from '../../src/grpo/update/tokenNumbers.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';

/** A step whose tries have tokens. */
class TokenStep {
  readonly engine: TrainerEngine;
  readonly samples: readonly Sample[];
  readonly advantages: readonly ArrayLike<number>[];
  #updated: StepInputs['updated'];
  #numbers: UpdatedTokens | undefined;

  constructor(engine: TrainerEngine, samples: readonly Sample[], { tokens, updated }: StepInputs) {
    [this.engine, this.samples, this.advantages, this.#updated] = [engine, samples, tokens.advantages, updated];
  }

  /** Computed on first use; undefined = not requested before the next step ended. */
  get numbers(): UpdatedTokens | undefined {
    this.#numbers ??= this.#updated?.();
    this.#updated = undefined;
    return this.#numbers;
  }

  /** Lets go of what the numbers would be computed from. */
  forget(): void {
    this.#updated = undefined;
  }
}

/** Of one try; `s` = its place among the samples of its step. */
export interface TryTokens {
  sample: Sample;
  s: number;
  step: TokenStep;
}

const kept = new WeakMap<LoggedRollout, TryTokens>();
let newest: TokenStep | undefined;

/** @param tries of the samples, in their order */
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

/** undefined = its tokens are not known here: it is not scored yet, or comes from an earlier visit. */
export const tokensOf = (one: LoggedRollout): TryTokens | undefined => kept.get(one);

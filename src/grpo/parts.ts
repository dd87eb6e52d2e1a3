/** Parts of a trainer that have state from step to step, such as a sampler, a replay buffer or an adapting task. */

/** A part whose state is stored in checkpoints, under the name that the trainer uses for it. */
export interface StatefulPart {
  /** Returns the state as plain JSON, which the part does not modify afterwards; undefined if the state is empty. */
  state(): unknown;
  /** Restores what `state` returned. */
  restore(state: unknown): void;
}

export type StatefulParts = Readonly<Record<string, StatefulPart>>;

/** States of all parts that have one, by name; undefined if no part has a state. */
export function statesOf(parts: StatefulParts): Record<string, unknown> | undefined {
  const states = Object.entries(parts).flatMap(([name, part]) => {
    const state = part.state();
    return state === undefined ? [] : [[name, state] as const];
  });
  return states.length > 0 ? Object.fromEntries(states) : undefined;
}

/**
 * Restores the state of each part. A part without a saved state starts new; a saved state without a part is ignored.
 */
export function restoreParts(parts: StatefulParts, states: Readonly<Record<string, unknown>> = {}): void {
  for (const [name, part] of Object.entries(parts)) if (Object.hasOwn(states, name)) part.restore(states[name]);
}

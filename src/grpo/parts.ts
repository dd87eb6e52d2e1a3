/** Parts of a trainer that keep a state of their own from step to step: a sampler, a replay buffer, a task that adapts. */

/** A part whose state a checkpoint holds, under the name that the trainer gives it. */
export interface StatefulPart {
  /** Plain JSON, and nothing that the part changes afterwards; undefined = nothing to keep yet. */
  state(): unknown;
  /** Restores what `state` returned. */
  restore(state: unknown): void;
}

export type StatefulParts = Readonly<Record<string, StatefulPart>>;

/** State of each part that has one, by name; undefined when none has. */
export function statesOf(parts: StatefulParts): Record<string, unknown> | undefined {
  const states = Object.entries(parts).flatMap(([name, part]) => {
    const state = part.state();
    return state === undefined ? [] : [[name, state] as const];
  });
  return states.length > 0 ? Object.fromEntries(states) : undefined;
}

/** A part that the checkpoint does not know starts afresh; a state that no part asks for is left alone. */
export function restoreParts(parts: StatefulParts, states: Readonly<Record<string, unknown>> = {}): void {
  for (const [name, part] of Object.entries(parts)) if (Object.hasOwn(states, name)) part.restore(states[name]);
}

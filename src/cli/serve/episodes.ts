/** Which episode a request is of: the one that its path or metadata names, or the one whose conversation it extends. */

import {
  ApiError,
  type CallRequest,
  type ClientGroups,
  type ClientTrajectory,
  toolsKeyOf,
} from '../../extensions/client/index.ts';

/** What a request calls its episode. */
export interface EpisodeName {
  group?: string | undefined;
  trajectory?: string | undefined;
}

/**
 * Once more than twice as many episodes are known, all but half as many of the ended ones are forgotten. A known episode that is rewarded a
 * second time has an error of its own.
 */
const KEPT = 4096;

export class Episodes {
  readonly #groups: ClientGroups;
  /** By id, in order of their first call. */
  readonly #byId = new Map<string, ClientTrajectory>();
  readonly #byName = new Map<string, ClientTrajectory>();

  /** Knows those that a checkpoint held. */
  constructor(groups: ClientGroups) {
    this.#groups = groups;
    for (const one of groups.episodes) {
      this.#byId.set(one.id, one);
      if (one.name !== undefined) this.#byName.set(one.name, one);
    }
  }

  /** The episode of a call, a new one where there is none. Throws ApiError for a name that cannot be one. */
  of(request: CallRequest, name: EpisodeName): ClientTrajectory {
    const { group = request.metadata['group'], trajectory = request.metadata['trajectory'] } = name;
    for (const given of [group, trajectory]) if (given !== undefined) checkName(given);
    if (trajectory !== undefined) return this.#byNameOrNew(group, trajectory);
    return this.#extended(request, group) ?? this.#open(group);
  }

  /** The episode that a completion's id, its own id or `group/trajectory` names. Throws ApiError if there is no such episode. */
  find(id: string): ClientTrajectory {
    const own = /^(?:chatcmpl-)?([0-9a-f]{24})(?:-[0-9a-f]{8})?$/.exec(id)?.[1];
    const found = own === undefined ? this.#byName.get(id) : this.#byId.get(own);
    if (found) return found;
    throw new ApiError(
      `There is no trajectory ${JSON.stringify(id.slice(0, 80))}; give the id of one of its completions, or "group/trajectory" as in its path.`,
      { status: 404, param: 'id' },
    );
  }

  /** The call failed before its first answer, and no client could name the episode again. */
  drop(trajectory: ClientTrajectory): void {
    if (trajectory.name === undefined && trajectory.rows().length === 0) trajectory.abort();
  }

  #byNameOrNew(group: string | undefined, trajectory: string): ClientTrajectory {
    const name = `${group ?? ''}/${trajectory}`;
    const known = this.#byName.get(name);
    // One that was trained, or aborted, leaves its name to the next.
    if (known && (known.state === 'open' || this.#groups.has(known))) return known;
    const opened = this.#open(group, name);
    this.#byName.set(name, opened);
    return opened;
  }

  /** An open episode without a name whose conversation the request extends, farthest and first. */
  #extended(request: CallRequest, group: string | undefined): ClientTrajectory | undefined {
    const key = toolsKeyOf(request.tools);
    let best: { trajectory: ClientTrajectory; rank: number } | undefined;
    for (const trajectory of this.#groups.alike(request, group)) {
      if (trajectory.name !== undefined) continue;
      const extent = trajectory.extent(request.messages, key);
      const rank = 2 * extent + (trajectory.isNext(request.messages, key) ? 1 : 0);
      if (extent > 0 && rank > (best?.rank ?? 0)) best = { trajectory, rank };
    }
    return best?.trajectory;
  }

  #open(group: string | undefined, name?: string): ClientTrajectory {
    const trajectory = this.#groups.open({ group, name });
    this.#byId.set(trajectory.id, trajectory);
    if (this.#byId.size > 2 * KEPT) this.#forget();
    return trajectory;
  }

  /** The oldest that are over. */
  #forget(): void {
    const isOver = (one: ClientTrajectory) => one.state !== 'open' && !this.#groups.has(one);
    const over = [...this.#byId.values()].filter(isOver);
    const gone = new Set(over.slice(0, Math.max(0, over.length - KEPT / 2)));
    for (const one of gone) this.#byId.delete(one.id);
    for (const [name, one] of this.#byName) if (gone.has(one)) this.#byName.delete(name);
  }
}

export function checkName(name: string): void {
  if (/^[\w-][\w.-]{0,63}$/.test(name)) return;
  throw new ApiError(
    `${JSON.stringify(name.slice(0, 80))} cannot name a group or a trajectory; allowed: 1 to 64 letters, digits, ., _ and -, not starting with a dot.`,
  );
}

/**
 * Finds the episode to which a request belongs: the one that the request's path or metadata names, or the one whose conversation it
 * extends.
 */

import { ApiError, type CallRequest, type ClientGroups, type ClientTrajectory } from '../../extensions/client/index.ts';

/** Names of the group and the trajectory that a request gives in its path or metadata, and the client that sent the request. */
export interface EpisodeName {
  group?: string | undefined;
  trajectory?: string | undefined;
  /** Client that owns the episode. Undefined: a client without API key, which can use every episode. */
  owner?: string | undefined;
}

/** Returns the episode to which a request belongs, or opens a new one. Throws ApiError for an invalid name. */
export function episodeOf(groups: ClientGroups, request: CallRequest, place: EpisodeName): ClientTrajectory {
  const { group = request.metadata['group'], trajectory = request.metadata['trajectory'], owner } = place;
  for (const given of [group, trajectory]) if (given !== undefined) checkName(given);
  const name = nameOf({ group, trajectory });
  const known = name === undefined ? extended(groups, request, group, owner) : named(groups, name, owner);
  return known ?? groups.open({ group, name, owner });
}

/** Returns the open episode without a name whose conversation is the longest beginning of the request's messages; of several, the first. */
function extended(
  groups: ClientGroups,
  request: CallRequest,
  group?: string,
  owner?: string,
): ClientTrajectory | undefined {
  const unnamed = groups.openEpisodesLike(request, group, owner).filter(({ name }) => name === undefined);
  const ranks = unnamed.map((one) => one.match(request)?.rank ?? 0);
  const best = Math.max(0, ...ranks);
  return best === 0 ? undefined : unnamed[ranks.indexOf(best)];
}

/**
 * Returns the client's episode of this name. A client without API key also finds episodes of other clients, if it has none of that name.
 */
function named(groups: ClientGroups, name: string, owner?: string): ClientTrajectory | undefined {
  const all = groups.episodes.filter((one) => one.name === name);
  return all.find((one) => one.owner === owner) ?? (owner === undefined ? all[0] : undefined);
}

/**
 * Finds an episode by the id of one of its completions, by its own id, or by `group/trajectory`. Any client can use an id, because ids are
 * random; only the owner can use the name. Throws ApiError if no such episode is open or waiting for its step.
 */
export function findEpisode(groups: ClientGroups, id: string, owner?: string): ClientTrajectory {
  const own = /^(?:chatcmpl-|resp_|msg_)?([0-9a-f]{24})(?:-[0-9a-f]{8})?$/.exec(id)?.[1];
  const found = own === undefined ? named(groups, id, owner) : groups.episodes.find((one) => one.id === own);
  if (found) return found;
  throw new ApiError(
    `There is no trajectory ${JSON.stringify(id.slice(0, 80))}, or it was trained on, deleted or timed out, or it is another client's. Give the id of a ` +
      'completion, or "group/trajectory" as in its path.',
    { status: 404, param: 'id' },
  );
}

/** Returns the name of an episode, `group/trajectory`; undefined if it has none. */
export const nameOf = ({ group, trajectory }: EpisodeName): string | undefined =>
  trajectory === undefined ? undefined : `${group ?? ''}/${trajectory}`;

/** Throws ApiError if the text is not allowed as the name of a group or a trajectory. */
export function checkName(name: string): void {
  if (/^(?![.\s])[^/\\\p{C}]{1,64}$/u.test(name)) return;
  throw new ApiError(
    `${JSON.stringify(name.slice(0, 80))} cannot name a group or a trajectory. Give 1 to 64 characters without / and \\ that do not start with a dot or a space.`,
  );
}

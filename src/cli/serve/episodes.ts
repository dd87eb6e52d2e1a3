/** Finds the episode of a request: the one that its path or metadata names, or the one whose conversation it extends. */

import { ApiError, type CallRequest, type ClientGroups, type ClientTrajectory } from '../../extensions/client/index.ts';

/** Names of an episode in a request. */
export interface EpisodeName {
  group?: string | undefined;
  trajectory?: string | undefined;
}

/** Returns the episode of a call; creates one if needed. Throws ApiError for an invalid name. */
export function episodeOf(groups: ClientGroups, request: CallRequest, place: EpisodeName): ClientTrajectory {
  const { group = request.metadata['group'], trajectory = request.metadata['trajectory'] } = place;
  for (const given of [group, trajectory]) if (given !== undefined) checkName(given);
  const name = nameOf({ group, trajectory });
  const known =
    name === undefined ? extended(groups, request, group) : groups.episodes.find((one) => one.name === name);
  return known ?? groups.open({ group, name });
}

/** Returns the unnamed open episode whose conversation the request extends farthest; among equals, the first. */
function extended(groups: ClientGroups, request: CallRequest, group?: string): ClientTrajectory | undefined {
  const unnamed = groups.openEpisodesLike(request, group).filter(({ name }) => name === undefined);
  const ranks = unnamed.map((one) => one.match(request)?.rank ?? 0);
  const best = Math.max(0, ...ranks);
  return best === 0 ? undefined : unnamed[ranks.indexOf(best)];
}

/**
 * Finds an episode by a completion's id, its own id or `group/trajectory`. Throws ApiError if no such episode is open or waiting for its
 * step.
 */
export function findEpisode(groups: ClientGroups, id: string): ClientTrajectory {
  const own = /^(?:chatcmpl-|resp_|msg_)?([0-9a-f]{24})(?:-[0-9a-f]{8})?$/.exec(id)?.[1];
  const found = groups.episodes.find((one) => (own === undefined ? one.name === id : one.id === own));
  if (found) return found;
  throw new ApiError(
    `There is no trajectory ${JSON.stringify(id.slice(0, 80))}, or it was trained on, deleted or timed out. Give the id of a ` +
      'completion, or "group/trajectory" as in its path.',
    { status: 404, param: 'id' },
  );
}

/** Returns the full name of an episode; undefined if it has none. */
export const nameOf = ({ group, trajectory }: EpisodeName): string | undefined =>
  trajectory === undefined ? undefined : `${group ?? ''}/${trajectory}`;

/** Throws ApiError if the text cannot name a group or a trajectory. */
export function checkName(name: string): void {
  if (/^[\w-][\w.-]{0,63}$/.test(name)) return;
  throw new ApiError(
    `${JSON.stringify(name.slice(0, 80))} cannot name a group or a trajectory; allowed: 1 to 64 letters, digits, ., _ and -, not starting with a dot.`,
  );
}

/**
 * What each path does: OpenAI's /v1/chat/completions and /v1/models, and beside them rewards, steps and the state of the run.
 * Every path may stand below /v1/t/GROUP/TRAJECTORY as well, which names the episode of its calls.
 */

import {
  ApiError,
  type ClientGroups,
  type ClientTrajectory,
  completed,
  readRequest,
  streamed,
} from '../../extensions/client/index.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import { checkName, type EpisodeName, Episodes } from './episodes.ts';
import type { Handler, HttpAnswer, HttpRequest } from './listen.ts';

/** The run that is served, as far as a request may ask of it. */
export interface ServedRun {
  groups: ClientGroups;
  /** Returns the metrics of the last finished step. */
  metrics(): Metrics | undefined;
  /** Groups of a step that does not say how many. */
  trainBatchSize: number;
  /** Takes a step on so many complete groups; absent = steps are taken as soon as they can be. */
  step?: ((groups: number) => Promise<Metrics>) | undefined;
  /** Calls that may be in flight or wait for a slot. */
  maxCalls?: number;
}

const MAX_CALLS = 1024;

export function routes(run: ServedRun): Handler {
  const { groups, maxCalls = MAX_CALLS } = run;
  const episodes = new Episodes(groups);
  const created = Math.floor(Date.now() / 1000);
  const model = { id: groups.served.name, object: 'model', created, owned_by: 'webgrpo' };
  let calls = 0;

  async function complete(request: HttpRequest, name: EpisodeName): Promise<HttpAnswer> {
    const call = readRequest(await request.json(), groups.served);
    if (calls >= maxCalls)
      throw new ApiError(`${maxCalls} calls are under way, which is as many as wait here; try again.`, {
        status: 429,
        code: 'too_many_calls',
      });
    calls++;
    const trajectory = episodes.of(call, name);
    const over = () => {
      calls--;
      episodes.drop(trajectory);
    };
    try {
      if (!call.stream) return { body: await completed(groups, trajectory, call, request.signal).finally(over) };
      const chunks = await streamed(groups, trajectory, call, request.signal).catch((error: unknown) => {
        over();
        throw error;
      });
      return { events: ending(chunks, over) };
    } catch (error) {
      if (error instanceof ApiError || !request.signal.aborted) throw error;
      throw new ApiError('The client is gone.', { status: 499 });
    }
  }

  async function reward(request: HttpRequest, name: EpisodeName): Promise<HttpAnswer> {
    const body = objectOf(await request.json(), ['id', 'reward', 'acc', 'turns', 'extra']);
    const { id = nameOf(name), reward: score, acc, turns, extra } = body;
    if (typeof id !== 'string')
      throw new ApiError('id must be that of a completion, or "group/trajectory".', { param: 'id' });
    const trajectory = episodes.find(id);
    const options = { ...{ acc, turns, extra } } as Parameters<ClientTrajectory['reward']>[1];
    trajectory.reward(score as number, options);
    return { body: { object: 'reward', id: trajectory.id, reward: score, complete_groups: groups.complete } };
  }

  async function step(request: HttpRequest): Promise<HttpAnswer> {
    const { groups: asked = run.trainBatchSize } = objectOf(await request.json(), ['groups']);
    if (!run.step)
      throw new ApiError(
        'Steps are taken as soon as enough groups are complete (--steps auto); start with --steps manual.',
        {
          status: 409,
        },
      );
    const count = asked === 'all' ? groups.complete : asked;
    if (!Number.isInteger(count) || (count as number) < (asked === 'all' ? 0 : 1))
      throw new ApiError('groups must be 1, 2, 3, ... or "all".', { param: 'groups' });
    if (groups.complete < Math.max(1, count as number))
      throw new ApiError(`${groups.complete} groups are complete, but the step takes ${count as number}.`, {
        status: 409,
      });
    return { body: { object: 'step', metrics: await run.step(count as number) } };
  }

  const state = () => ({
    object: 'status',
    model: model.id,
    step: groups.version,
    steps: run.step ? 'manual' : 'auto',
    calls,
    open_trajectories: groups.size,
    incomplete_groups: groups.incomplete,
    complete_groups: groups.complete,
    groups_per_step: run.trainBatchSize,
  });

  return async (request) => {
    const { method, parts } = request;
    const { rest, name } = placeOf(parts);
    const path = rest.join('/');
    const only = (...methods: string[]) => (methods.includes(method) ? undefined : methods);
    if (path === 'health') return only('GET') ?? { body: { status: 'ok' } };
    if (path === 'v1/models') return only('GET') ?? { body: { object: 'list', data: [model] } };
    if (rest.length === 3 && rest[0] === 'v1' && rest[1] === 'models') {
      if (only('GET')) return only('GET');
      if (rest[2] === model.id) return { body: model };
      throw new ApiError(`This run serves "${model.id}" alone.`, { status: 404, code: 'model_not_found' });
    }
    if (path === 'v1/chat/completions') return only('POST') ?? complete(request, name);
    if (path === 'v1/rewards') return only('POST') ?? reward(request, name);
    if (path === 'v1/step') return only('POST') ?? step(request);
    if (path === 'v1/status') return only('GET') ?? { body: state() };
    if (path === 'v1/metrics') return only('GET') ?? { body: { object: 'metrics', metrics: run.metrics() ?? null } };
    if (path === 'v1' && name.trajectory !== undefined) {
      if (only('DELETE')) return only('DELETE');
      episodes.find(nameOf(name)!).abort();
      return { body: { object: 'trajectory', id: nameOf(name), deleted: true } };
    }
    return undefined;
  };
}

const nameOf = ({ group, trajectory }: EpisodeName): string | undefined =>
  trajectory === undefined ? undefined : `${group ?? ''}/${trajectory}`;

/** The path without the name of an episode. Throws ApiError for a name that cannot be one. */
function placeOf(parts: string[]): { rest: string[]; name: EpisodeName } {
  if (parts[0] !== 'v1' || parts[1] !== 't' || parts.length < 4) return { rest: parts, name: {} };
  const [, , group, trajectory, ...rest] = parts;
  checkName(group);
  checkName(trajectory);
  return { rest: ['v1', ...rest], name: { group, trajectory } };
}

/** A body of these keys alone; one that is empty has none. Throws ApiError. */
function objectOf(body: unknown, known: readonly string[]): Record<string, unknown> {
  if (!isObject(body)) throw new ApiError('The body must be a JSON object.');
  const other = Object.keys(body).find((key) => !known.includes(key));
  if (other === undefined) return Object.fromEntries(Object.entries(body));
  throw new ApiError(`${JSON.stringify(other.slice(0, 60))} is not known here; known are ${known.join(', ')}.`, {
    param: other.slice(0, 60),
  });
}

async function* ending<T>(items: AsyncIterable<T>, over: () => void): AsyncIterable<T> {
  try {
    yield* items;
  } finally {
    over();
  }
}

/**
 * What each path does: OpenAI's /v1/chat/completions and /v1/models, and beside them rewards, steps and the state of the run.
 * Every path may stand below /v1/t/GROUP/TRAJECTORY as well, which names the episode of its calls.
 */

import * as v from 'valibot';
import { read, readBody, whole } from '../../extensions/client/api/read.ts';
import { readRequest } from '../../extensions/client/api/request.ts';
import { completed, streamed } from '../../extensions/client/client.ts';
import { ApiError, type ClientGroups, type RewardOptions } from '../../extensions/client/index.ts';
import type { Metrics } from '../../grpo/metrics.ts';
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

const ID = v.object({ id: v.string('the id of a completion, or "group/trajectory"') });
/** `ClientTrajectory.reward` reads the numbers. */
const REWARD = { id: v.unknown(), reward: v.unknown(), acc: v.unknown(), turns: v.unknown(), extra: v.unknown() };
const GROUPS = '1, 2, 3, ... or "all"';
const STEP = { groups: v.optional(v.union([v.literal('all'), whole(1, Infinity, GROUPS)], GROUPS)) };

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
    const { reward: score, id = nameOf(name), ...options } = readBody(REWARD, await request.json());
    const trajectory = episodes.find(read(ID, { id }).id);
    trajectory.reward(score as number, options as RewardOptions);
    return { body: { object: 'reward', id: trajectory.id, reward: score, complete_groups: groups.complete } };
  }

  async function step(request: HttpRequest): Promise<HttpAnswer> {
    const { groups: asked = run.trainBatchSize } = readBody(STEP, await request.json());
    if (!run.step)
      throw new ApiError(
        'Steps are taken as soon as enough groups are complete (--steps auto); start with --steps manual.',
        {
          status: 409,
        },
      );
    const count = asked === 'all' ? groups.complete : asked;
    if (groups.complete < Math.max(1, count))
      throw new ApiError(`${groups.complete} groups are complete, but the step takes ${count}.`, { status: 409 });
    return { body: { object: 'step', metrics: await run.step(count) } };
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

async function* ending<T>(items: AsyncIterable<T>, over: () => void): AsyncIterable<T> {
  try {
    yield* items;
  } finally {
    over();
  }
}

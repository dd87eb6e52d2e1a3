/**
 * The paths of the server: OpenAI's /v1/chat/completions, /v1/responses and /v1/models, Anthropic's /v1/messages, and our own for rewards,
 * steps and the state of the run. Every path also exists with the prefix /v1/t/GROUP/TRAJECTORY, which names the episode that its calls
 * belong to.
 */

import * as v from 'valibot';
import {
  ApiError,
  type ClientGroups,
  type ClientTrajectory,
  completed,
  fromMessages,
  fromResponses,
  inNamesOf,
  KeptResponses,
  read,
  readBody,
  readRequest,
  type RewardOptions,
  streamed,
  type Translated,
  whole,
} from '../../extensions/client/index.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { checkName, type EpisodeName, episodeOf, findEpisode, nameOf } from './episodes.ts';
import type { Actions, HttpAnswer, HttpRequest, Routes } from './listen.ts';

/** The parts of a run that request handlers use. */
export interface ServedRun {
  groups: ClientGroups;
  /** Returns the metrics of the last finished step. */
  metrics(): Metrics | undefined;
  /** Default number of groups that a training step takes. */
  trainBatchSize: number;
  /** Runs a training step on this number of complete groups. Undefined if steps start automatically. */
  step?: ((groups: number) => Promise<Metrics>) | undefined;
  /** Maximum number of generation calls that are running or waiting for a slot. Further calls are refused with status 429. */
  maxCalls?: number;
}

const MAX_CALLS = 1024;

const ID = v.object({ id: v.string('the id of a completion, or "group/trajectory"') });
/** Fields of a request to /v1/rewards. `ClientTrajectory.reward` checks the values. */
const REWARD = { id: v.unknown(), reward: v.unknown(), acc: v.unknown(), turns: v.unknown(), extra: v.unknown() };
const GROUPS = '1, 2, 3, ... or "all"';
const RESET = { complete: v.optional(v.boolean('true to drop complete groups, too; or false')) };
const STEP = { groups: v.optional(v.union([v.literal('all'), whole(1, Infinity, GROUPS)], GROUPS)) };

/** Returns the server's paths and their handlers. */
export function routes(run: ServedRun): Routes {
  const { groups, maxCalls = MAX_CALLS } = run;
  const created = Math.floor(Date.now() / 1000);
  const model = modelShape(groups.served.name, created);
  const kept = new KeptResponses();
  let calls = 0;

  /** Handles a request of another API: translates it to a chat completion, and the answer back. */
  const translated = (translate: (body: unknown) => Translated, name: EpisodeName): Actions => ({
    async POST(request) {
      const { body, episode, ...api } = translate(await request.json());
      const known = groups.episodes.find(({ id, state }) => id === episode && state === 'open');
      try {
        const answer = await complete(body, request, name, known, api);
        return 'completion' in answer ? { body: api.whole(answer.completion) } : { named: api.events(answer.chunks) };
      } catch (error) {
        throw inNamesOf(api, error);
      }
    },
  });

  /**
   * Handles a chat completion request.
   * @param known episode that contains the earlier reply to which the request refers, if any
   * @param api the API from which the request was translated, if any
   */
  async function complete(
    body: unknown,
    request: HttpRequest,
    place: EpisodeName,
    known?: ClientTrajectory,
    api?: Pick<Translated, 'names' | 'ignored'>,
  ) {
    const { signal, client: owner } = request;
    const call = readRequest(body, groups.served, api);
    const replies = call.n ?? 1;
    if (calls > 0 && calls + replies > maxCalls)
      throw new ApiError(`${maxCalls} calls are in flight, which is the limit. Try again later.`, {
        status: 429,
        code: 'too_many_calls',
      });
    const isNamed = (place.trajectory ?? call.metadata['trajectory']) !== undefined;
    const trajectory = (isNamed ? undefined : known) ?? episodeOf(groups, call, { ...place, owner });
    calls += replies;
    const over = () => {
      calls -= replies;
      // Closes an episode whose first call failed: the client has received no id for it, so no later call can use it.
      if (trajectory.name === undefined && trajectory.rows().length === 0) trajectory.abort();
    };
    try {
      if (call.stream) return { chunks: ending(await streamed(groups, trajectory, call, signal), over) };
      const completion = await completed(groups, trajectory, call, signal);
      over();
      return { completion };
    } catch (error) {
      over();
      throw error;
    }
  }

  const status = () => ({
    object: 'status',
    model: model.id,
    step: groups.version,
    steps: run.step ? 'manual' : 'auto',
    calls,
    open_trajectories: groups.size,
    unrewarded_trajectories: groups.unrewarded,
    incomplete_groups: groups.incomplete,
    complete_groups: groups.complete,
    groups_per_step: run.trainBatchSize,
    /** For each request field that is accepted but has no effect: the number of requests that had it. */
    hints: groups.hints,
  });

  const gets = (body: () => unknown): Actions => ({ GET: () => ({ body: body() }) });
  const table = (name: EpisodeName, id = nameOf(name)): Record<string, Actions> => ({
    health: gets(() => ({ status: 'ok' })),
    'v1/models': gets(() => ({
      object: 'list',
      data: [model],
      has_more: false,
      first_id: model.id,
      last_id: model.id,
    })),
    [`v1/models/${model.id}`]: gets(() => model),
    'v1/status': gets(status),
    'v1/metrics': gets(() => ({ object: 'metrics', metrics: run.metrics() ?? null })),
    'v1/chat/completions': {
      async POST(request) {
        const answer = await complete(await request.json(), request, name);
        return 'completion' in answer ? { body: answer.completion } : { events: answer.chunks };
      },
    },
    'v1/responses': translated((body) => fromResponses(body, kept), name),
    'v1/messages': translated(fromMessages, name),
    'v1/rewards': { POST: (request) => reward(groups, request, name) },
    'v1/reset': { POST: (request) => reset(groups, request) },
    'v1/step': { POST: (request) => step(run, request) },
    ...(id !== undefined && { v1: { DELETE: ({ client }) => remove(groups, id, client) } }),
  });
  return (parts) => {
    const { path, name } = placeOf(parts);
    return new Map(Object.entries(table(name))).get(path);
  };
}

/** Returns the description of the served model, with the fields of both OpenAI's and Anthropic's API. */
const modelShape = (id: string, created: number) => ({
  id,
  object: 'model',
  created,
  owned_by: 'webgrpo',
  type: 'model',
  display_name: id,
  created_at: new Date(created * 1000).toISOString(),
});

async function reward(groups: ClientGroups, request: HttpRequest, name: EpisodeName): Promise<HttpAnswer> {
  const { reward: score, id = nameOf(name), ...options } = readBody(REWARD, await request.json());
  const trajectory = findEpisode(groups, read(ID, { id }).id, request.client);
  trajectory.reward(score as number, options as RewardOptions);
  return { body: { object: 'reward', id: trajectory.id, reward: score, complete_groups: groups.complete } };
}

const optionalJson = async (request: HttpRequest): Promise<unknown> => (request.isEmpty ? {} : request.json());

async function step({ groups, trainBatchSize, step: take }: ServedRun, request: HttpRequest): Promise<HttpAnswer> {
  const { groups: asked = trainBatchSize } = readBody(STEP, await optionalJson(request));
  const conflict = (words: string) => new ApiError(words, { status: 409 });
  if (!take)
    throw conflict('Steps are taken as soon as enough groups are complete (--steps auto). Start with --steps manual.');
  const count = asked === 'all' ? groups.complete : asked;
  if (groups.complete < Math.max(1, count))
    throw conflict(
      `${groups.complete} ${groups.complete === 1 ? 'group is' : 'groups are'} complete, but the step takes ${count === 0 ? 'at least 1' : count}. Reward more episodes first.`,
    );
  return { body: { object: 'step', metrics: await take(count) } };
}

/**
 * Drops the client's episodes whose group is not complete, and with `complete: true` also complete groups. Drops those of all clients if
 * the request has no API key.
 */
async function reset(groups: ClientGroups, request: HttpRequest): Promise<HttpAnswer> {
  const { complete = false } = readBody(RESET, await optionalJson(request));
  const dropped = groups.reset(request.client, complete);
  return { body: { object: 'reset', dropped_trajectories: dropped, complete_groups: groups.complete } };
}

function remove(groups: ClientGroups, id: string, owner: string | undefined): HttpAnswer {
  findEpisode(groups, id, owner).abort();
  return { body: { object: 'trajectory', id, deleted: true } };
}

/** Splits a path into the name of the episode (/v1/t/GROUP/TRAJECTORY, optional) and the rest. Throws ApiError for an invalid name. */
function placeOf(parts: string[]): { path: string; name: EpisodeName } {
  const [version, t, group, trajectory, ...rest] = parts;
  if (version !== 'v1' || t !== 't' || parts.length < 4) return { path: parts.join('/'), name: {} };
  checkName(group);
  checkName(trajectory);
  const path = rest[0] === 'v1' ? rest : ['v1', ...rest]; // Anthropic's clients add /v1 to their base URL
  return { path: path.join('/'), name: { group, trajectory } };
}

async function* ending<T>(items: AsyncIterable<T>, over: () => void): AsyncIterable<T> {
  try {
    yield* items;
  } finally {
    over();
  }
}

/**
 * Generates the samples of a step: draws problems and runs one agent loop per sample. All loops run concurrently on one engine, and each
 * sample is scored as it finishes. PlainGroups is the default source of samples; filterGroups.ts and src/extensions/pipelines have the others.
 */

import { runAgentLoop } from '../../rollout/agent/loop.ts';
import type { SampleEvent, Span } from '../../rollout/agent/events.ts';
import { samplesStarted } from '../../rollout/agent/yield.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import type { RolloutStats } from '../../rollout/types.ts';
import { withObservation } from '../../tasks/environments/environment.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import type { Problem } from '../../tasks/task.ts';
import type { Metrics } from '../metrics.ts';
import type { Sample } from '../update/batch.ts';
import { type GenerateOptions, type GenerationContext, generateOptions, GREEDY } from './options.ts';
import type { ProblemQueue } from './problems.ts';
import { score } from './score.ts';

/** Provides the samples of each step. */
export interface SampleSource {
  /** Generates and scores the groups of a step. The samples of one group are neighbours. */
  generate(step: number): Promise<GeneratedStep>;
  /** Access to the groups that the source keeps between steps. Default: the source keeps none. */
  readonly inFlight?: InFlight | undefined;
}

/** Access to the groups that are still in flight when a step ends. */
export interface InFlight {
  /** Number of the problem of each group in flight; undefined if the groups do not come from the task's problems. */
  readonly inFlightNumbers: number[] | undefined;
  /**
   * Resolves to true once the next step has the groups it needs; to false if `stop` aborts or no more groups will
   * follow.
   */
  ready(stop: AbortSignal): Promise<boolean>;
  /**
   * Returns the groups in flight as plain JSON for a checkpoint. Undefined if the problems of `inFlightNumbers` must be
   * generated again from the start.
   */
  save(): Promise<unknown>;
  /**
   * Replaces the groups in flight by those of a checkpoint. If `state` is undefined, the problems of `inFlightNumbers`
   * are generated again. In both cases new problems start after these. Throws InputError if the state cannot be read.
   */
  restore(state: unknown, to: { inFlightNumbers: readonly number[]; vocabSize: number }): void;
  /** Called before the policy is updated. Resolves once rollout no longer reads the policy's weights. */
  pause(): Promise<void>;
  /**
   * Called after the update of a step. Syncs the weights to rollout if a sync is due; returns metrics of the transfer.
   */
  resume(step: number, engine: GenerationContext['engine']): Promise<Metrics>;
  /** Runs an evaluation with the trained weights. @param run calls `onQueued` once all of its requests are queued */
  evaluate<T>(run: (onQueued: () => Promise<void>) => Promise<T>): Promise<T>;
  /** Aborts the groups in flight; `save` can still return them afterwards. */
  close(): Promise<void>;
}

/**
 * Thrown if the run stops before the rollouter has finished the current step's groups. The trainer then undoes the
 * step.
 */
export class CancelledError extends Error {
  override name = 'CancelledError';
}

/** Ignores a CancelledError; rethrows every other error. */
export function ignoreCancelled(error: unknown): undefined {
  if (!(error instanceof CancelledError)) throw error;
}

export interface SourceOptions extends GenerationContext {
  problems: ProblemQueue;
  /** Called with every sample as soon as it is scored. */
  onSample(sample: Sample, step: number): void;
}

interface GeneratedSamples {
  samples: Sample[];
  seconds: OutsideSeconds;
}

export interface GeneratedStep extends GeneratedSamples {
  /**
   * Samples that the step generated itself, if `samples` also holds replayed groups. Rewards and lengths are reported
   * for these.
   */
  drawn?: Sample[];
  stats: RolloutStats;
  /** Seconds of generation, if part of it happened outside the call of `generate`. */
  genSeconds?: number;
  metrics: Metrics;
}

/** Trains on every group it generates: `trainBatchSize` problems per step, `rollout.n` samples each. */
export class PlainGroups implements SampleSource {
  readonly #options: SourceOptions;

  constructor(options: SourceOptions) {
    this.#options = options;
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    const drawn = await problems.take(config.data.trainBatchSize);
    const generated = await generateSamples(drawn, stepOptions(this.#options, step));
    await problems.observe(generated.samples);
    return { ...generated, stats: await engine.rollout.takeStats(), metrics: {} };
  }
}

/** Returns the options of a training step's generation. */
export function stepOptions(source: SourceOptions, step: number): GenerateOptions {
  const options = generateOptions(source, step, source.config.rollout.n);
  return { ...options, globalStep: step, onSample: (sample) => source.onSample(sample, step) };
}

/**
 * Seconds in which at least one sample waited for tools, and for its reward. Samples that do not wait are generated
 * meanwhile.
 */
export interface OutsideSeconds {
  tools: number;
  reward: number;
}

/** Spans of time in which single samples waited for tools and for rewards. Spans of different samples can overlap. */
export interface OutsideSpans {
  tools: Span[];
  reward: Span[];
}

/** Returns the seconds that spans cover; time in several spans counts once. */
export const outsideSeconds = ({ tools, reward }: OutsideSpans): OutsideSeconds => ({
  tools: coveredMs(tools) / 1000,
  reward: coveredMs(reward) / 1000,
});

function coveredMs(spans: readonly Span[]): number {
  let [total, until] = [0, -Infinity];
  for (const [start, end] of spans.toSorted(([a], [b]) => a - b)) {
    total += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return total;
}

/**
 * Generates samples for every problem, problem by problem. The samples of one problem are neighbours and share `group`.
 */
export async function generateSamples(
  problems: readonly Problem[],
  options: GenerateOptions,
): Promise<GeneratedSamples> {
  const { groups, outside } = startGroups(problems, options);
  if (options.onQueued) {
    for (const group of groups) group.catch(() => {}); // a group can fail before it is awaited
    await samplesStarted();
    await options.onQueued();
  }
  return { samples: (await allEnded(groups)).flat(), seconds: outsideSeconds(outside) };
}

/**
 * Starts every sample of every problem. A group resolves when its last sample is scored. Until then, waits for tools
 * and rewards are added to `outside`. The first failure aborts the samples of all groups. Every incomplete group then
 * rejects with that failure, once its last sample has ended.
 */
export function startGroups(
  problems: readonly Problem[],
  options: GenerateOptions,
): { groups: Promise<Sample[]>[]; outside: OutsideSpans } {
  const { engine, tokenizer, task, sampling, limits, agent, signal, onSample, profile = false } = options;
  const { seed, batch, n, greedy = false, firstGroup = 0, firstSample = 0, onError = 'stop', records } = options;
  const outside: OutsideSpans = { tools: [], reward: [] };
  const ending = new AbortController();
  let failure: { error: unknown } | undefined;
  const fail = (error: unknown): never => {
    failure ??= { error };
    ending.abort();
    throw failure.error;
  };
  const throwIfFailed = (): void => {
    if (failure) throw failure.error;
  };
  const runSample = async (problem: Problem, p: number, s: number): Promise<Sample> => {
    const events: SampleEvent[] = [];
    const record = records?.[s];
    const number = firstSample + s;
    const output = await runAgentLoop({
      ...(profile && { onEvent: (event: SampleEvent) => events.push(event) }),
      engine,
      tokenizer,
      ...partsOf(task, problem),
      problem,
      requestId: `${batch}.${firstGroup + p}.${number}`,
      key: randomKey(seed, batch, firstGroup + p, number),
      sampling: s < n ? sampling : { ...sampling, ...GREEDY },
      limits,
      onError,
      ...agent,
      toolSchemasInPrompt: options.writesSchemas?.(problem) ?? false,
      ...(record && { record }),
      signal: ending.signal,
    });
    throwIfFailed();
    const { trajectory, messages, timing, toolRewards, observation } = output;
    const prompt = observation === '' ? undefined : withObservation(problem.messages, observation);
    const started = performance.now();
    const known = record?.reward;
    const scoring = () =>
      score({ ...options, signal: ending.signal }, prompt ? { ...problem, messages: prompt } : problem, output);
    const { reward, fault } = known ? { reward: known } : await (record ? record.outside(scoring) : scoring());
    throwIfFailed();
    record?.scored(reward);
    outside.tools.push(...timing.tools);
    const end = performance.now();
    outside.reward.push([started, end]);
    if (profile) events.push({ kind: 'reward', turn: trajectory.numTurns, start: started, end });
    const told = {
      ...(prompt && { prompt }),
      ...(Object.keys(toolRewards).length > 0 && { toolRewards }),
      ...(fault && { fault }),
    };
    const sample: Sample = { problem, group: firstGroup + p, trajectory, messages, reward, events, ...told };
    if (s < n && !known) onSample?.(sample);
    return sample;
  };
  const groups = problems.map((problem, p) =>
    allEnded(Array.from({ length: greedy ? n + 1 : n }, (_, s) => runSample(problem, p, s).catch(fail))),
  );
  if (signal?.aborted) ending.abort();
  const unlink = signal && onAbort(signal, () => ending.abort());
  void Promise.allSettled(groups).then(unlink);
  return { groups, outside };
}

/** Like Promise.all, but also waits for all other promises before it rejects. */
async function allEnded<T>(work: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/**
 * Returns the random key of a sample: two 32-bit words from (seed, batch, problem, sample) that are practically unique,
 * by three rounds of a 128-bit mix.
 */
export function randomKey(seed: number, batch: number, problem: number, sample: number): [number, number] {
  let h = [seed >>> 0, batch >>> 0, problem >>> 0, sample >>> 0];
  for (let round = 0; round < 3; round++)
    h = h.map((x, i) => {
      const mixed = Math.imul(x ^ (h[(i + 1) % 4] >>> 15) ^ Math.imul(h[(i + 3) % 4], 0x9e3779b1), 0x85ebca6b);
      return (mixed ^ (mixed >>> 13)) + i * 0x27d4eb2f;
    });
  return [(h[0] ^ h[2]) >>> 0, (h[1] ^ h[3]) >>> 0];
}

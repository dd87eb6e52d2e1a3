/**
 * Generation of a step: draws problems and runs one agent loop a sample, all at once against one engine, each scored as it
 * finishes. PlainGroups is the default source of a step's samples; filterGroups.ts and overSampling.ts have the others.
 */

import { type AgentLoopOutput, runAgentLoop } from '../../rollout/agent/loop.ts';
import type { SampleEvent } from '../../rollout/agent/events.ts';
import type { RolloutStats, Trajectory } from '../../rollout/types.ts';
import { InputError } from '../../errors.ts';
import type { Problem, Reward } from '../../tasks/task.ts';
import type { Metrics } from '../metrics.ts';
import type { Sample } from '../update/batch.ts';
import { type GenerateOptions, type GenerationContext, generateOptions, GREEDY } from './options.ts';
import type { ProblemQueue } from './problems.ts';

/** Where the samples of a step come from. */
export interface SampleSource {
  /** Generates and scores the groups of a step; those of one group are neighbours. */
  generate(step: number): Promise<GeneratedStep>;
  /** Numbers of the problems whose groups are under way between two steps. */
  readonly carried?: number[] | undefined;
  /** Starts these problems' groups over before it draws new ones: they were under way at a checkpoint. */
  startOver?(carried: readonly number[]): void;
  /** Lets the engine run between two steps, for an evaluation. */
  resume?(): Promise<void>;
  /** Aborts the groups that are under way. */
  close?(): Promise<void>;
}

export interface SourceOptions extends GenerationContext {
  problems: ProblemQueue;
  /** Hears of every sample as it is scored. */
  onSample(sample: Sample, step: number): void;
}

interface GeneratedSamples {
  samples: Sample[];
  seconds: OutsideSeconds;
}

export interface GeneratedStep extends GeneratedSamples {
  /** What the step sampled itself, where `samples` holds replayed groups as well: rewards and lengths are reported of it. */
  drawn?: Sample[];
  stats: RolloutStats;
  metrics: Metrics;
}

/** Trains on every group it generates: `trainBatchSize` problems a step, `rollout.n` samples each. */
export class PlainGroups implements SampleSource {
  readonly #options: SourceOptions;

  constructor(options: SourceOptions) {
    this.#options = options;
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    const generated = await generateSamples(
      problems.take(config.data.trainBatchSize),
      stepOptions(this.#options, step),
    );
    problems.observe(generated.samples);
    return { ...generated, stats: await engine.rollout.takeStats(), metrics: {} };
  }
}

/** Options of a training step's generation. */
export function stepOptions(source: SourceOptions, step: number): GenerateOptions {
  const options = generateOptions(source, step, source.config.rollout.n);
  return { ...options, globalStep: step, onSample: (sample) => source.onSample(sample, step) };
}

/** Seconds spent outside the model, summed over samples (they overlap each other and generation). */
export interface OutsideSeconds {
  tools: number;
  reward: number;
}

/** Samples of every problem, problem by problem; those of one are neighbours and share `group`. */
export async function generateSamples(
  problems: readonly Problem[],
  options: GenerateOptions,
): Promise<GeneratedSamples> {
  const { groups, seconds } = startGroups(problems, options);
  return { samples: (await Promise.all(groups)).flat(), seconds };
}

/** Starts every sample of every problem; a group resolves when its last sample is scored. `seconds` grows meanwhile. */
export function startGroups(
  problems: readonly Problem[],
  options: GenerateOptions,
): { groups: Promise<Sample[]>[]; seconds: OutsideSeconds } {
  const { engine, tokenizer, task, sampling, limits, agent, signal, onSample, profile = false } = options;
  const { seed, batch, n, greedy = false, firstGroup = 0 } = options;
  const seconds: OutsideSeconds = { tools: 0, reward: 0 };
  const runSample = async (problem: Problem, p: number, s: number): Promise<Sample> => {
    const events: SampleEvent[] = [];
    const output = await runAgentLoop({
      ...(profile && { onEvent: (event: SampleEvent) => events.push(event) }),
      engine,
      tokenizer,
      tools: task.tools ?? [],
      problem,
      requestId: `${batch}.${firstGroup + p}.${s}`,
      key: randomKey(seed, batch, firstGroup + p, s),
      sampling: s < n ? sampling : { ...sampling, ...GREEDY },
      limits,
      ...agent,
      ...(signal && { signal }),
    });
    const { trajectory, messages, timing } = output;
    const started = performance.now();
    const reward = await score(options, problem, output);
    seconds.tools += timing.toolsMs / 1000;
    const end = performance.now();
    seconds.reward += (end - started) / 1000;
    if (profile) events.push({ kind: 'reward', turn: trajectory.numTurns, start: started, end });
    const sample = { problem, group: firstGroup + p, trajectory, messages, reward, events };
    if (s < n) onSample?.(sample);
    return sample;
  };
  const groups = problems.map((problem, p) =>
    Promise.all(Array.from({ length: greedy ? n + 1 : n }, (_, s) => runSample(problem, p, s))),
  );
  return { groups, seconds };
}

async function score(
  { task, globalStep }: Pick<GenerateOptions, 'task' | 'globalStep'>,
  problem: Problem,
  { messages, trajectory, toolRewards, toolStates, state }: AgentLoopOutput,
): Promise<Reward> {
  const reward = await task.reward({
    problem,
    messages,
    toolRewards,
    toolStates,
    state,
    ...(globalStep !== undefined && { globalStep }),
    response: messages.findLast((m) => m.role === 'assistant')?.content ?? '',
    stopReason: trajectory.stopReason,
    numTurns: trajectory.numTurns,
    numToolCalls: trajectory.numToolCalls,
    numToolErrors: trajectory.numToolErrors,
    responseTokens: trajectory.responseIds.length,
  });
  const { score: value } = reward;
  if (!Number.isFinite(value) && !Number.isNaN(value))
    throw new Error(
      `The reward of problem "${problem.id}" is ${value}; give a finite number, or NaN where there is none for this sample.`,
    );
  checkTurns(reward, problem, trajectory);
  return reward;
}

/** Throws InputError where `turns` has less than a finite number or NaN for every turn that is trained. */
function checkTurns({ turns }: Reward, { id }: Problem, { mask }: Trajectory): void {
  if (!turns) return;
  const trained = mask.reduce((count, m, t) => count + (m === 1 && mask[t - 1] !== 1 ? 1 : 0), 0);
  const fault = (turn: number, what: string) =>
    new InputError(
      `The reward of problem "${id}" has ${what} for turn ${turn + 1} of ${trained}: its \`turns\` are ` +
        `[${turns.join(', ')}]; give one number for every assistant turn, 0 or NaN where there is none.`,
    );
  const infinite = turns.findIndex((value) => !Number.isFinite(value) && !Number.isNaN(value));
  if (infinite >= 0) throw fault(infinite, `${turns[infinite]}`);
  if (turns.length < trained) throw fault(turns.length, 'no number');
}

/** Two 32-bit words that no other (seed, batch, problem, sample) gets, in practice: two rounds of a 128-bit mix. */
export function randomKey(seed: number, batch: number, problem: number, sample: number): [number, number] {
  let h = [seed >>> 0, batch >>> 0, problem >>> 0, sample >>> 0];
  for (let round = 0; round < 3; round++)
    h = h.map((x, i) => {
      const mixed = Math.imul(x ^ (h[(i + 1) % 4] >>> 15) ^ Math.imul(h[(i + 3) % 4], 0x9e3779b1), 0x85ebca6b);
      return (mixed ^ (mixed >>> 13)) + i * 0x27d4eb2f;
    });
  return [(h[0] ^ h[2]) >>> 0, (h[1] ^ h[3]) >>> 0];
}

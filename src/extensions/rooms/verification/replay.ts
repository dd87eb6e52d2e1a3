/**
 * Runs the agent loop of a sample again, with an engine that returns the tokens that the worker claims to have sampled. The controller thus
 * computes prompt, tool outputs, ends of turns, messages and reward itself, and compares them with the worker's claim. Whether the tokens
 * were sampled correctly is checked elsewhere (draws.ts).
 */

import { InputError } from '../../../errors.ts';
import { type ToolParser, toolParserOf } from '../../../rollout/tools/parser.ts';
import { concatTokens, TURN_FIELDS } from '../../../rollout/tokenLog.ts';
import type { GenerateRequest, Generation, TurnEngine, Trajectory } from '../../../rollout/types.ts';
import type { Message, Problem } from '../../../tasks/task.ts';
import { type GenerationContext, generateOptions } from '../../../grpo/generate/options.ts';
import { generateSamples } from '../../../grpo/generate/samples.ts';
import { type Sample, sameIds } from '../../../grpo/update/batch.ts';
import { uncheckedSetting } from './rules.ts';
import { Rejection, type SampleClaim } from './types.ts';

/** Config, task and tokenizer of the run, and what need not be computed again. */
export type ReplayContext = Omit<GenerationContext, 'engine' | 'onFault'> & {
  tokenizer: GenerationContext['engine']['tokenizer'];
  /**
   * Parts that cannot be computed again, so that the worker's results are accepted unchecked: the named tools (they must be stateless,
   * return no reward and end no sample), and the reward. Default: none.
   */
  trusted?: { tools?: readonly string[]; reward?: boolean };
};

/**
 * Returns the sample that the controller computes from the claimed tokens. Throws Rejection if the claimed sample differs. Throws
 * InputError if the run's own settings or code make a verification impossible.
 */
export async function replaySample(
  { tokenizer, trusted, ...context }: ReplayContext,
  problem: Problem,
  claimed: Sample,
  { step, number, s, version }: SampleClaim,
): Promise<Sample> {
  const rollout = new ClaimedTurns(claimed.trajectory, version);
  const answered = withTrusted(context, claimed, trusted);
  const options = generateOptions({ ...answered, engine: { rollout, tokenizer } }, step, 1);
  const numbers = { firstGroup: number, firstSample: s, globalStep: step };
  const { samples } = await generateSamples([problem], { ...options, ...numbers, profile: false }).catch(
    (error: unknown) => {
      if (rollout.rejection) throw rollout.rejection; // the agent loop may have replaced it by another error
      throw error;
    },
  );
  compare(claimed, samples[0]);
  return samples[0];
}

/** Returns the context with the trusted tools and reward replaced by functions that return the claimed results. */
function withTrusted<C extends Pick<ReplayContext, 'config' | 'task' | 'toolParser'>>(
  context: C,
  claimed: Sample,
  { tools: names = [], reward = false }: NonNullable<ReplayContext['trusted']> = {},
): C {
  const { task, config, toolParser = toolParserOf(config.rollout.multiTurn.format) } = context;
  /** Claimed outputs of the next calls of each trusted tool. */
  const outputs = new Map(names.map((name) => [name, [] as string[]]));
  let next = 0;
  const parse: ToolParser = (text, tools) => {
    const calls = toolParser(text, tools);
    const isTurn = ({ role, content }: Message, m: number) =>
      m >= next && role === 'assistant' && text.startsWith(content);
    next = claimed.messages.findIndex(isTurn) + 1;
    for (const { name, error } of calls) {
      const said = claimed.messages[next++]?.content ?? '';
      if (error === undefined) outputs.get(name)?.push(said);
    }
    return calls;
  };
  const tools = task.tools?.map(({ name, description, parameters, ...tool }) => {
    const said = outputs.get(name);
    if (!said) return { name, description, parameters, ...tool };
    // No further truncation: the claimed output is the truncated one.
    return { name, description, parameters, maxResponseLength: Infinity, execute: () => said.shift() ?? '' };
  });
  return {
    ...context,
    task: { ...task, ...(tools && { tools }), ...(reward && { reward: () => claimed.reward }) },
    ...(names.length > 0 && { toolParser: Object.assign(parse, toolParser) }),
  };
}

/** Engine that answers each request with the claimed tokens that follow its context, up to the end of the turn. */
class ClaimedTurns implements TurnEngine {
  rejection: Rejection | undefined;
  readonly #claimed: Trajectory;
  readonly #version: number;

  constructor(claimed: Trajectory, version: number) {
    this.#claimed = claimed;
    this.#version = version;
  }

  async generate(request: GenerateRequest): Promise<Generation> {
    try {
      return this.#turn(request);
    } catch (error) {
      if (error instanceof Rejection) this.rejection ??= error;
      throw error;
    }
  }

  #turn({ contextIds, promptLength, sampling }: GenerateRequest): Generation {
    const { responseIds, mask } = this.#claimed;
    const unchecked = uncheckedSetting(sampling);
    if (unchecked !== undefined)
      throw new InputError(`An agent loop sets ${unchecked} for a turn, which cannot be verified. Leave it out.`);
    expectPrompt(contextIds.subarray(0, promptLength), this.#claimed);
    const start = contextIds.length - promptLength;
    expectIds(contextIds.subarray(promptLength), responseIds);
    const stops = sampling.stopTokenIds.slice(0, 4); // kernels/sample.wgsl checks at most four
    for (let end = start + 1; end <= responseIds.length; end++) {
      if (mask[end - 1] !== 1)
        throw new Rejection('forged mask', `token ${end - 1} belongs to a turn, but is claimed not to be sampled`);
      const stopped = stops.includes(responseIds[end - 1]);
      if (!stopped && end - start < sampling.maxNewTokens) continue;
      const weightVersions = new Uint32Array(responseIds.length).fill(this.#version);
      const tokens = { weightVersions, ...this.#claimed, tokenIds: responseIds };
      return { ...concatTokens([tokens], TURN_FIELDS, { start, end }), stopReason: stopped ? 'stop' : 'length' };
    }
    const says = `the turn that begins at token ${start} has ${responseIds.length - start} tokens`;
    throw new Rejection('forged mask', `${says} and ends at neither a stop token nor a limit`);
  }

  release(): void {}
  abort(): void {}
  resetCache(): void {}
  takeStats(): never {
    throw new Error('An engine that repeats turns has no counters.');
  }
}

function expectPrompt(own: Uint32Array, { promptIds }: Trajectory): void {
  if (sameIds(own, promptIds)) return;
  const at = own.findIndex((id, i) => id !== promptIds[i]);
  const found =
    at < 0 ? `${promptIds.length} tokens for ${own.length}` : `token ${at} is ${promptIds[at]} for ${own[at]}`;
  throw new Rejection('wrong prompt', found);
}

/** Throws Rejection unless `claimed` starts with `own`. */
function expectIds(own: Uint32Array, claimed: Uint32Array): void {
  const at = own.findIndex((id, i) => id !== claimed[i]);
  if (at >= 0) throw new Rejection('forged mask', `token ${at} is ${claimed[at]}, but the loop puts ${own[at]} there`);
}

/** Throws Rejection at the first field in which the samples differ. */
function compare(claimed: Sample, own: Sample): void {
  const [a, b] = [claimed.trajectory, own.trajectory];
  expectPrompt(b.promptIds, a);
  expectIds(b.responseIds, a.responseIds);
  if (a.responseIds.length > b.responseIds.length)
    throw new Rejection(
      'forged mask',
      `it has ${a.responseIds.length} tokens, but the loop ends after ${b.responseIds.length}`,
    );
  const drawn = b.mask.findIndex((m, t) => m !== a.mask[t]);
  if (drawn >= 0)
    throw new Rejection('forged mask', `token ${drawn} is claimed to be ${a.mask[drawn] ? '' : 'not '}sampled`);
  for (const key of ['stopReason', 'numTurns', 'numToolCalls', 'numToolErrors'] as const)
    if (a[key] !== b[key]) throw new Rejection('forged ending', `${key} is ${a[key]} for ${b[key]}`);
  // Log-probs of sampled tokens are equal here, because the agent loop got the claimed ones. For all other tokens the loop records 0.
  const noted = a.logProbs.findIndex((value, t) => !Object.is(value, b.logProbs[t]));
  if (noted >= 0) throw new Rejection('forged log-probs', `token ${noted} was not sampled, but has a log-prob`);
  if (text(claimed.messages) !== text(own.messages))
    throw new Rejection('forged messages', 'its messages are not what its tokens say');
  for (const key of ['reward', 'toolRewards'] as const)
    if (text(claimed[key]) !== text(own[key]))
      throw new Rejection('forged reward', `${key} is ${text(claimed[key])} for ${text(own[key])}`);
}

/**
 * Converts a value to a JSON-like text for comparison: keys are sorted, undefined values are left out, and NaN (rewards can be NaN) stays
 * NaN.
 */
function text(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(text).join()}]`;
  if (typeof value !== 'object' || value === null) return Number.isNaN(value) ? 'NaN' : (JSON.stringify(value) ?? '');
  const entries = Object.entries(value).filter(([, entry]) => entry !== undefined);
  return `{${entries
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, entry]) => `${JSON.stringify(key)}:${text(entry)}`)
    .join()}}`;
}

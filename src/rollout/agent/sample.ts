/**
 * One sample under way: its tokens, its messages, and the three things an agent loop does with it (generate, call tools,
 * say something). Limits, masks, log-probs and stop reasons are kept here, so that a loop of the user's own is short.
 */

import type { CalledTurn } from '../../model/tokenizer/chat.ts';
import type { Message } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { promptOf } from './prompt.ts';
import { type CallFailure, runTool, type ToolResult } from '../tools/run.ts';
import type { EventKind, SampleEvent } from './events.ts';
import { type TurnSampling, turnSampling } from './turnSampling.ts';
import type { AgentLoopInput, Turn } from './types.ts';
import { cutAtStop } from '../decode/stopStrings.ts';
import { callFormatOf, parseHermes, type ToolCall } from '../tools/parser.ts';
import { ToolStates } from '../tools/states.ts';
import type { Generation, SamplingParams, StopReason, Trajectory } from '../types.ts';

export class AgentSample {
  readonly input: AgentLoopInput;
  /** After the prompt. */
  readonly messages: Message[] = [];
  /** Sum of what tools gave beside their texts, by tool. */
  readonly toolRewards: Record<string, number> = {};
  readonly timing = { generateMs: 0, toolsMs: 0 };
  /** The loop's own, for the reward function. */
  state: unknown = undefined;
  toolStates: Record<string, unknown> = {};
  readonly #prompt: Uint32Array;
  readonly #ids: number[] = [];
  readonly #mask: number[] = [];
  readonly #logProbs: number[] = [];
  readonly #logMass: number[] = [];
  readonly #weightVersions: number[] = [];
  readonly #signal: AbortSignal;
  readonly #states: ToolStates;
  /** The last turn ended without an end token, which is still to be written. */
  #open = false;
  /** The token that the last turn ended with, a stop token or an end token. */
  #endToken: number | undefined;
  #timedOut = false;
  #counts = { numTurns: 0, numToolCalls: 0, numToolErrors: 0 };

  /** Aborting `signal` ends the sample. Throws InputError on a prompt longer than the limits. */
  constructor(input: AgentLoopInput, signal: AbortSignal) {
    this.input = input;
    this.#signal = signal;
    this.#prompt = promptOf(input);
    this.#states = new ToolStates({ sampleId: input.requestId, problem: input.problem });
  }

  /**
   * The model's next turn, with what `turn` asks of the sampler for it alone. A loop must end the sample when `stop` is
   * set. Called again with nothing said in between, it goes on with the same turn. Throws InputError for a setting that a
   * turn may not have; see TurnSampling.
   */
  async generate(turn: TurnSampling = {}): Promise<Turn> {
    const sampling = turnSampling(this.input.sampling, turn);
    if (this.#signal.aborted) return { content: '', finishReason: 'stop', calls: [], stop: this.#abortReason() };
    const budget = this.tokensLeft;
    const generation = await this.#generate(budget, sampling);
    const { stopReason, tokenIds } = generation;
    const { content } = this.messages[this.messages.length - 1];
    const cut = stopReason === 'length';
    const ended = { content, finishReason: cut ? ('length' as const) : ('stop' as const), calls: [] };
    if (stopReason === 'aborted') return { ...ended, stop: this.#abortReason() };
    if (!cut) return { ...ended, calls: this.#parse(this.#textOf(generation, sampling)) };
    if (tokenIds.length === turn.maxNewTokens && tokenIds.length < budget) return ended;
    return { ...ended, stop: tokenIds.length < budget ? 'max_tokens' : this.#outOf() };
  }

  /** Runs all calls of a turn at once and says their outputs, in the order of the calls. A value ends the sample. */
  async callTools(calls: ToolCall[]): Promise<StopReason | undefined> {
    const { limits } = this.input;
    if (this.#counts.numTurns >= limits.maxAssistantTurns) return 'max_turns';
    if (this.#counts.numToolCalls + calls.length > limits.maxToolCalls) return 'max_tool_calls';
    const results = await this.#runTools(calls);
    const outputs = results.map(({ text }): Message => ({ role: 'tool', content: text }));
    this.messages.push(...outputs);
    if (this.#signal.aborted) return this.#abortReason();
    const done = results.some((result) => result.done) ? 'done' : undefined;
    return this.#fatal(results) ?? done ?? this.#extend(outputs, this.#called(calls));
  }

  /** Puts a message that the model did not write before its next turn. A value: there is no room, end the sample. */
  say(...messages: Message[]): StopReason | undefined {
    this.messages.push(...messages);
    return this.#extend(messages);
  }

  get numTurns(): number {
    return this.#counts.numTurns;
  }

  /** Tokens the sample may still gain. */
  get tokensLeft(): number {
    const { limits } = this.input;
    return Math.min(limits.maxResponseLength, limits.contextLength - this.#prompt.length) - this.#ids.length;
  }

  /** Called once, when `ms` have passed: what ends the sample now is the clock. */
  timeOut(): void {
    this.#timedOut = true;
  }

  /** Asks every tool for its reward and frees its state. Never throws: a tool that fails here counts as an error. */
  async endTools(): Promise<void> {
    const { errors, rewards, states } = await this.#states.end(this.input.limits.toolTimeoutMs);
    this.#counts.numToolErrors += errors;
    this.toolStates = states;
    for (const [name, reward] of Object.entries(rewards)) this.#addReward(name, reward);
  }

  trajectory(stopReason: StopReason): Trajectory {
    return {
      promptIds: this.#prompt,
      responseIds: Uint32Array.from(this.#ids),
      mask: Uint8Array.from(this.#mask),
      logProbs: Float32Array.from(this.#logProbs),
      logMass: Float32Array.from(this.#logMass),
      weightVersions: Uint32Array.from(this.#weightVersions),
      stopReason,
      ...this.#counts,
    };
  }

  /** Reports an event that started at `start` and ends now. */
  #note(kind: EventKind, start: number): void {
    this.#tell({ kind, start, end: performance.now() });
  }

  #tell(event: Omit<SampleEvent, 'turn'>): void {
    this.input.onEvent?.({ turn: this.#counts.numTurns, ...event });
  }

  #abortReason(): StopReason {
    return this.#timedOut ? 'timeout' : 'aborted';
  }

  /** The stop reason of the limit that `tokensLeft` ran into. */
  #outOf(): StopReason {
    const { limits } = this.input;
    return limits.maxResponseLength <= limits.contextLength - this.#prompt.length ? 'max_tokens' : 'context_overflow';
  }

  async #generate(budget: number, sampling: SamplingParams): Promise<Generation> {
    const { engine, requestId, key } = this.input;
    const contextIds = new Uint32Array(this.#prompt.length + this.#ids.length);
    contextIds.set(this.#prompt);
    contextIds.set(this.#ids, this.#prompt.length);
    const start = performance.now();
    const generation = await engine.generate({
      requestId,
      contextIds,
      promptLength: this.#prompt.length,
      key,
      sampling: {
        ...sampling,
        maxNewTokens: Math.min(sampling.maxNewTokens, budget),
        stopTokenIds: this.#stopTokenIds(sampling),
        ...this.#constraint(),
      },
      ...(this.input.onEvent && { timed: true }),
    });
    this.timing.generateMs += performance.now() - start;
    this.#note('generate', start);
    for (const { kind, start: from, end, gpuMs } of generation.spans ?? [])
      this.#tell({ kind, start: start + from, end: start + end, ...(gpuMs !== undefined && { gpuMs }) });
    this.#append(generation.tokenIds, generation);
    this.#counts.numTurns++;
    this.#open = generation.stopReason === 'stop_string' || generation.stopReason === 'length';
    this.#endToken = generation.stopReason === 'stop' ? generation.tokenIds.at(-1) : undefined;
    const content = this.#textOf(this.#withoutEnd(generation), sampling);
    this.messages.push({ role: 'assistant', content });
    return generation;
  }

  /** The control token after a turn's calls, where the format has one and there are tools to call. */
  get #stopToken(): string | undefined {
    const { tools, toolParser = parseHermes } = this.input;
    return tools.length > 0 ? toolParser.stopToken : undefined;
  }

  #stopTokenIds({ stopTokenIds }: SamplingParams): number[] {
    const id = this.#stopToken === undefined ? undefined : this.input.tokenizer.idOf(this.#stopToken);
    return id === undefined || stopTokenIds.includes(id) ? stopTokenIds : [...stopTokenIds, id];
  }

  /** Without the token that ended the turn, whose name would else be in the text. */
  #withoutEnd(generation: Generation): Generation {
    const named = this.#stopToken !== undefined && this.#endToken !== undefined;
    return named ? { ...generation, tokenIds: generation.tokenIds.subarray(0, -1) } : generation;
  }

  /** The calls that outputs answer, for templates that render them by it. */
  #called(calls: ToolCall[]): CalledTurn | undefined {
    const stopToken = this.#stopToken;
    if (stopToken === undefined) return undefined;
    const before = this.#counts.numToolCalls - calls.length;
    const named = calls.map(({ name = 'unknown', id }, i) => ({ name, id: id ?? `functions.${name}:${before + i}` }));
    return { calls: named, stopToken, ...(this.#endToken !== undefined && { end: this.#endToken }) };
  }

  #constraint(): Pick<SamplingParams, 'toolCalls' | 'toolCallFormat'> {
    const { tools, constrainToolCalls, toolParser = parseHermes } = this.input;
    if (!constrainToolCalls || tools.length === 0) return {};
    const toolCalls = tools.map(({ name, parameters }) => ({ name, parameters }));
    return { toolCalls, toolCallFormat: callFormatOf(toolParser) };
  }

  #textOf({ tokenIds, stopString }: Generation, sampling: SamplingParams): string {
    const { tokenizer } = this.input;
    const skipSpecialTokens = this.#stopToken === undefined;
    const decode = (ids: Uint32Array) => tokenizer.decode(ids, { skipSpecialTokens });
    const text = decode(tokenIds);
    if (stopString === undefined) return text;
    return cutAtStop(text, decode(tokenIds.subarray(0, -1)), stopString, sampling.includeStopStrInOutput ?? false);
  }

  #parse(content: string): ToolCall[] {
    const { tools, toolParser = parseHermes } = this.input;
    if (tools.length === 0) return [];
    const start = performance.now();
    const calls = toolParser(content, tools);
    this.#note('parse', start);
    return calls;
  }

  async #runTools(calls: ToolCall[]): Promise<ToolResult[]> {
    const { tools, limits } = this.input;
    const start = performance.now();
    const host = {
      context: this.#states.context,
      limits,
      signal: this.#signal,
      stateOf: (tool: Tool) => this.#states.of(tool),
    };
    const results = await Promise.all(
      calls.map(async (call) => {
        const called = performance.now();
        const result = await runTool(call, tools, host);
        if (call.error === undefined && result.reward !== undefined) this.#addReward(call.name, result.reward);
        this.#note('tool', called);
        return result;
      }),
    );
    this.timing.toolsMs += performance.now() - start;
    this.#counts.numToolCalls += calls.length;
    this.#counts.numToolErrors += results.filter(({ failed }) => failed).length;
    return results;
  }

  #addReward(name: string, reward: number): void {
    this.toolRewards[name] = (this.toolRewards[name] ?? 0) + reward;
  }

  /** The first failure that the limits say to stop at. */
  #fatal(results: ToolResult[]): StopReason | undefined {
    const { onParseError, onToolFailure } = this.input.limits;
    const stops = (failure: CallFailure) => (failure === 'parse_error' ? onParseError : onToolFailure) === 'stop';
    return results.find(({ failure }) => failure !== undefined && stops(failure))?.failure;
  }

  #extend(messages: Message[], called?: CalledTurn): StopReason | undefined {
    const { tokenizer } = this.input;
    const rest = tokenizer.encodeContinuation(messages, called);
    // The template goes on after an end token. One that the model did not draw stays out of the loss, as all of this.
    const continuation = this.#open && !called ? Uint32Array.of(tokenizer.eosTokenIds[0], ...rest) : rest;
    // As verl: output that leaves no room for an answer is not appended.
    if (continuation.length >= this.tokensLeft) return this.#outOf();
    this.#append(continuation);
    return undefined;
  }

  /** Sampled tokens carry their log-probs; without `generation` the tokens are a tool's and stay out of the loss. */
  #append(ids: Uint32Array, generation?: Generation): void {
    ids.forEach((id, i) => {
      this.#ids.push(id);
      this.#mask.push(generation ? 1 : 0);
      this.#logProbs.push(generation?.logProbs[i] ?? 0);
      this.#logMass.push(generation?.logMass?.[i] ?? 0);
      this.#weightVersions.push(generation?.weightVersions?.[i] ?? 0);
    });
  }
}

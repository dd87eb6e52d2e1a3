/**
 * One sample in flight: its tokens, its messages, and the three operations of an agent loop (generate, call tools, add a message). Limits,
 * masks, log-probs and stop reasons are handled here, so that custom loops stay short.
 */

import type { CalledTurn } from '../../model/tokenizer/chat.ts';
import { InputError, isA, shownValue, UserCodeError } from '../../errors.ts';
import { withObservation } from '../../tasks/environments/environment.ts';
import { isMessage } from '../../tasks/problem.ts';
import type { Message } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { promptOf } from './prompt.ts';
import { fatalFailure, runTool, type ToolResult } from '../tools/run.ts';
import type { EventKind, SampleEvent, Span } from './events.ts';
import { type TurnSampling, turnSampling } from './turnSampling.ts';
import { calledTurn, checkGeneration, turnText } from './turnText.ts';
import { concatTokens, TokenLog, TURN_FIELDS } from '../tokenLog.ts';
import type { AgentLoopInput, Turn } from './types.ts';
import { callConstraint, parsedBy, parseHermes, type ToolCall } from '../tools/parser.ts';
import { Episode } from '../tools/episode.ts';
import { type StateOwner, ToolStates } from '../tools/states.ts';
import type { GenerateRequest, Generation, SamplingParams, StopReason, Trajectory } from '../types.ts';

/** True for a turn that was aborted before its first token. It does not count as a turn, and adds no message. */
const isUnstarted = ({ stopReason, tokenIds }: Generation): boolean =>
  stopReason === 'aborted' && tokenIds.length === 0;

/** A sample in flight, as an agent loop sees and controls it. */
export class AgentSample {
  /** Problem, tools and limits of the sample. */
  readonly input: AgentLoopInput;
  /** Messages after the prompt. */
  readonly messages: Message[] = [];
  /** Sum of the rewards that each tool returned, by tool name. */
  readonly toolRewards: Record<string, number> = {};
  /** Sum of the rewards of tools and of environment steps, by assistant turn. A turn is one run of 1s in the mask. */
  readonly turnRewards: number[] = [];
  /** Observation that the environment's `reset` returned. It is at the end of the prompt. */
  observation = '';
  /** Milliseconds of generation so far, and the spans in which tools or the environment ran. */
  readonly timing: { generateMs: number; tools: Span[] } = { generateMs: 0, tools: [] };
  /** Value that the agent loop sets for the reward function. */
  state: unknown = undefined;
  /** States of stateful tools, by tool; set when the sample ends. */
  toolStates: Record<string, unknown> = {};
  /** Answer of the engine that the sample waits for; undefined if it waits for none. */
  generating: Promise<Generation> | undefined;
  #prompt: Uint32Array;
  readonly #tokens = new TokenLog();
  readonly #signal: AbortSignal;
  readonly #states: ToolStates;
  readonly #episode: Episode | undefined;
  /** True if the last turn ended without an end token. The token must then be added before the next message. */
  #open = false;
  /** The last turn, if `generate` can continue it. */
  #unfinished: Generation | undefined;
  /** Token with which the last turn ended: a stop token or an end token. */
  #endToken: number | undefined;
  #timedOut = false;
  #counts = { numTurns: 0, numToolCalls: 0, numToolErrors: 0, numToolOutputs: 0, numTruncatedOutputs: 0 };

  /** Error of the engine, or the error of a tool with an invalid output. It is rethrown after the loop, even if the loop has caught it. */
  failure: { error: unknown } | undefined;

  /** Creates a sample, which ends when `signal` aborts. Throws InputError if the prompt is longer than the limits. */
  constructor(input: AgentLoopInput, signal: AbortSignal) {
    this.input = input;
    this.#signal = signal;
    this.#prompt = promptOf(input);
    this.#states = new ToolStates({ sampleId: input.requestId, problem: input.problem });
    this.#episode = input.environment && new Episode(input.environment);
    if (input.record) input.record.states = this.#states;
  }

  /**
   * Restores the states of a checkpoint and starts the environment. Throws InputError if a state cannot be restored, or
   * if the prompt is too long with the observation. Throws UserCodeError if `reset` fails.
   */
  async start(): Promise<void> {
    const { record, tools, limits } = this.input;
    const episode = this.#episode;
    if (record)
      await this.#states.restore(episode ? [...tools, episode] : tools, record.savedStates, limits.toolTimeoutMs);
    if (episode && !this.#signal.aborted) await this.#reset(episode);
  }

  /**
   * The first observation is recorded like a tool output, so that a resumed sample has the same prompt. A restored
   * state is not created again.
   */
  async #reset(episode: Episode): Promise<void> {
    const { record, limits, problem } = this.input;
    const start = performance.now();
    const reset = async (): Promise<ToolResult[]> => [
      { ...(await episode.start(this.#states, limits, this.#signal)), failed: false },
    ];
    const call = { name: episode.name, args: { reset: problem.id } };
    try {
      const results = record ? await record.callTools([call], reset, reset) : await reset();
      const [{ text }] = results;
      this.observation = text;
      if (text !== '') this.#count(results);
      const messages = withObservation(problem.messages, text);
      this.#prompt = promptOf({ ...this.input, problem: { ...problem, messages } });
    } catch (error) {
      if (!this.#signal.aborted) throw error;
    } finally {
      this.timing.tools.push([start, performance.now()]);
      this.#note('tool', start);
    }
  }

  /**
   * Generates the model's next turn. `turn` changes sampling settings for this turn alone. If the result has `stop`, the loop must end the
   * sample. If the turn ended at its `maxNewTokens` or at a stop string, and the loop calls `generate` again without adding a message, the
   * same turn continues, and the result is the whole turn. Throws InputError for a setting that a turn must not change; see TurnSampling.
   */
  async generate(turn: TurnSampling = {}): Promise<Turn> {
    const sampling = turnSampling(this.input.sampling, turn, this.input.tokenizer.vocabSize);
    if (this.#signal.aborted) return { content: '', finishReason: 'stop', calls: [], stop: this.endReason };
    const budget = this.tokensLeft;
    const before = this.#unfinished?.tokenIds.length ?? 0;
    if (before > 0 && budget <= 0) return { ...this.#lastTurn, finishReason: 'length', calls: [], stop: this.#outOf() };
    const generation = await this.#generate(budget, sampling);
    const { stopReason } = generation;
    const added = generation.tokenIds.length - before;
    if (isUnstarted(generation)) return { content: '', finishReason: 'stop', calls: [], stop: this.endReason };
    const { content } = this.#lastTurn;
    const cut = stopReason === 'length';
    const ended = { content, finishReason: cut ? ('length' as const) : ('stop' as const), calls: [] };
    if (stopReason === 'aborted') return { ...ended, stop: this.endReason };
    if (!cut) return { ...ended, calls: this.#parse(this.#textOf(generation, sampling)) };
    if (added === turn.maxNewTokens && added < budget) return ended;
    return { ...ended, stop: added < budget ? 'max_tokens' : this.#outOf() };
  }

  /**
   * Runs all calls of a turn concurrently and appends their outputs, in the order of the calls. Returns a stop reason
   * if the sample must end.
   */
  async callTools(calls: ToolCall[]): Promise<StopReason | undefined> {
    // If the sample has an environment, its last turn is run too: the environment must receive it, although the model does not read the
    // result.
    if (!this.#episode && this.#isLastTurn) return 'max_turns';
    if (this.#counts.numToolCalls + calls.length > this.input.limits.maxToolCalls) return 'max_tool_calls';
    this.#counts.numToolCalls += calls.length;
    return this.#answer('tool', await this.#runTools(calls, this.input.tools), this.#called(calls));
  }

  /** True if the environment replies to turns without a tool call. */
  get canStep(): boolean {
    return this.#episode?.stepTool !== undefined;
  }

  /**
   * Passes a turn without a tool call to the environment and appends the reply. Returns a stop reason if the sample must end. Throws
   * InputError if the environment has no `step`.
   */
  async step(text: string): Promise<StopReason | undefined> {
    const tool = this.#episode?.stepTool;
    if (!tool) throw new InputError(`Problem "${this.input.problem.id}" has no environment with a step.`);
    return this.#answer('user', await this.#runTools([{ name: tool.name, args: { text } }], [tool]));
  }

  #answer(role: Message['role'], results: ToolResult[], called?: CalledTurn): StopReason | undefined {
    const outputs = results.map(({ text }): Message => ({ role, content: text }));
    this.#add(...outputs);
    if (this.#signal.aborted) return this.endReason;
    const done = results.some((result) => result.done) ? 'done' : undefined;
    const last = this.#isLastTurn ? 'max_turns' : undefined;
    return fatalFailure(results, this.input.limits) ?? done ?? last ?? this.#extend(outputs, called);
  }

  get #isLastTurn(): boolean {
    return this.#counts.numTurns >= this.input.limits.maxAssistantTurns;
  }

  /** Appends messages that the model did not write, before its next turn. Returns a stop reason if the messages do not fit. */
  say(...messages: Message[]): StopReason | undefined {
    const wrong = messages.findIndex((message) => !isMessage(message));
    if (wrong >= 0) throw new TypeError(`say() was given ${shownValue(messages[wrong])}, not { role, content }`);
    this.#add(...messages);
    return this.#extend(messages);
  }

  #add(...messages: Message[]): void {
    this.#unfinished = undefined;
    this.messages.push(...messages);
    for (const message of messages) this.input.onMessage?.(message);
  }

  /** Replaces the last message, a turn that was continued. `onMessage` receives what was added. */
  #replaceLast(message: Message): void {
    const { content: before } = this.messages.pop()!;
    this.messages.push(message);
    const { content } = message;
    this.input.onMessage?.({
      ...message,
      content: content.startsWith(before) ? content.slice(before.length) : content,
    });
  }

  get #lastTurn(): Pick<Message, 'content'> {
    const { content } = this.messages[this.messages.length - 1];
    return { content };
  }

  /** Number of turns of the model so far. */
  get numTurns(): number {
    return this.#counts.numTurns;
  }

  /** Number of tokens that can still be added to the sample. */
  get tokensLeft(): number {
    const { limits } = this.input;
    return Math.min(limits.maxResponseLength, limits.contextLength - this.#prompt.length) - this.#tokens.length;
  }

  /** Ends the sample with a timeout. Called once, when its time limit has passed. */
  timeOut(): void {
    this.#timedOut = true;
  }

  /**
   * Requests every tool's reward and frees its state. Never throws: a failing tool counts as an error. Returns a fault
   * if a tool's reward is not a number.
   */
  async endTools(): Promise<UserCodeError | undefined> {
    const { record, limits } = this.input;
    record?.loopEnded();
    let wrong: UserCodeError | undefined;
    const end = async () => {
      const { states, fault, ...ended } = await this.#states.end(limits.toolTimeoutMs);
      this.toolStates = states;
      wrong = fault;
      return ended;
    };
    const { errors, rewards } = record ? await record.endTools(end) : await end();
    this.#counts.numToolErrors += errors;
    for (const [name, reward] of Object.entries(rewards)) this.#addReward(name, reward);
    return wrong;
  }

  /** Returns the sample's tokens for training, with its stop reason. */
  trajectory(stopReason: StopReason): Trajectory {
    return {
      promptIds: this.#prompt,
      ...this.#tokens.slice(),
      stopReason,
      ...this.#counts,
    };
  }

  #note(kind: EventKind, start: number): void {
    this.#tell({ kind, start, end: performance.now() });
  }

  #tell(event: Omit<SampleEvent, 'turn'>): void {
    this.input.onEvent?.({ turn: this.#counts.numTurns, ...event });
  }

  /** Stop reason of a sample that was ended by its time limit or by an abort. */
  get endReason(): StopReason {
    return this.#timedOut ? 'timeout' : 'aborted';
  }

  /** Stop reason of a sample in which no more tokens fit, depending on which limit it has reached. */
  #outOf(): StopReason {
    const { maxResponseLength, contextLength } = this.input.limits;
    return maxResponseLength <= contextLength - this.#prompt.length ? 'max_tokens' : 'context_overflow';
  }

  async #generate(budget: number, sampling: SamplingParams): Promise<Generation> {
    const { requestId, key, constrainToolCalls, toolParser = parseHermes, onTokens } = this.input;
    const tools = this.#callable;
    const continued = this.#unfinished;
    const numTurns = continued ? this.numTurns - 1 : this.numTurns;
    const before = continued?.tokenIds.length ?? 0;
    const start = performance.now();
    const { length, drawnLength } = this.#tokens;
    const request: GenerateRequest = {
      requestId,
      contextIds: this.#tokens.contextAfter(this.#prompt).subarray(0, this.#prompt.length + length - before),
      promptLength: this.#prompt.length,
      key,
      ...(continued && { drawn: concatTokens([continued], TURN_FIELDS) }),
      sampling: {
        ...sampling,
        maxNewTokens: before + Math.min(sampling.maxNewTokens, budget),
        stopTokenIds: this.#stopTokenIds(sampling),
        ...(constrainToolCalls && tools.length > 0 && callConstraint(tools, toolParser)),
      },
      ...(this.input.onEvent && { timed: true }),
      ...(onTokens && { onTokens: (ids) => onTokens(ids, numTurns) }),
    };
    this.generating = this.#ask(request);
    const generation = await this.generating.finally(() => (this.generating = undefined));
    this.timing.generateMs += performance.now() - start;
    this.#note('generate', start);
    for (const { kind, start: from, end, gpuMs } of generation.spans ?? [])
      this.#tell({ kind, start: start + from, end: start + end, ...(gpuMs !== undefined && { gpuMs }) });
    if (isUnstarted(generation)) return generation;
    if (generation.tokenIds.length > 0 && (length === 0 || drawnLength < length)) this.turnRewards.push(0);
    if (continued) this.#tokens.cutTo(length - before);
    else this.#counts.numTurns++;
    this.#tokens.draw(generation);
    this.#open = generation.stopReason === 'stop_string' || generation.stopReason === 'length';
    this.#endToken = generation.stopReason === 'stop' ? generation.tokenIds.at(-1) : undefined;
    const message: Message = { role: 'assistant', content: this.#textOf(this.#withoutEnd(generation), sampling) };
    if (continued) this.#replaceLast(message);
    else this.#add(message);
    this.#unfinished = this.#open ? generation : undefined;
    return generation;
  }

  async #ask(request: GenerateRequest): Promise<Generation> {
    try {
      const { engine, record } = this.input;
      const generation = await (record ? record.generate(request, engine) : engine.generate(request));
      checkGeneration(generation);
      return generation;
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }

  /** Tools that the sample can call: none if `limits` allow no call, so that a call is plain text. */
  get #callable(): AgentLoopInput['tools'] {
    const { tools, limits } = this.input;
    return limits.maxToolCalls === 0 ? [] : tools;
  }

  /** Control token that the model writes after a turn's calls, if the call format has one and the sample can call tools. */
  get #stopToken(): string | undefined {
    const { toolParser = parseHermes } = this.input;
    return this.#callable.length > 0 ? toolParser.stopToken : undefined;
  }

  #stopTokenIds({ stopTokenIds }: SamplingParams): number[] {
    const id = this.#stopToken === undefined ? undefined : this.input.tokenizer.idOf(this.#stopToken);
    return id === undefined || stopTokenIds.includes(id) ? stopTokenIds : [...stopTokenIds, id];
  }

  /**
   * For call formats whose texts contain the names of control tokens, returns the turn without the token that ended it, whose name would
   * otherwise be in the text. For all other formats, returns the turn unchanged.
   */
  #withoutEnd(generation: Generation): Generation {
    const named = this.#stopToken !== undefined && this.#endToken !== undefined;
    return named ? { ...generation, tokenIds: generation.tokenIds.subarray(0, -1) } : generation;
  }

  /** Returns the calls of a turn for chat templates that need them to render the outputs. Undefined for other call formats. */
  #called(calls: ToolCall[]): CalledTurn | undefined {
    const stopToken = this.#stopToken;
    if (stopToken === undefined) return undefined;
    const before = this.#counts.numToolCalls - calls.length;
    return calledTurn(calls, { stopToken, endToken: this.#endToken, before });
  }

  #textOf(generation: Generation, { includeStopStrInOutput: includeStop }: SamplingParams): string {
    return turnText(this.input.tokenizer, generation, { named: this.#stopToken !== undefined, includeStop });
  }

  #parse(content: string): ToolCall[] {
    const { toolParser = parseHermes } = this.input;
    const tools = this.#callable;
    if (tools.length === 0) return [];
    const start = performance.now();
    const calls = parsedBy(toolParser, content, tools);
    this.#note('parse', start);
    return calls;
  }

  async #runTools(calls: ToolCall[], tools: readonly Tool[]): Promise<ToolResult[]> {
    const { limits, record } = this.input;
    const start = performance.now();
    const host = {
      context: this.#states.context,
      limits,
      signal: this.#signal,
      stateOf: (tool: Tool) => {
        const owner = this.#ownerOf(tool);
        return owner && this.#states.of(owner);
      },
    };
    const runAll = (some: ToolCall[]) =>
      Promise.all(
        some.map(async (call) => {
          const called = performance.now();
          try {
            return await runTool(call, tools, host);
          } catch (error) {
            if (isA(error, UserCodeError)) this.failure = { error };
            throw error;
          } finally {
            this.#note('tool', called);
          }
        }),
      );
    const isUnsaved = (tool: Tool) => this.#states.isUnsaved(this.#ownerOf(tool) ?? tool);
    const unsaved = () => calls.filter(({ name }) => tools.some((t) => t.name === name && isUnsaved(t)));
    const results = record
      ? await record.callTools(
          calls,
          () => runAll(calls),
          () => runAll(unsaved()),
        )
      : await runAll(calls);
    calls.forEach(({ error, name }, i) => {
      const { reward } = results[i];
      if (error !== undefined || reward === undefined) return;
      this.#addReward(name, reward);
      if (this.turnRewards.length > 0) this.turnRewards[this.turnRewards.length - 1] += reward;
    });
    this.timing.tools.push([start, performance.now()]);
    this.#count(results);
    return results;
  }

  #count(results: readonly ToolResult[]): void {
    this.#counts.numToolOutputs += results.length;
    this.#counts.numTruncatedOutputs += results.filter(({ truncated }) => truncated).length;
    this.#counts.numToolErrors += results.filter(({ failed }) => failed).length;
  }

  #ownerOf(tool: Tool): StateOwner | undefined {
    return this.#episode?.owns(tool) ? this.#episode : tool.create && tool;
  }

  #addReward(name: string, reward: number): void {
    this.toolRewards[name] = (this.toolRewards[name] ?? 0) + reward;
  }

  #extend(messages: Message[], called?: CalledTurn): StopReason | undefined {
    const { tokenizer } = this.input;
    const rest = tokenizer.encodeContinuation(messages, called);
    // The chat template continues after an end token. If the model has not sampled one, it is added here with mask 0, like all of this
    // text.
    const continuation = this.#open && !called ? Uint32Array.of(tokenizer.eosTokenIds[0], ...rest) : rest;
    // An output that leaves no space for an answer of the model is not appended, as in verl.
    if (continuation.length >= this.tokensLeft) return this.#outOf();
    this.#tokens.push({ responseIds: continuation });
    return undefined;
  }
}

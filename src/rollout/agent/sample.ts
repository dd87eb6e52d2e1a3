/**
 * One sample in flight: its tokens, its messages, and the three things an agent loop does with it (generate, call tools,
 * say something). Limits, masks, log-probs and stop reasons are kept here, so that a loop of the user's own is short.
 */

import type { CalledTurn } from '../../model/tokenizer/chat.ts';
import { InputError, isA, shownValue, UserCodeError } from '../../errors.ts';
import { withObservation } from '../../tasks/environments/environment.ts';
import { isMessage } from '../../tasks/problem.ts';
import type { Message } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { promptOf } from './prompt.ts';
import { fatalFailure, runTool, type ToolResult } from '../tools/run.ts';
import type { EventKind, SampleEvent } from './events.ts';
import { type TurnSampling, turnSampling } from './turnSampling.ts';
import { calledTurn, checkGeneration, turnText } from './turnText.ts';
import { TokenLog } from '../tokenLog.ts';
import type { AgentLoopInput, Turn } from './types.ts';
import { callConstraint, parsedBy, parseHermes, type ToolCall } from '../tools/parser.ts';
import { Episode } from '../tools/episode.ts';
import { type StateOwner, ToolStates } from '../tools/states.ts';
import type { GenerateRequest, Generation, SamplingParams, StopReason, Trajectory } from '../types.ts';

/** A sample in flight, as an agent loop sees it. */
export class AgentSample {
  /** The problem, the tools and the limits of the sample. */
  readonly input: AgentLoopInput;
  /** After the prompt. */
  readonly messages: Message[] = [];
  /** Sum of what tools gave beside their texts, by tool. */
  readonly toolRewards: Record<string, number> = {};
  /** The same by assistant turn, steps of the environment included: a number for each run of 1s in the mask. */
  readonly turnRewards: number[] = [];
  /** What the environment's reset said, at the end of the prompt. */
  observation = '';
  /** Milliseconds so far. */
  readonly timing = { generateMs: 0, toolsMs: 0 };
  /** The loop's own, for the reward function. */
  state: unknown = undefined;
  /** States of the tools that have one, by tool; filled when the sample ends. */
  toolStates: Record<string, unknown> = {};
  /** What the engine has not answered yet. */
  generating: Promise<Generation> | undefined;
  #prompt: Uint32Array;
  readonly #tokens = new TokenLog();
  readonly #signal: AbortSignal;
  readonly #states: ToolStates;
  readonly #episode: Episode | undefined;
  /** The last turn ended without an end token, which is still to be written. */
  #open = false;
  /** The token that the last turn ended with, a stop token or an end token. */
  #endToken: number | undefined;
  #timedOut = false;
  #counts = { numTurns: 0, numToolCalls: 0, numToolErrors: 0 };

  /** What the engine threw, or a tool's wrong output: a loop that caught it has not undone it. */
  failure: { error: unknown } | undefined;

  /** Aborting `signal` ends the sample. Throws InputError on a prompt longer than the limits. */
  constructor(input: AgentLoopInput, signal: AbortSignal) {
    this.input = input;
    this.#signal = signal;
    this.#prompt = promptOf(input);
    this.#states = new ToolStates({ sampleId: input.requestId, problem: input.problem });
    this.#episode = input.environment && new Episode(input.environment);
    if (input.record) input.record.states = this.#states;
  }

  /**
   * Resumes the states of a checkpoint, and starts the environment. Throws InputError if a state cannot be restored
   * or the prompt is too long with the observation, UserCodeError where `reset` fails.
   */
  async start(): Promise<void> {
    const { record, tools, limits } = this.input;
    const episode = this.#episode;
    if (record)
      await this.#states.restore(episode ? [...tools, episode] : tools, record.savedStates, limits.toolTimeoutMs);
    if (episode && !this.#signal.aborted) await this.#reset(episode);
  }

  /**
   * The first observation goes where a checkpoint keeps outputs of tools: a resumed sample has the same prompt. A state
   * that was restored is not made again.
   */
  async #reset(episode: Episode): Promise<void> {
    const { record, limits, problem } = this.input;
    const start = performance.now();
    const reset = async (): Promise<ToolResult[]> => [
      { text: await episode.start(this.#states, limits, this.#signal), failed: false },
    ];
    const call = { name: episode.name, args: { reset: problem.id } };
    try {
      const [{ text }] = record ? await record.callTools([call], reset, reset) : await reset();
      this.observation = text;
      const messages = withObservation(problem.messages, text);
      this.#prompt = promptOf({ ...this.input, problem: { ...problem, messages } });
    } catch (error) {
      if (!this.#signal.aborted) throw error;
    } finally {
      this.timing.toolsMs += performance.now() - start;
      this.#note('tool', start);
    }
  }

  /**
   * The model's next turn, with what `turn` asks of the sampler for it alone. A loop must end the sample when `stop` is
   * set. Called again with nothing said in between, it continues with the same turn. Throws InputError for a setting that a
   * turn may not have; see TurnSampling.
   */
  async generate(turn: TurnSampling = {}): Promise<Turn> {
    const sampling = turnSampling(this.input.sampling, turn);
    if (this.#signal.aborted) return { content: '', finishReason: 'stop', calls: [], stop: this.endReason };
    const budget = this.tokensLeft;
    const generation = await this.#generate(budget, sampling);
    const { stopReason, tokenIds } = generation;
    const { content } = this.messages[this.messages.length - 1];
    const cut = stopReason === 'length';
    const ended = { content, finishReason: cut ? ('length' as const) : ('stop' as const), calls: [] };
    if (stopReason === 'aborted') return { ...ended, stop: this.endReason };
    if (!cut) return { ...ended, calls: this.#parse(this.#textOf(generation, sampling)) };
    if (tokenIds.length === turn.maxNewTokens && tokenIds.length < budget) return ended;
    return { ...ended, stop: tokenIds.length < budget ? 'max_tokens' : this.#outOf() };
  }

  /** Runs all calls of a turn at once and says their outputs, in the order of the calls. A value ends the sample. */
  async callTools(calls: ToolCall[]): Promise<StopReason | undefined> {
    // What the last turn does to an environment counts, though the model does not read the answer.
    if (!this.#episode && this.#isLastTurn) return 'max_turns';
    if (this.#counts.numToolCalls + calls.length > this.input.limits.maxToolCalls) return 'max_tool_calls';
    this.#counts.numToolCalls += calls.length;
    return this.#answer('tool', await this.#runTools(calls, this.input.tools), this.#called(calls));
  }

  /** True if the environment answers turns without a call. */
  get canStep(): boolean {
    return this.#episode?.stepTool !== undefined;
  }

  /**
   * Hands a turn without a call to the environment and says what it answers. A value ends the sample. Throws InputError for a
   * sample whose environment has no `step`.
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

  /** Puts a message that the model did not write before its next turn. A value: there is no room, end the sample. */
  say(...messages: Message[]): StopReason | undefined {
    const wrong = messages.findIndex((message) => !isMessage(message));
    if (wrong >= 0) throw new TypeError(`say() was given ${shownValue(messages[wrong])}, not { role, content }`);
    this.#add(...messages);
    return this.#extend(messages);
  }

  #add(...messages: Message[]): void {
    this.messages.push(...messages);
    for (const message of messages) this.input.onMessage?.(message);
  }

  /** Turns that the model has had. */
  get numTurns(): number {
    return this.#counts.numTurns;
  }

  /** Tokens the sample may still gain. */
  get tokensLeft(): number {
    const { limits } = this.input;
    return Math.min(limits.maxResponseLength, limits.contextLength - this.#prompt.length) - this.#tokens.length;
  }

  /** Called once, when `ms` have passed: what ends the sample now is the clock. */
  timeOut(): void {
    this.#timedOut = true;
  }

  /**
   * Asks every tool for its reward and frees its state. Never throws: a tool that fails here counts as an error. Returns the
   * fault of a tool whose reward is not a number.
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

  /** Its tokens as they are trained on, with the reason why it ended. */
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

  /** The stop reason of a sample that was ended from outside. */
  get endReason(): StopReason {
    return this.#timedOut ? 'timeout' : 'aborted';
  }

  /** The stop reason of the limit that `tokensLeft` ran into. */
  #outOf(): StopReason {
    const { maxResponseLength, contextLength } = this.input.limits;
    return maxResponseLength <= contextLength - this.#prompt.length ? 'max_tokens' : 'context_overflow';
  }

  async #generate(budget: number, sampling: SamplingParams): Promise<Generation> {
    const { requestId, key, tools, constrainToolCalls, toolParser = parseHermes, onTokens } = this.input;
    const { numTurns } = this;
    const start = performance.now();
    const request: GenerateRequest = {
      requestId,
      contextIds: this.#tokens.contextAfter(this.#prompt),
      promptLength: this.#prompt.length,
      key,
      sampling: {
        ...sampling,
        maxNewTokens: Math.min(sampling.maxNewTokens, budget),
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
    const { length, drawnLength } = this.#tokens;
    if (generation.tokenIds.length > 0 && (length === 0 || drawnLength < length)) this.turnRewards.push(0);
    this.#tokens.draw(generation);
    this.#counts.numTurns++;
    this.#open = generation.stopReason === 'stop_string' || generation.stopReason === 'length';
    this.#endToken = generation.stopReason === 'stop' ? generation.tokenIds.at(-1) : undefined;
    const content = this.#textOf(this.#withoutEnd(generation), sampling);
    this.#add({ role: 'assistant', content });
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
    return calledTurn(calls, { stopToken, endToken: this.#endToken, before });
  }

  #textOf(generation: Generation, { includeStopStrInOutput: includeStop }: SamplingParams): string {
    return turnText(this.input.tokenizer, generation, { named: this.#stopToken !== undefined, includeStop });
  }

  #parse(content: string): ToolCall[] {
    const { tools, toolParser = parseHermes } = this.input;
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
    this.timing.toolsMs += performance.now() - start;
    this.#counts.numToolErrors += results.filter(({ failed }) => failed).length;
    return results;
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
    // The template continues after an end token. One that the model did not draw stays out of the loss, as all of this.
    const continuation = this.#open && !called ? Uint32Array.of(tokenizer.eosTokenIds[0], ...rest) : rest;
    // Like verl: output that leaves no room for an answer is not appended.
    if (continuation.length >= this.tokensLeft) return this.#outOf();
    this.#tokens.push({ responseIds: continuation });
    return undefined;
  }
}

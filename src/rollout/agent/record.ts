/**
 * Records what a sample has received (its turns and tool outputs) for a checkpoint. A resumed run starts the agent loop again. Until the
 * loop has caught up, the record answers its requests instead of the engine and the tools. The turn that was in flight then continues after
 * its last token. If the loop requests something else, because its code or the config has changed or because it depends on the time, the
 * rest of the record is dropped, and the loop continues without it.
 */

import { hash } from '../../tasks/random.ts';
import type { Reward } from '../../tasks/task.ts';
import type { ToolCall } from '../tools/parser.ts';
import type { ToolResult } from '../tools/run.ts';
import type { ToolStates } from '../tools/states.ts';
import type { DrawnSoFar, GenerateRequest, Generation, TurnEngine } from '../types.ts';
import { nextTask } from './yield.ts';
import { startTimer } from '../../tasks/timer.ts';

/** One answer that the loop received: a turn, or the outputs of a turn's calls. `asked` = hash of the loop's request. */
export type Received = { asked: number } & ({ generation: Generation } | { results: ToolResult[] });

/** Rewards of a sample's tools at its end, and the number of tools that failed then. */
export interface ToolsEnd {
  rewards: Record<string, number>;
  errors: number;
}

/** A sample in flight, as stored in a checkpoint. */
export interface SavedSample {
  received: Received[];
  /** Turn that the engine was generating, with the tokens sampled so far. */
  turn?: { asked: number; drawn: DrawnSoFar };
  /** States of tools that have a `save`, by tool name. */
  toolStates?: Record<string, unknown>;
  /** Rewards of a finished sample. On resume, neither its tools nor its reward function are called again. */
  scored?: { tools: ToolsEnd; reward: Reward };
}

/** Records what one sample receives, and repeats it to a resumed loop. */
export class SampleRecord {
  /** States of the sample's tools. The sample sets this field. */
  states: ToolStates | undefined;
  readonly #received: Received[] = [];
  /** Recorded answers from before the checkpoint that the loop has not received again yet. */
  #replay: Received[];
  #turn: SavedSample['turn'];
  #scored: SavedSample['scored'];
  readonly #savedStates: Record<string, unknown>;
  readonly #line: StartLine | undefined;
  /** Hash of the request whose turn the engine is generating. */
  #asked: number | undefined;
  #requestId: string | undefined;
  #toolsEnd: ToolsEnd | undefined;
  /** Calls of tools and of the reward function that are in flight. */
  readonly #outside = new Set<Promise<unknown>>();

  /** @param line makes a resumed sample wait for the other resumed samples */
  constructor(saved?: SavedSample, line?: StartLine) {
    this.#replay = [...(saved?.received ?? [])];
    this.#turn = saved?.turn;
    this.#scored = saved?.scored;
    this.#savedStates = saved?.toolStates ?? {};
    this.#line = line;
    if (saved?.turn || saved?.scored) line?.join(this);
  }

  /** Reward of the sample, if the sample was scored before the checkpoint. */
  get reward(): Reward | undefined {
    return this.#scored?.reward;
  }

  /** Saved states of tools. */
  get savedStates(): Readonly<Record<string, unknown>> {
    return this.#scored ? {} : this.#savedStates;
  }

  async generate(request: GenerateRequest, engine: TurnEngine): Promise<Generation> {
    const { key, sampling, contextIds } = request;
    const asked = hash('turn', ...key, JSON.stringify(sampling), contextIds.join());
    const known = this.#next(asked);
    if (known && 'generation' in known) return known.generation;
    const drawn = await this.#rejoin(asked);
    this.#asked = asked;
    this.#requestId = request.requestId;
    try {
      const generation = await engine.generate(drawn ? { ...request, drawn } : request);
      this.#received.push({ asked, generation });
      return generation;
    } finally {
      this.#asked = undefined;
      this.#requestId = undefined;
    }
  }

  /**
   * Runs tool calls, or returns their recorded outputs.
   * @param rebuild repeats recorded calls of those tools whose states were not saved
   */
  async callTools(
    calls: readonly ToolCall[],
    run: () => Promise<ToolResult[]>,
    rebuild: () => Promise<unknown>,
  ): Promise<ToolResult[]> {
    const asked = hash('tools', JSON.stringify(calls));
    const known = this.#next(asked);
    if (known && 'results' in known) {
      if (!this.#scored) await rebuild();
      return known.results;
    }
    this.#dropRest();
    const results = await this.outside(run);
    this.#received.push({ asked, results });
    return results;
  }

  /** Called when the loop has ended. Drops the rest of the record. */
  loopEnded(): void {
    if (this.#replay.length > 0 || this.#turn) this.#dropRest();
  }

  async endTools(end: () => Promise<ToolsEnd>): Promise<ToolsEnd> {
    return (this.#toolsEnd = this.#scored?.tools ?? (await this.outside(end)));
  }

  scored(reward: Reward): void {
    if (this.#toolsEnd) this.#scored = { tools: this.#toolsEnd, reward };
    this.#line?.leave(this);
  }

  /** Runs work outside the engine that the sample waits for. The sample counts as busy meanwhile. */
  async outside<T>(work: () => Promise<T>): Promise<T> {
    const running = work();
    this.#outside.add(running);
    try {
      return await running;
    } finally {
      this.#outside.delete(running);
    }
  }

  /** Resolves when no tool call and no reward call of the sample is in flight. */
  async idle(): Promise<void> {
    while (this.#outside.size > 0) {
      await Promise.allSettled(this.#outside);
      await nextTask(); // the loop can start more work
    }
  }

  /** Id of the request whose turn the engine is generating. */
  get requestId(): string | undefined {
    return this.#requestId;
  }

  /** Returns the sample's record for a checkpoint. @param drawn tokens that the engine has sampled for the current turn */
  async save(drawn: DrawnSoFar | undefined): Promise<SavedSample> {
    const received = [...this.#received, ...this.#replay];
    if (this.#scored) return { received, scored: this.#scored };
    const turn = this.#asked !== undefined && drawn ? { asked: this.#asked, drawn } : this.#turn;
    // The state of a tool that is running can be incomplete, so no states are saved while a call is in flight.
    const isSame = () => this.#outside.size === 0 && this.#received.length + this.#replay.length === received.length;
    const toolStates = isSame() ? await this.states?.save() : undefined;
    const isKnown = toolStates && Object.keys(toolStates).length > 0 && isSame();
    return { received, ...(turn && { turn }), ...(isKnown && { toolStates }) };
  }

  #next(asked: number): Received | undefined {
    const next = this.#replay.shift();
    if (next?.asked === asked) {
      this.#received.push(next);
      return next;
    }
    if (next) this.#dropRest();
    return undefined;
  }

  /** Waits for the other resumed samples. Returns the tokens that the turn had before the checkpoint. */
  async #rejoin(asked: number): Promise<DrawnSoFar | undefined> {
    const turn = this.#turn;
    if (turn?.asked !== asked) {
      this.#dropRest();
      return undefined;
    }
    await this.#line?.reach(this);
    this.#turn = undefined;
    return turn.drawn;
  }

  #dropRest(): void {
    this.#replay = [];
    this.#turn = undefined;
    this.#scored = undefined;
    this.#line?.leave(this);
  }
}

/**
 * Makes resumed samples wait for each other. The engine then receives their turns in the order in which the samples joined, and only after
 * finished samples have run through their loops again.
 */
export class StartLine {
  /** Function that lets a waiting sample continue, by sample; undefined until the sample arrives. */
  readonly #samples = new Map<SampleRecord, (() => void) | undefined>();
  readonly #missing = new Set<SampleRecord>();
  readonly #opened: Promise<void>;
  #open = () => {};

  constructor() {
    this.#opened = new Promise((resolve) => (this.#open = resolve));
  }

  join(sample: SampleRecord): void {
    this.#samples.set(sample, undefined);
    this.#missing.add(sample);
  }

  /** Marks the sample as arrived. Resolves when every expected sample has arrived. */
  async reach(sample: SampleRecord): Promise<void> {
    const gone = new Promise<void>((resolve) => this.#samples.set(sample, resolve));
    this.leave(sample);
    await gone;
  }

  /** Removes a sample that will not arrive. */
  leave(sample: SampleRecord): void {
    this.#missing.delete(sample);
    this.#letGo();
  }

  /**
   * Resolves when all samples have arrived and continued, or after `ms` milliseconds. Samples that have not arrived by then do not wait for
   * the others.
   */
  async opened(ms: number): Promise<void> {
    const timer = startTimer(() => {
      this.#missing.clear();
      this.#letGo();
    }, ms);
    this.#letGo();
    await this.#opened;
    clearTimeout(timer);
  }

  #letGo(): void {
    if (this.#missing.size > 0) return;
    for (const go of this.#samples.values()) go?.();
    this.#open();
  }
}

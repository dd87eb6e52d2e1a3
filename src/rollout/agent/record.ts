/**
 * What a sample has received: its turns and the outputs of its tools. A checkpoint keeps it. A resumed run starts the
 * agent loop again and gives it these answers in place of the engine's and the tools', until it stands where it stood; the
 * turn in flight continues after its last token. A loop that then asks for something else (its code or the config has changed, or
 * it went by the clock) continues from there by itself, and what was recorded of the rest is dropped.
 */

import { hash } from '../../tasks/random.ts';
import type { Reward } from '../../tasks/task.ts';
import type { ToolCall } from '../tools/parser.ts';
import type { ToolResult } from '../tools/run.ts';
import type { ToolStates } from '../tools/states.ts';
import type { DrawnSoFar, GenerateRequest, Generation, TurnEngine } from '../types.ts';
import { nextTask } from './yield.ts';

/** A turn, or the outputs of its calls; `asked` = hash of what the loop had asked for. */
export type Received = { asked: number } & ({ generation: Generation } | { results: ToolResult[] });

/** What tools gave at the end of their sample, and how many of them failed there. */
export interface ToolsEnd {
  rewards: Record<string, number>;
  errors: number;
}

/** A sample in flight, as a checkpoint keeps it. */
export interface SavedSample {
  received: Received[];
  /** The current turn. */
  turn?: { asked: number; drawn: DrawnSoFar };
  /** By tool, of those that have `save`. */
  toolStates?: Record<string, unknown>;
  /** Result of an ended sample: neither its tools nor its reward function are called again. */
  scored?: { tools: ToolsEnd; reward: Reward };
}

export class SampleRecord {
  /** Set by the sample. */
  states: ToolStates | undefined;
  readonly #received: Received[] = [];
  /** What was received before the checkpoint and is still to be given again. */
  #replay: Received[];
  #turn: SavedSample['turn'];
  #scored: SavedSample['scored'];
  readonly #savedStates: Record<string, unknown>;
  readonly #line: StartLine | undefined;
  /** The turn that the engine has, by the hash of its request. */
  #asked: number | undefined;
  #requestId: string | undefined;
  #toolsEnd: ToolsEnd | undefined;
  /** Calls of tools and of the reward function in flight. */
  readonly #outside = new Set<Promise<unknown>>();

  /** @param line where a saved sample waits for the others */
  constructor(saved?: SavedSample, line?: StartLine) {
    this.#replay = [...(saved?.received ?? [])];
    this.#turn = saved?.turn;
    this.#scored = saved?.scored;
    this.#savedStates = saved?.toolStates ?? {};
    this.#line = line;
    if (saved?.turn || saved?.scored) line?.join(this);
  }

  /** The sample's reward, where it was scored before the checkpoint. */
  get reward(): Reward | undefined {
    return this.#scored?.reward;
  }

  /** States of tools to resume. */
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

  /** @param rebuild calls the tools again whose states were not saved */
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

  /** The loop is over: nothing that was recorded is asked for any more. */
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

  /** Runs what the sample waits for outside the engine. */
  async outside<T>(work: () => Promise<T>): Promise<T> {
    const running = work();
    this.#outside.add(running);
    try {
      return await running;
    } finally {
      this.#outside.delete(running);
    }
  }

  /** Resolves when the sample waits for nothing outside the engine. */
  async idle(): Promise<void> {
    while (this.#outside.size > 0) {
      await Promise.allSettled(this.#outside);
      await nextTask(); // the loop may ask for more
    }
  }

  /** Id of the turn that is on the engine. */
  get requestId(): string | undefined {
    return this.#requestId;
  }

  /** @param drawn what the engine has drawn of the current turn */
  async save(drawn: DrawnSoFar | undefined): Promise<SavedSample> {
    const received = [...this.#received, ...this.#replay];
    if (this.#scored) return { received, scored: this.#scored };
    const turn = this.#asked !== undefined && drawn ? { asked: this.#asked, drawn } : this.#turn;
    // A tool that is running may be in the middle of changing its state.
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

  /** Waits for the other resumed samples; returns what was drawn of the turn before the checkpoint. */
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
 * Where resumed samples wait for each other, so that the engine gets their turns in the order in which they joined, and
 * only when those that had ended have ended again.
 */
export class StartLine {
  /** With the function that lets it go, once it is here. */
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

  /** Marks the sample as arrived; resolves when every sample that is waited for has arrived. */
  async reach(sample: SampleRecord): Promise<void> {
    const gone = new Promise<void>((resolve) => this.#samples.set(sample, resolve));
    this.leave(sample);
    await gone;
  }

  /** The sample will not come. */
  leave(sample: SampleRecord): void {
    this.#missing.delete(sample);
    this.#letGo();
  }

  /** Resolves when all are here and have continued, or after `ms`: those that are not here then continue by themselves. */
  async opened(ms: number): Promise<void> {
    const timer = setTimeout(() => {
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

/**
 * A simulated device that decodes. All its sequences gain tokens at the same rate, which falls with the number of sequences (a fluid
 * model). Events are only the ends of turns, so the cost of the simulation does not depend on the number of tokens.
 */

import { type Clock, Signal } from './clock.ts';
import { Heap } from './heap.ts';
import type { DecodeCost, SampleWork } from './workload.ts';

interface Turn {
  tokens: number;
  /** Value of the device's `#tally` at which the turn ends; Infinity while the turn waits for a slot. */
  endsAt: number;
  ended: Signal;
}

/** A sample in flight. */
interface SampleState {
  /** Number of tokens in the sample's context at the end of its last turn. */
  tokens: number;
  /** The turn that is being decoded; undefined while tools run. */
  turn?: Turn | undefined;
  /** Share of the sample's KV cache that was dropped since its last turn and must be recomputed. */
  forgotten: number;
}

/** A simulated device that decodes up to `maxNumSeqs` sequences at the same time. */
export class RolloutDevice {
  /** Seconds in which the device had at least one sequence to decode. */
  busySeconds = 0;
  readonly #clock: Clock;
  readonly #cost: DecodeCost;
  readonly #maxNumSeqs: number;
  readonly #live = new Heap<Turn>((a, b) => a.endsAt < b.endsAt);
  readonly #queue: Turn[] = [];
  /** Number of tokens that a sequence would have by now if it had been decoded since the start of the simulation. */
  #tally = 0;
  #since = 0;
  #isHeld = false;
  /** Seconds of prefill that must pass before the next token is sampled. */
  #owed = 0;
  /** Number of the last scheduled end of a turn; timers that were set for earlier ones are ignored. */
  #plan = 0;
  readonly #samples = new Set<SampleState>();
  #waiting: Signal[] = [];

  constructor(clock: Clock, cost: DecodeCost, maxNumSeqs: number) {
    [this.#clock, this.#cost, this.#maxNumSeqs] = [clock, cost, maxNumSeqs];
  }

  /**
   * Runs all turns of a sample, and its tools between them.
   * @param promptTokens the sample's share of the tokens of the group's prompt, which is prefilled once per group
   */
  *run(sample: SampleWork, promptTokens = 0): Generator<number | Signal, void, void> {
    const state: SampleState = { tokens: promptTokens, forgotten: 0 };
    this.#samples.add(state);
    for (const { tokens, toolSeconds } of sample.turns) {
      const turn: Turn = { tokens: Math.max(1, tokens), endsAt: Infinity, ended: new Signal() };
      this.#change(() => {
        this.#owed += this.#computing(state.forgotten * state.tokens);
        this.#queue.push(turn);
      });
      [state.turn, state.forgotten] = [turn, 0];
      yield turn.ended;
      state.turn = undefined;
      state.tokens += tokens;
      if (toolSeconds > 0) yield toolSeconds;
    }
    this.#samples.delete(state);
  }

  /** Number of samples that are on the device or wait for it. New samples are assigned to the device with the fewest. */
  get load(): number {
    return this.#samples.size;
  }

  /** Returns a signal that happens when the device has nothing left to decode. */
  idle(): Signal {
    const idle = new Signal();
    if (this.#live.size === 0) idle.happen();
    else this.#waiting.push(idle);
    return idle;
  }

  /** True pauses decoding, while the device trains or receives new weights. */
  set isHeld(isHeld: boolean) {
    this.#change(() => (this.#isHeld = isHeld));
  }

  /**
   * Drops the KV caches after new weights have arrived. At most as many samples as there are slots have a cache. A sample that is being
   * decoded recomputes its context immediately, any other one at its next turn.
   */
  forgetCaches(): void {
    const held = Math.min(1, this.#maxNumSeqs / Math.max(1, this.load));
    this.#change(() => {
      for (const state of this.#samples)
        if (!state.turn) state.forgotten = held;
        else this.#owed += this.#computing(held * (state.tokens + this.#drawn(state.turn)));
    });
  }

  /** Applies a change at the current time, fills free slots, and schedules the next end of a turn. */
  #change(make: () => void): void {
    this.#advance();
    make();
    while (this.#live.size < this.#maxNumSeqs && this.#queue.length > 0) {
      const turn = this.#queue.shift()!;
      turn.endsAt = this.#tally + turn.tokens;
      this.#live.add(turn);
    }
    const plan = ++this.#plan;
    const next = this.#live.least;
    if (!next || this.#isHeld) return;
    const seconds = this.#owed + (next.endsAt - this.#tally) * this.#secondsPerToken();
    this.#clock.after(seconds, () => {
      if (plan === this.#plan) this.#endTurns(next.endsAt);
    });
  }

  #endTurns(tally: number): void {
    const ended: Turn[] = [];
    this.#change(() => {
      [this.#tally, this.#owed] = [tally, 0]; // avoids rounding errors
      while ((this.#live.least?.endsAt ?? Infinity) <= tally) ended.push(this.#live.take()!);
    });
    ended.forEach((turn) => turn.ended.happen());
    if (this.#live.size === 0) this.#waiting.splice(0).forEach((idle) => idle.happen());
  }

  #advance(): void {
    const passed = this.#clock.now - this.#since;
    this.#since = this.#clock.now;
    if (this.#live.size > 0) this.busySeconds += passed;
    const own = this.#isHeld ? 0 : passed;
    const paid = Math.min(own, this.#owed);
    this.#owed -= paid;
    if (this.#live.size > 0) this.#tally += (own - paid) / this.#secondsPerToken();
  }

  #drawn({ tokens, endsAt }: Turn): number {
    return Math.max(0, tokens - (endsAt - this.#tally));
  }

  /** Returns the seconds for the prefill of `tokens` tokens. */
  #computing(tokens: number): number {
    return tokens * (this.#cost.perContextToken ?? this.#cost.perRow);
  }

  #secondsPerToken(): number {
    return this.#cost.perPass + this.#cost.perRow * this.#live.size;
  }
}

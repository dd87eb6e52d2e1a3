/**
 * A device that decodes, as a fluid: all sequences that it holds gain tokens at one pace, which falls with their number. Only the ends of
 * turns are events, so that millions of tokens cost nothing.
 */

import { type Clock, Signal } from './clock.ts';
import { Heap } from './heap.ts';
import type { DecodeCost, SampleWork } from './workload.ts';

interface Turn {
  tokens: number;
  /** Tokens of the device's tally at which it ends; Infinity while it waits for a place. */
  endsAt: number;
  ended: Signal;
}

/** A sample under way. */
interface SampleState {
  /** Of its context, as of its last turn. */
  tokens: number;
  /** Absent = its tools run. */
  turn?: Turn | undefined;
  /** Share of its cache that was forgotten since. */
  forgotten: number;
}

export class RolloutDevice {
  /** Seconds in which it held a sequence. */
  busySeconds = 0;
  readonly #clock: Clock;
  readonly #cost: DecodeCost;
  readonly #maxNumSeqs: number;
  readonly #live = new Heap<Turn>((a, b) => a.endsAt < b.endsAt);
  readonly #queue: Turn[] = [];
  /** Tokens that a sequence held from the start would have by now. */
  #tally = 0;
  #since = 0;
  #isHeld = false;
  /** Seconds of its own that it has to compute before anything is drawn. */
  #owed = 0;
  /** Timers of an earlier plan are stale. */
  #plan = 0;
  readonly #samples = new Set<SampleState>();
  #waiting: Signal[] = [];

  constructor(clock: Clock, cost: DecodeCost, maxNumSeqs: number) {
    [this.#clock, this.#cost, this.#maxNumSeqs] = [clock, cost, maxNumSeqs];
  }

  /** All turns of a sample, with its tools between them. @param promptTokens its share of the prompt that its group has in common */
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

  /** Samples that are here or waiting to be: what a new one is placed by. */
  get load(): number {
    return this.#samples.size;
  }

  /** Happens once nothing is to be decoded. */
  idle(): Signal {
    const idle = new Signal();
    if (this.#live.size === 0) idle.happen();
    else this.#waiting.push(idle);
    return idle;
  }

  /** It stands still: something else has the device, or new weights come. */
  set isHeld(isHeld: boolean) {
    this.#change(() => (this.#isHeld = isHeld));
  }

  /**
   * New weights: caches are forgotten, as many as there are slots for. Who draws computes its context anew at once, the others with their next
   * turns.
   */
  forgetCaches(): void {
    const held = Math.min(1, this.#maxNumSeqs / Math.max(1, this.load));
    this.#change(() => {
      for (const state of this.#samples)
        if (!state.turn) state.forgotten = held;
        else this.#owed += this.#computing(held * (state.tokens + this.#drawn(state.turn)));
    });
  }

  /** Applies a change at its moment, then plans the next end of a turn. */
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
      [this.#tally, this.#owed] = [tally, 0]; // free of rounding
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

  /** Seconds of so many tokens of contexts. */
  #computing(tokens: number): number {
    return tokens * (this.#cost.perContextToken ?? this.#cost.perRow);
  }

  #secondsPerToken(): number {
    return this.#cost.perPass + this.#cost.perRow * this.#live.size;
  }
}

/**
 * The clock of a discrete-event simulation. Processes are generators that yield what they wait for, and time jumps from one event to the
 * next.
 */

import { Heap } from './heap.ts';

/** An event that happens once. A process that yields a signal continues when the signal happens. */
export class Signal {
  happened = false;
  #waiting: (() => void)[] = [];

  /** Calls `then` when the event happens, or immediately if it has already happened. */
  whenHappened(then: () => void): void {
    if (this.happened) then();
    else this.#waiting.push(then);
  }

  happen(): void {
    if (this.happened) return;
    this.happened = true;
    for (const then of this.#waiting.splice(0)) then();
  }
}

/** Returns a signal that happens when all `signals` have happened. */
export function all(signals: readonly Signal[]): Signal {
  const every = new Signal();
  let left = signals.length;
  for (const signal of signals) signal.whenHappened(() => --left === 0 && every.happen());
  if (left === 0) every.happen();
  return every;
}

/** A simulated process: it yields a number of seconds to wait, or a signal to wait for. */
export type Process = Generator<number | Signal, void, void>;

interface Timer {
  at: number;
  /** Number in the order of creation; timers that are due at the same time fire in this order. */
  order: number;
  run: () => void;
}

/** A simulated clock that runs processes and timers in the order of their times. */
export class Clock {
  /** Simulated seconds since the start. */
  now = 0;
  readonly #timers = new Heap<Timer>((a, b) => a.at < b.at || (a.at === b.at && a.order < b.order));
  #set = 0;

  /** Calls `run` after `seconds`. */
  after(seconds: number, run: () => void): void {
    this.#timers.add({ at: this.now + Math.max(0, seconds), order: this.#set++, run });
  }

  /** Starts a process. Returns a signal that happens when the process ends. */
  start(process: Process): Signal {
    const ended = new Signal();
    const next = (): void => {
      const { value, done } = process.next();
      if (done) ended.happen();
      else if (typeof value === 'number') this.after(value, next);
      else value.whenHappened(next);
    };
    next();
    return ended;
  }

  /** Runs timers until `end` has happened. Throws if no timer is left but `end` has not happened. */
  runUntil(end: Signal): void {
    while (!end.happened) {
      const timer = this.#timers.take();
      if (!timer) throw new Error('The simulation is stuck: everything waits and nothing runs.');
      this.now = timer.at;
      timer.run();
    }
  }
}

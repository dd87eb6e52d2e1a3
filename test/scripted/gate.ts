/** Lets a test hold and break a scripted engine. At each moment the engine waits for the test, never for a clock. */

/**
 * Moments at which a test can hold the engine, each numbered from 1. 'load': before an engine is created. 'turn': between the first and the
 * second half of a generated turn. 'update': before an optimizer step.
 */
export type Moment = 'load' | 'turn' | 'update';

/** The interface of a gate that an engine uses. */
export interface Gate {
  /**
   * Resolves when the engine can continue; returns undefined if the engine need not wait. Rejects with the error that the engine must
   * throw.
   */
  at(moment: Moment, number: number): Promise<void> | undefined;
}

interface Waiting {
  moment: Moment;
  number: number;
  pass: () => void;
}

/** A gate that lets an engine pass everywhere until a test closes it. */
export class TestGate implements Gate {
  readonly #upTo = { load: Infinity, turn: Infinity, update: Infinity };
  readonly #faults = new Map<string, Error>();
  #waiting: Waiting[] = [];
  readonly #asked = { load: 0, turn: 0, update: 0 };
  #watching: Waiting[] = [];
  #holding: { moment: Moment; pass: () => void }[] = [];

  at(moment: Moment, number: number): Promise<void> | undefined {
    this.#asked[moment] = Math.max(this.#asked[moment], number);
    for (const watched of this.#watching) if (this.#asked[watched.moment] >= watched.number) watched.pass();
    const fault = this.#faults.get(`${moment} ${number}`);
    this.#faults.delete(`${moment} ${number}`);
    if (fault) return Promise.reject(fault);
    if (number <= this.#upTo[moment]) return undefined;
    for (const held of this.#holding) if (held.moment === moment) held.pass();
    return new Promise((pass) => this.#waiting.push({ moment, number, pass }));
  }

  /** Makes an engine wait at moments of this kind whose number is greater than `number`. */
  upTo(number: number, moment: Moment = 'update'): void {
    this.#upTo[moment] = number;
    const mayPass = (waiting: Waiting) => waiting.number <= this.#upTo[waiting.moment];
    const passing = this.#waiting.filter(mayPass);
    this.#waiting = this.#waiting.filter((waiting) => !mayPass(waiting));
    for (const { pass } of passing) pass();
  }

  /** Lets a run finish step `number`. The engine then waits in the next step, before a turn is generated. */
  async endStep(number: number): Promise<void> {
    this.upTo(Infinity, 'turn');
    this.upTo(number - 1);
    await this.reached(number);
    this.upTo(0, 'turn');
    this.upTo(number);
  }

  /** Opens the gate for moments of every kind. */
  open(): void {
    for (const moment of ['load', 'turn', 'update'] as const) this.upTo(Infinity, moment);
  }

  /** Resolves once an engine has reached this moment. */
  reached(number: number, moment: Moment = 'update'): Promise<void> {
    if (this.#asked[moment] >= number) return Promise.resolve();
    return new Promise((pass) => this.#watching.push({ moment, number, pass }));
  }

  /** Resolves once an engine waits at a moment of this kind. */
  held(moment: Moment): Promise<void> {
    if (this.#waiting.some((waiting) => waiting.moment === moment)) return Promise.resolve();
    return new Promise((pass) => this.#holding.push({ moment, pass }));
  }

  /** Makes the engine fail once, at this moment. A DeviceLostError also loses its device. */
  fail(number: number, error: Error, moment: Moment = 'update'): void {
    this.#faults.set(`${moment} ${number}`, error);
  }
}

/** Creates a promise that can be resolved from outside. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, resolve };
}

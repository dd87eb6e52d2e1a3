/** A session a sample, shared by the tools that the sample calls: for servers that keep state. */

import { limiter } from '../tools/search.ts';
import type { McpSession } from './session.ts';

/** A sample's hold on its session. */
export interface Held {
  sampleId: string;
  /** Tools that have it as their state. */
  holds: number;
  session?: Promise<McpSession>;
  /** Ends the session and gives its place to the next sample. */
  free(): void;
}

export class SampleSessions {
  readonly #make: () => McpSession;
  readonly #limit: ReturnType<typeof limiter>;
  readonly #held = new Map<string, Held>();
  /** Sessions that are open or being closed. */
  readonly #open = new Set<Promise<void>>();
  #isClosed = false;

  /** @param maxSessions at once; further samples wait */
  constructor(make: () => McpSession, maxSessions: number) {
    this.#make = make;
    this.#limit = limiter(maxSessions);
  }

  hold(sampleId: string): Held {
    let held = this.#held.get(sampleId);
    if (!held) this.#held.set(sampleId, (held = { sampleId, holds: 0, free: () => {} }));
    held.holds++;
    return held;
  }

  /** The sample's session, as soon as there is a place. Throws when `signal` aborts before. */
  of(held: Held, signal: AbortSignal): Promise<McpSession> {
    held.session ??= new Promise((resolve, reject) => {
      const life = this.#limit(() => this.#live(held, resolve, reject));
      this.#open.add(life);
      void life.then(() => this.#open.delete(life));
    });
    return Promise.race([held.session, aborted(signal)]);
  }

  release(held: Held): void {
    if (--held.holds > 0) return;
    this.#held.delete(held.sampleId);
    held.free();
  }

  /** Resolves when all sessions are closed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const held of this.#held.values()) held.free();
    await Promise.all(this.#open);
  }

  /** Resolves when the session is closed again. */
  async #live(held: Held, resolve: (session: McpSession) => void, reject: (error: Error) => void): Promise<void> {
    if (held.holds === 0 || this.#isClosed) return reject(new Error('the sample has ended'));
    const session = this.#make();
    const freed = new Promise<void>((free) => (held.free = free));
    resolve(session);
    await freed;
    await session.close();
  }
}

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const stop = () => reject(new Error('no session was free in time'));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });

/** One session per sample, shared by the tools that the sample calls: for servers that keep state. */

import { limiter } from '../../tasks/limiter.ts';
import { untilAborted } from './connection.ts';
import type { McpSession } from './session.ts';

/** The session of one sample. */
export interface Held {
  sampleId: string;
  /** Number of tools that use the session as their state. */
  holds: number;
  session?: Promise<McpSession>;
  /** Ends the session, so that the next sample can open one. */
  free(): void;
}

/** Opens one session per sample, up to a limit, and closes it after the sample's last tool is released. */
export class SampleSessions {
  readonly #make: () => McpSession;
  readonly #limit: ReturnType<typeof limiter>;
  readonly #held = new Map<string, Held>();
  /** Sessions that are open or closing. */
  readonly #open = new Set<Promise<void>>();
  #isClosed = false;

  /** @param maxSessions open at the same time; other samples wait */
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

  /** Returns the sample's session once a slot is free. Rejects if `signal` aborts first. */
  of(held: Held, signal: AbortSignal): Promise<McpSession> {
    held.session ??= new Promise((resolve, reject) => {
      const life = this.#limit(() => this.#live(held, resolve, reject));
      this.#open.add(life);
      void life.then(() => this.#open.delete(life));
    });
    return untilAborted(held.session, signal, 'no session was free in time');
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

  /** Opens a session and resolves once it is closed. */
  async #live(held: Held, resolve: (session: McpSession) => void, reject: (error: Error) => void): Promise<void> {
    if (held.holds === 0 || this.#isClosed) return reject(new Error('the sample has ended'));
    const session = this.#make();
    const freed = new Promise<void>((free) => (held.free = free));
    resolve(session);
    await freed;
    await session.close();
  }
}

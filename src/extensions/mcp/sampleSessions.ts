/** Sessions for MCP servers that keep state: one session per sample, which all tools of that sample share. */

import { limiter } from '../../tasks/limiter.ts';
import { untilAborted } from './connection.ts';
import type { McpSession } from './session.ts';

/** The session of one sample, and its state. */
export interface Held {
  sampleId: string;
  /** Number of tools that have been created for the sample and not yet released. */
  holds: number;
  session?: Promise<McpSession>;
  /** Closes the session, so that a waiting sample can open its own. */
  free(): void;
}

/** Opens a session for each sample, up to a limit, and closes it when the sample's last tool is released. */
export class SampleSessions {
  readonly #make: () => McpSession;
  readonly #limit: ReturnType<typeof limiter>;
  readonly #held = new Map<string, Held>();
  /** One promise per session that is waiting, open or closing; it resolves when the session is closed. */
  readonly #open = new Set<Promise<void>>();
  #isClosed = false;

  /** @param maxSessions maximum number of open sessions; further samples wait */
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

  /** Returns the sample's session, which is opened once the limit allows it. Rejects if `signal` aborts first. */
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

  /** Closes all sessions. Resolves when they are closed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const held of this.#held.values()) held.free();
    await Promise.all(this.#open);
  }

  /** Opens the session of a sample, passes it to `resolve`, and resolves when the session was closed again. */
  async #live(held: Held, resolve: (session: McpSession) => void, reject: (error: Error) => void): Promise<void> {
    if (held.holds === 0 || this.#isClosed) return reject(new Error('the sample has ended'));
    const session = this.#make();
    const freed = new Promise<void>((free) => (held.free = free));
    resolve(session);
    await freed;
    await session.close();
  }
}

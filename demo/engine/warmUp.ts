/** A session that is opened before Start, and the untrained model's tries at the first problem. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { firstGroup, timedStep } from '../../src/extensions/checks/index.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { needsOnlyThePage, Session, sessionKey } from './session.ts';

export { needsOnlyThePage };

interface WarmUpEvents {
  onOpened(session: Session): void;
  onTry(sample: Sample): void;
  /** Called after the last try. */
  onTries(): void;
  /** Called with the seconds of a measured step of `timed` problems. */
  onTimed(seconds: number): void;
}

/** Opens a session and generates the untrained model's tries. */
export class WarmUp {
  /** Rejects if the session cannot be opened, or if `close` is called first. */
  readonly session: Promise<Session>;
  readonly #key: string;
  readonly #tries: Promise<void>;
  readonly #ending = new AbortController();
  #giveUp: (error: Error) => void = () => {};

  /** @param timed number of problems of a step to time once the page has been idle for a while; undefined = no timing */
  constructor(config: TrainConfig, timed: number | undefined, { onOpened, onTry, onTries, onTimed }: WarmUpEvents) {
    this.#key = sessionKey(config);
    const givenUp = new Promise<never>((_, reject) => (this.#giveUp = reject));
    givenUp.catch(() => {});
    this.session = Session.open(config, { hub: undefined, onDownload: () => {} }, givenUp);
    this.#tries = this.session.then(async (session) => {
      onOpened(session);
      const { engine, task } = session;
      await firstGroup({ config, engine, task }, { onSample: onTry, signal: this.#ending.signal });
      onTries();
      const { signal } = this.#ending;
      if (timed === undefined || !(await isIdle(signal))) return;
      // If the timing fails, only the estimate of the run's duration is missing.
      const step = await timedStep({ config, engine, task }, { problems: timed, signal }).catch(() => undefined);
      if (step) onTimed(step.generationS + step.updateS);
    });
    this.#tries.catch(() => {}); // Start reports the error
  }

  fits(config: TrainConfig): boolean {
    return this.#key === sessionKey(config);
  }

  /** Returns the session, once its tries have ended. Rejects if the session cannot be trained. */
  async take(): Promise<Session> {
    this.#ending.abort();
    const session = await this.session;
    await Promise.race([this.#tries, session.failed]);
    if (session.isClosed) throw new Error('The session is closed.');
    return session;
  }

  close(): void {
    this.#ending.abort();
    this.#giveUp(new Error('The settings have changed.'));
    this.session.then((session) => session.close()).catch(() => {});
  }
}

/** Milliseconds of idle time before a step is timed. */
const IDLE_MS = 1000;

/** Waits a second. Returns false, at once, if `signal` has aborted or aborts meanwhile. Also returns false if the page is hidden. */
async function isIdle(signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return false; // its event has been dispatched already
  await new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve());
    setTimeout(resolve, IDLE_MS);
  });
  return !signal.aborted && !document.hidden;
}

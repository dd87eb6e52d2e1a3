/**
 * Runs a custom agent loop. Whatever the loop does, the run of the sample ends with a stop reason, or with an error that names the loop.
 */

import { blame, shownValue, UserCodeError } from '../../errors.ts';
import { isMessage } from '../../tasks/problem.ts';
import type { ToolCall } from '../tools/parser.ts';
import { onAbort } from '../tools/onAbort.ts';
import { STOP_REASONS, type StopReason } from '../types.ts';
import { AgentSample } from './sample.ts';
import type { TurnSampling } from './turnSampling.ts';
import type { AgentLoopInput, Turn } from './types.ts';
import { startTimer } from '../../tasks/timer.ts';

/** Milliseconds that a loop has to return after its sample was ended by a timeout or an abort. */
const LAST_WORDS_MS = 1000;

/** A sample that reports when its loop waits neither for the model nor for tools. */
export class WatchedSample extends AgentSample {
  /** Callback of `runOwnLoop`: called with true when the loop becomes idle, with false when it waits for the engine or tools again. */
  onIdle: (idle: boolean) => void = () => undefined;
  #busy = 0;

  override generate(turn?: TurnSampling): Promise<Turn> {
    return this.#watch(super.generate(turn));
  }

  override callTools(calls: ToolCall[]): Promise<StopReason | undefined> {
    return this.#watch(super.callTools(calls));
  }

  override step(text: string): Promise<StopReason | undefined> {
    return this.#watch(super.step(text));
  }

  async #watch<T>(work: Promise<T>): Promise<T> {
    if (this.#busy++ === 0) this.onIdle(false);
    try {
      return await work;
    } finally {
      if (--this.#busy === 0) this.onIdle(true);
    }
  }
}

/**
 * Runs a custom loop and returns its stop reason. Throws UserCodeError if the loop throws, returns no reason, leaves invalid messages, or
 * is idle for `limits.loopTimeoutMs`. Rethrows errors of the engine unchanged. A loop that continues after its sample was ended is
 * abandoned: its turns end immediately.
 * @param ended aborts when the sample must end
 */
export async function runOwnLoop(
  name: string,
  loop: (sample: AgentSample) => Promise<StopReason>,
  sample: WatchedSample,
  { problem, limits }: AgentLoopInput,
  ended: AbortSignal,
): Promise<StopReason> {
  const what = `The agent loop "${name}" of problem "${problem.id}"`;
  const expected = `Return one of ${STOP_REASONS.filter((reason) => reason !== 'error').join(', ')}`;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopWaiting = () => {};
  try {
    const leftBehind = new Promise<StopReason>((resolve, reject) => {
      const { loopTimeoutMs: ms = Infinity } = limits;
      const tooLong = `${what} did neither generate, call tools nor end in ${ms / 1000} s (rollout.agent.timeoutS). ${expected}.`;
      const end = () => reject(new UserCodeError('agent loop took too long', tooLong));
      sample.onIdle = (idle) => {
        if (ended.aborted) return; // the timer now limits the time to return
        clearTimeout(timer);
        if (idle) timer = startTimer(end, ms);
      };
      const giveUp = () => {
        clearTimeout(timer);
        timer = setTimeout(() => resolve(sample.endReason), LAST_WORDS_MS);
      };
      sample.onIdle(true);
      stopWaiting = onAbort(ended, giveUp);
      if (ended.aborted) giveUp();
    });
    const reason = await Promise.race([(async () => loop(sample))(), leftBehind]);
    if (sample.failure) throw sample.failure.error;
    if (!(STOP_REASONS as readonly unknown[]).includes(reason) || reason === 'error')
      throw new UserCodeError('agent loop returned', `${what} returned ${shownValue(reason)}. ${expected}.`);
    checkMessages(what, sample.messages);
    return reason;
  } catch (error) {
    if (sample.failure) throw sample.failure.error;
    throw blame('agent loop', what, error, expected);
  } finally {
    clearTimeout(timer);
    stopWaiting();
    sample.onIdle = () => undefined;
  }
}

/** Throws UserCodeError if a message is invalid. Otherwise the error would only show in rewards and reports, which read messages. */
function checkMessages(what: string, messages: readonly unknown[]): void {
  const at = messages.findIndex((message) => !isMessage(message));
  if (at < 0) return;
  throw new UserCodeError(
    'agent loop left a message',
    `${what} left an invalid message, number ${at + 1} of ${messages.length}. Put { role, content } with texts in both, or use sample.say().`,
  );
}

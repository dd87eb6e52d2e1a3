/**
 * Opens a session while the page is idle, and shows tries of the untrained model at the first problem. Errors are shown only when Start is
 * pressed.
 */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Session } from '../engine/session.ts';
import type { WarmUp } from '../engine/warmUp.ts';
import { keepTimed, problemsToTime } from '../state/estimate.ts';
import { showSession, tries } from '../state/page.ts';
import { endTries, showTries, showTry } from '../state/tries/growing.ts';
import { state } from '../state/stage.ts';

/** Milliseconds without a change of the settings before a session is opened for them. */
const SETTLED_MS = 600;

let warmUp: WarmUp | undefined;
/**
 * The newest session that failed to open or lost its GPU. Until Start is pressed, the page opens no other session for the same settings.
 */
let failed: WarmUp | undefined;
let waiting = 0;

/** Opens a session when the browser is idle. @param ask returns the config that a run would use */
export function warmWhenIdle(ask: () => TrainConfig): void {
  const open = () => void warm(ask).catch(() => {});
  if ('requestIdleCallback' in globalThis) requestIdleCallback(open, { timeout: 500 });
  else setTimeout(open, 50);
}

/** Opens another session once changed settings have been stable for a moment. */
export function warmWhenSettled(ask: () => TrainConfig): void {
  clearTimeout(waiting);
  waiting = window.setTimeout(() => warmWhenIdle(ask), SETTLED_MS);
}

async function warm(ask: () => TrainConfig): Promise<void> {
  const { WarmUp, needsOnlyThePage } = await import('../engine/warmUp.ts');
  if (state.value !== 'idle') return;
  const config = ask();
  if (warmUp?.fits(config) || failed?.fits(config)) return;
  drop();
  if (!needsOnlyThePage(config)) return;
  const timed = problemsToTime(config);
  const opened: WarmUp = new WarmUp(config, timed, {
    onOpened: (open) => {
      if (warmUp === opened) showSession(open);
    },
    onTry: (sample) => {
      if (warmUp === opened && areOfNoRun()) showTry(sample, 0);
    },
    onTries: endTries,
    onTimed: (seconds) => keepTimed(config, timed!, seconds),
  });
  warmUp = opened;
  const forget = () => {
    if (warmUp === opened) [warmUp, failed] = [undefined, opened];
  };
  opened.session.then(({ failed }) => failed).catch(forget);
}

function drop(): void {
  if (!warmUp) return;
  warmUp.close();
  warmUp = undefined;
  showSession(undefined);
  if (areOfNoRun()) showTries([]);
}

const areOfNoRun = (): boolean => tries.value.every(({ step }) => step === 0);

/** Returns the session opened ahead if it matches `config`. Closes all others. */
export function takeSession(config: TrainConfig): Promise<Session> | undefined {
  clearTimeout(waiting);
  const taken = warmUp;
  if (taken?.fits(config)) {
    warmUp = undefined;
    return taken.take();
  }
  drop();
  showSession(undefined);
  return undefined;
}

/** Opens a session while the page idles, and shows the untrained model's tries at the first problem. Only Start tells what went wrong. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Session } from '../engine/session.ts';
import type { WarmUp } from '../engine/warmUp.ts';
import { keepTimed, problemsToTime } from '../state/estimate.ts';
import { session, state, tries } from '../state/page.ts';
import { endTries, showTries, showTry } from '../state/tries/growing.ts';

/** After a change of the settings. */
const SETTLED_MS = 600;

let warmUp: WarmUp | undefined;
/** Newest one that could not be opened or lost its GPU: the page opens no other for the same settings before Start. */
let failed: WarmUp | undefined;
let waiting = 0;

/** Once the browser has nothing better to do. @param ask what a run would be trained by */
export function warmWhenIdle(ask: () => TrainConfig): void {
  const open = () => void warm(ask).catch(() => {});
  if ('requestIdleCallback' in globalThis) requestIdleCallback(open, { timeout: 500 });
  else setTimeout(open, 50);
}

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
      if (warmUp === opened) session.value = open;
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
  [warmUp, session.value] = [undefined, undefined];
  if (areOfNoRun()) showTries([]);
}

const areOfNoRun = (): boolean => tries.value.every(({ step }) => step === 0);

/** The session that was opened ahead, where it is what `config` asks for; all others are closed. */
export function takeSession(config: TrainConfig): Promise<Session> | undefined {
  clearTimeout(waiting);
  const taken = warmUp;
  if (taken?.fits(config)) {
    warmUp = undefined;
    return taken.take();
  }
  drop();
  session.value?.close();
  session.value = undefined;
  return undefined;
}

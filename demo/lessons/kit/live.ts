/** Live work of a lesson: an engine that is opened at the first press of a button, and closed after the page was hidden for a minute. */

import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { Session } from '../../engine/session.ts';

/** Milliseconds after which the engine of a hidden page is closed. */
const OUT_OF_SIGHT_MS = 60_000;

let opening: Promise<Session> | undefined;
/** Settles when the previous live work has ended. The engine works for one figure at a time. */
let before: Promise<unknown> = Promise.resolve();
let working = false;
let closing: ReturnType<typeof setTimeout> | undefined;

/** Opens the shipped model with its recipe. @param overrides settings of the form `key=value` */
async function open(overrides: string[] = []): Promise<Session> {
  const [{ Session }, { fetchConfig }, { parseTrainConfig }, { findAdapter }] = await Promise.all([
    import('../../engine/session.ts'),
    import('../../engine/configs.ts'),
    import('../../../src/extensions/yaml/text.ts'),
    import('../../engine/adapter.ts'),
  ]);
  await findAdapter(); // says what to do without a GPU
  const text = await fetchConfig('gsm8k-tool');
  const config: TrainConfig = parseTrainConfig(text, { source: 'gsm8k-tool.yaml', overrides, note: () => {} });
  return Session.open(config, { hub: undefined, onDownload: () => {} }, new Promise<never>(() => {}));
}

/**
 * Calls `use` with the engine, after any earlier live work. Resolves when `use` has ended; to undefined if `signal` aborted before `use`
 * was called. Rejects with a text for the reader if a GPU is missing or the engine fails. The next call then opens another engine.
 */
export function live<T>(use: (session: Session) => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  const work = before.then(() => (signal.aborted ? undefined : onEngine(use)));
  before = work.catch(() => {});
  return work;
}

async function onEngine<T>(use: (session: Session) => Promise<T>): Promise<T> {
  working = true;
  opening ??= open();
  let session: Session | undefined;
  try {
    session = await opening;
    return await Promise.race([use(session), session.failed]);
  } catch (error) {
    session?.close();
    opening = undefined;
    throw error;
  } finally {
    working = false;
  }
}

interface TrainingEvents {
  onStep: (metrics: Metrics) => void;
  /** Called after each try. */
  onTry: () => void;
  signal: AbortSignal;
}

/**
 * Trains the shipped model on a separate engine, after any earlier live work. Resolves after `steps` steps, or when `signal` aborts.
 * Rejects with a text for the reader if a GPU is missing or the engine fails.
 */
export function trainHere(steps: number, overrides: string[], events: TrainingEvents): Promise<void> {
  const work = before.then(() => trainSteps(steps, overrides, events));
  before = work.catch(() => {});
  return work;
}

async function trainSteps(
  steps: number,
  overrides: string[],
  { onStep, onTry, signal }: TrainingEvents,
): Promise<void> {
  if (signal.aborted) return;
  const { GrpoTrainer } = await import('../../../src/grpo/trainer.ts');
  const session = await open(overrides);
  const { config, engine, task, failed } = session;
  const stopped = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  try {
    const trainer = new GrpoTrainer({ config, engine, task, onSample: onTry });
    for (let step = 1; step <= steps && !signal.aborted; step++) {
      const work = trainer.step();
      work.catch(() => {}); // after a stop the closed session rejects it
      const finished = await Promise.race([work, failed, stopped]);
      if (finished) onStep(finished.metrics);
    }
  } finally {
    session.close();
  }
}

interface DrawEvents {
  onTry: (one: LoggedRollout) => void;
  signal: AbortSignal;
}

/**
 * Samples the tries of a problem of step 1 with the untrained model; see `live`. Resolves when all are sampled, or when `signal` aborts.
 */
export async function drawGroup(problem: number, { onTry, signal }: DrawEvents): Promise<void> {
  const [{ firstGroup }, { loggedRollouts }] = await Promise.all([
    import('../../../src/extensions/checks/index.ts'),
    import('../../../src/runs/rollouts.ts'),
  ]);
  const onSample = (sample: Parameters<typeof loggedRollouts>[0][number]) => onTry(loggedRollouts([sample], 1, 1)[0]);
  await live(({ config, engine, task }) => firstGroup({ config, engine, task }, { problem, onSample, signal }), signal);
}

function closeWhenUnused(): void {
  clearTimeout(closing);
  if (!document.hidden || !opening) return;
  closing = setTimeout(() => {
    if (working) return;
    opening?.then((session) => session.close()).catch(() => {});
    opening = undefined;
  }, OUT_OF_SIGHT_MS);
}

document.addEventListener('visibilitychange', closeWhenUnused);

/** Saved runs, as the page asks for them and speaks of them. The code that reads and writes them is loaded once the page is there. */

import { signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { HeldRun, ReopenedRun } from './heldRun.ts';
import type { Release, SavedRun, SavedRuns } from './savedRuns.ts';

const code = Promise.all([import('./savedRuns.ts'), import('./heldRun.ts')]);
const runs = code.then(([{ openSavedRuns }]) => openSavedRuns());

/** Counts what this tab has written: a checkpoint, a run more or less. */
export const changes = signal(0);

/** Undefined if the browser keeps no files. */
export const savedRuns = (): Promise<SavedRuns | undefined> => runs;

export const newestRun = async (): Promise<SavedRun | undefined> => (await runs)?.newest();

/** Undefined if it cannot be read. */
export const readRun = async (id: string): Promise<SavedRun | undefined> =>
  (await runs)?.read(id).catch(() => undefined);

export async function discardRun({ id }: SavedRun): Promise<void> {
  await (await runs)?.discard(id);
  changes.value++;
}

/** Waits so long for another tab to let go of the run; undefined = it did not. */
export const claimRun = async ({ id }: SavedRun, waitMs: number): Promise<Release | undefined> =>
  (await code)[0].claim(id, waitMs);

/** A new run has no more than where it is saved, if anywhere. */
type OpenedRun = Partial<ReopenedRun>;

/**
 * Where a run is saved: a new one, or `from`, taken for this tab. A new run that cannot be saved continues without: `onProblem` hears why. Throws
 * InputError where `from` is open in another tab or cannot be read.
 */
export async function openRun(
  config: TrainConfig,
  { from, hub, onProblem }: { from?: SavedRun; hub: string | undefined; onProblem: (text: string | undefined) => void },
): Promise<OpenedRun> {
  // Asked at a click, so that the browser keeps the files when room gets scarce.
  void navigator.storage?.persist?.().catch(() => false);
  const [[, { HeldRun }], files] = await Promise.all([code, runs]);
  const listen = (held: HeldRun) => {
    held.onProblem = (problem) => onProblem(problem?.message);
    held.onWritten = () => void changes.value++;
    changes.value++;
    return held;
  };
  if (files && from) {
    const { held, ...rest } = await HeldRun.resume(files, from.id, config);
    return { held: listen(held), ...rest };
  }
  if (!files) onProblem(NO_FILES);
  try {
    if (files) return { held: listen(await HeldRun.begin(files, config, hub)) };
  } catch (error) {
    onProblem((error as Error).message);
  }
  return {};
}

const NO_FILES =
  'This window cannot store files, as private windows cannot. The run continues, but is lost when the page closes.';

/** "The run of 14:03", or its given name. */
export function nameOf({ record: { started, name } }: Pick<SavedRun, 'record'>): string {
  if (name !== undefined) return name;
  const date = new Date(started);
  const day =
    date.toDateString() === new Date().toDateString()
      ? ''
      : `${date.toLocaleDateString('en-GB', { day: 'numeric', month: 'long' })}, `;
  return `Run of ${day}${date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })}`;
}

/** The page's access to saved runs. The code that reads and writes them is loaded at its first use. */

import { signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { HeldRun, ReopenedRun } from './heldRun.ts';
import type { Release, RunRecord, SavedRun, SavedRuns } from './savedRuns.ts';

let code: Promise<[typeof import('./savedRuns.ts'), typeof import('./heldRun.ts')]> | undefined;
let runs: Promise<SavedRuns | undefined> | undefined;

/** Loads the code at the first use. Start can be pressed without it. */
const load = () => (code ??= Promise.all([import('./savedRuns.ts'), import('./heldRun.ts')]));

/** Number of changes that this tab has written: checkpoints, and added or deleted runs. */
export const changes = signal(0);

/** Returns the store of saved runs; undefined if the browser stores no files. */
export const savedRuns = (): Promise<SavedRuns | undefined> =>
  (runs ??= load().then(([{ openSavedRuns }]) => openSavedRuns()));

/** Returns the newest saved run. */
export const newestRun = async (): Promise<SavedRun | undefined> => (await savedRuns())?.newest();

/** Returns a run; undefined if it cannot be read. */
export const readRun = async (id: string): Promise<SavedRun | undefined> =>
  (await savedRuns())?.read(id).catch(() => undefined);

/** Deletes a saved run. */
export async function discardRun({ id }: Pick<SavedRun, 'id'>): Promise<void> {
  await (await savedRuns())?.discard(id);
  changes.value++;
}

/** Claims a run. Waits `waitMs` for another tab to release the run; undefined if that tab still holds the run then. */
export const claimRun = async ({ id }: SavedRun, waitMs: number): Promise<Release | undefined> =>
  (await load())[0].claim(id, waitMs);

/** An opened run, with its storage. A new run has no checkpoint yet. */
type OpenedRun = Partial<ReopenedRun>;

/**
 * Opens the storage of a new run, or of the saved run `from`, and claims the run for this tab. A new run that cannot be saved continues
 * unsaved, and `onProblem` is called with the reason. Throws InputError if `from` is open in another tab or cannot be read.
 */
export async function openRun(
  config: TrainConfig,
  {
    from,
    onProblem,
    ...where
  }: Pick<RunRecord, 'hub' | 'adapter'> & { from?: SavedRun; onProblem: (text: string | undefined) => void },
): Promise<OpenedRun> {
  // Request persistent storage, so that the browser keeps the files when space runs out. Browsers grant it after a click.
  void navigator.storage?.persist?.().catch(() => false);
  const [[, { HeldRun }], files] = await Promise.all([load(), savedRuns()]);
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
    if (files) return { held: listen(await HeldRun.begin(files, config, where)) };
  } catch (error) {
    onProblem((error as Error).message);
  }
  return {};
}

const NO_FILES =
  'This window cannot store files, as private windows cannot. The run continues, but is lost when the page closes.';

/** Returns "Run 14:03", or the visitor's name for it. */
export function nameOf({ record: { started, name } }: Pick<SavedRun, 'record'>): string {
  if (name !== undefined) return name;
  const date = new Date(started);
  const day =
    date.toDateString() === new Date().toDateString()
      ? ''
      : `${date.toLocaleDateString('en-GB', { day: 'numeric', month: 'long' })}, `;
  return `Run ${day}${date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })}`;
}

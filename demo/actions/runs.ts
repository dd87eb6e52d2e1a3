/** Actions of the buttons of an earlier run: show, continue, fork, save, load. */

import { complain, inform } from '../state/notices.ts';
import { history, shownRun, shownStep } from '../state/page.ts';
import { changesInWords, worded } from '../state/rules.ts';
import { overlaid, readRuns, titleOf, toggleOverlay } from '../state/runs.ts';
import { form } from '../state/settings/settings.ts';
import { showNewest, showStep } from '../state/tries/shown.ts';
import { triesOf } from '../state/tries/stepTries.ts';
import { LR, valueInForce } from '../storage/runChanges.ts';
import { changes, savedRuns } from '../storage/saved.ts';
import type { SavedRun, SavedRuns } from '../storage/savedRuns.ts';
import { showRun, start, stop } from './controller.ts';
import { saveFile } from './saveFile.ts';
import { active, enter, stage } from '../state/stage.ts';

/** Shows the tries of a step, and marks the step in the curves. Undefined = the newest step. */
export async function goTo(step: number | undefined): Promise<void> {
  const last = history.value.at(-1)?.['training/global_step'];
  shownStep.value = step === last ? undefined : step;
  if (shownStep.value === undefined) return showNewest();
  const found = await triesOf(shownStep.value);
  if (found.length > 0 && shownStep.value === step) showStep(found);
}

/** Ends the active run, which stays saved. */
export async function stopFirst(): Promise<void> {
  if (!active.value) return;
  const ended = new Promise<void>((resolve) => {
    const unsubscribe = active.subscribe((now) => {
      if (now) return;
      resolve();
      queueMicrotask(() => unsubscribe());
    });
  });
  stop();
  await ended;
}

/** Runs the work of a button that needs the saved runs. Shows a failure to the visitor. */
const withStore = (work: (store: SavedRuns) => Promise<void>): void =>
  void (async () => {
    const store = await savedRuns();
    if (!store) throw new Error('This window cannot store runs. Open the page in a normal window.');
    await work(store);
  })().catch(complain);

/** Shows a saved run. */
export const show = (run: SavedRun): void =>
  withStore(async () => {
    await stopFirst();
    await showRun(run);
  });

/** Continues a saved run. */
export const goOn = (run: SavedRun): void => void start(run);

/** Renames a saved run. */
export const rename = (run: SavedRun, name: string): void =>
  withStore(async (store) => {
    await store.updateRecord(run.id, { name: name.trim().slice(0, 80) });
    changes.value++;
  });

/** Deletes a saved run. */
export const discard = (run: SavedRun): void =>
  withStore(async (store) => {
    await store.discard(run.id);
    if (overlaid.value.includes(run.id)) toggleOverlay(run.id);
    changes.value++;
  });

/** Starts a new run from the state after `step`, with the same settings. */
export const goOnFrom = (run: SavedRun, step: number): void =>
  withStore(async (store) => {
    await stopFirst();
    await branch(store, run, step);
  });

/** Starts a new run from the state after `step`, with settings that the visitor chooses now. */
export const fork = (run: SavedRun, step: number): void =>
  withStore(async (store) => {
    await stopFirst();
    if (stage.value.name === 'forking') stage.value.cancel(); // another fork
    if (shownRun.value !== run.id) await showRun(run);
    const back = stage.value;
    if (back.name !== 'looking') return; // a run was started meanwhile
    const restore = form.keep();
    form.open(run.config, 'config.yaml');
    form.change('lr', String(valueInForce(run.changes, step, LR, form.own.value!.actor.optim.lr)));
    const copying = new AbortController();
    const cancel = () => {
      copying.abort();
      enter(back);
      restore();
    };
    let isBegun = false; // a second click makes no second copy
    const begin = () => {
      if (isBegun) return;
      isBegun = true;
      void branch(store, run, step, copying.signal)
        .catch(complain)
        .finally(() => (isBegun = false));
    };
    enter({ name: 'forking', of: run, step, back, start: begin, cancel });
    document.getElementById('settings')!.querySelector<HTMLElement>('input, select')?.focus(); // in the drawer, which the stage has opened
    await goTo(step);
  });

/** Starts a copy of a run from `step`, with the form's settings if `cancelled` is given, otherwise with the run's. */
async function branch(store: SavedRuns, run: SavedRun, step: number, cancelled?: AbortSignal): Promise<void> {
  const config = cancelled && form.config(); // by default `start` opens the form with the run's settings
  const forked = await store.fork(await store.read(run.id), step);
  if (cancelled?.aborted) return store.discard(forked.id);
  await readRuns();
  if (!overlaid.value.includes(run.id)) toggleOverlay(run.id);
  await start(forked, config);
}

/** Part of a run that can be saved as a file. */
export type Saved = 'run' | 'model' | 'gguf' | 'report';

/** Saves a part of a run as a file. */
export const save = (run: SavedRun, what: Saved): void =>
  withStore(async (store) => {
    const { runZip, modelZip, modelGguf, reportPage } = await import('../storage/exports.ts');
    const write = { run: runZip, model: modelZip, gguf: modelGguf, report: reportPage }[what];
    const saved = await store.read(run.id);
    const { name, bytes } = await write(store, saved, changesInWords(worded(saved.changes)));
    saveFile(name, new Blob([bytes]));
  });

/** Shows why a run may not learn, as `webgrpo doctor` does. */
export const diagnose = (run: SavedRun, show: (text: string) => void): void =>
  withStore(async (store) => {
    const { diagnosisOf } = await import('../storage/exports.ts');
    const saved = await store.read(run.id);
    show(await diagnosisOf(store, saved, changesInWords(worded(saved.changes))));
  });

/** Imports a run from its files, and shows it. */
export const load = (files: readonly File[]): void =>
  withStore(async (store) => {
    const { importRun } = await import('../storage/imports.ts');
    const run = await importRun(store, files);
    changes.value++;
    if (active.value) inform(`${titleOf(run)} was added to the runs.`);
    else await showRun(run);
  });

/** Earlier runs beside the one that is shown: compared, laid over it, branched off, replayed, saved and loaded. */

import { batch, computed, effect, signal } from '@preact/signals';
import { parseTrainConfig } from '../../src/grpo/config/text.ts';
import type { Mark } from '../../src/ui/lineChart.ts';
import { changes, nameOf, savedRuns } from '../storage/saved.ts';
import type { SavedRun, SavedRuns } from '../storage/savedRuns.ts';
import type { OtherRun } from '../views/charts/curves.ts';
import { fail, settings, showRun, start, stop } from './controller.ts';
import { complain, inform, offer } from '../state/notices.ts';
import { active, history, shownRun, shownStep } from '../state/page.ts';
import { changes as ruleChanges } from '../state/rules.ts';
import { showNewest, showStep } from '../state/tries/shown.ts';
import { triesOf } from '../state/tries/stepTries.ts';

/** Curves of so many runs can be told apart. */
export const MOST_OVERLAID = 4;

/** Every saved run, the newest first. */
export const runs = signal<readonly SavedRun[]>([]);

/** Ids of runs that are laid over the one that is shown, by slot; undefined = a free slot. */
const slots = signal<readonly (string | undefined)[]>(Array<undefined>(MOST_OVERLAID).fill(undefined));

export const overlaid = computed(() => slots.value.filter((id) => id !== undefined));

export const others = computed((): OtherRun[] =>
  slots.value.flatMap((id, slot) => {
    const run = runs.value.find((run) => run.id === id);
    return run && run.id !== shownRun.value ? [{ id: run.id, name: nameOf(run), slot, history: run.history }] : [];
  }),
);

/** The saved run whose curves are shown. */
export const shown = computed(() => runs.value.find(({ id }) => id === shownRun.value));

/** Where the shown run and those over it branched off, where its rules were changed, and the step that was gone back to. */
export const marks = computed((): Mark[] => {
  const inCharts = runs.value.filter(({ id }) => id === shownRun.value || overlaid.value.includes(id));
  const forks = inCharts.flatMap(({ record: { forkedFrom } }) => forkedFrom?.step ?? []);
  return [
    ...[...new Set(forks)].map((step) => ({ step, colour: '--muted', dash: [2, 4] })),
    ...[...new Set(ruleChanges.value.map(({ step }) => step))].map((step) => ({
      step,
      colour: '--accent',
      dash: [1, 3],
    })),
    ...(shownStep.value === undefined ? [] : [{ step: shownStep.value, colour: '--text' }]),
  ];
});

const readAll = async () => void (runs.value = (await (await savedRuns())?.all()) ?? []);
effect(() => {
  // Of what is written during a run, its checkpoints alone matter here.
  void changes.value;
  void active.value;
  void readAll().catch(complain);
});

export function toggleOverlay(id: string): void {
  const at = slots.value.indexOf(id);
  const place = at >= 0 ? at : slots.value.indexOf(undefined);
  if (place >= 0) slots.value = slots.value.with(place, at >= 0 ? undefined : id);
}

/** Shows the tries of a step, and where it lies in the curves; undefined = the newest. */
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

/** Does what a button asks for with the store; a failure is said. */
const withStore = (work: (store: SavedRuns) => Promise<void>): void =>
  void (async () => {
    const store = await savedRuns();
    if (!store) throw new Error('This window keeps no runs.');
    await work(store);
  })().catch(complain);

export const show = (run: SavedRun): void =>
  withStore(async () => {
    await stopFirst();
    await showRun(run);
  });

export const goOn = (run: SavedRun): void => void start(run);

export const rename = (run: SavedRun, name: string): void =>
  withStore(async (store) => {
    await store.updateRecord(run.id, { name: name.trim().slice(0, 80) });
    changes.value++;
  });

export const discard = (run: SavedRun): void =>
  withStore(async (store) => {
    if (overlaid.value.includes(run.id)) toggleOverlay(run.id);
    await store.discard(run.id);
    changes.value++;
  });

/** A new run that continues from the state after `step`, under the same settings. */
export const goOnFrom = (run: SavedRun, step: number): void =>
  withStore(async (store) => {
    await stopFirst();
    await branch(store, run, step);
  });

/** A new run that continues from the state after `step`, under settings that are chosen now. */
export const fork = (run: SavedRun, step: number): void =>
  withStore(async (store) => {
    await stopFirst();
    settings.value!.open(run.config, 'config.yaml', new URLSearchParams());
    const begin = () => {
      try {
        settings.value!.config();
        void branch(store, run, step, true).catch(fail);
      } catch (error) {
        complain(error);
      }
    };
    offer.value = {
      text: `A fork of ${nameOf(run)} after step ${step}: change the settings, then start it.`,
      choices: { 'Start the fork': begin, Cancel: () => (offer.value = undefined) },
    };
    document.getElementById('settings')!.querySelector<HTMLElement>('input, select')?.focus();
  });

async function branch(store: SavedRuns, run: SavedRun, step: number, byForm = false): Promise<void> {
  const config = byForm ? settings.value!.config() : parseTrainConfig(run.config, { source: 'config.yaml' });
  const forked = await store.fork(await store.read(run.id), step);
  await readAll();
  batch(() => {
    if (!overlaid.value.includes(run.id)) toggleOverlay(run.id);
    offer.value = undefined;
  });
  await start(forked, config);
}

/** What of a run becomes a file. */
export type Saved = 'run' | 'model' | 'gguf' | 'report';

export const save = (run: SavedRun, what: Saved): void =>
  withStore(async (store) => {
    const { runZip, modelZip, modelGguf, reportPage } = await import('../storage/exports.ts');
    const write = { run: runZip, model: modelZip, gguf: modelGguf, report: reportPage }[what];
    const { name, bytes } = await write(store, await store.read(run.id));
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([bytes]));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });

/** Loads a run from its files, and shows it. */
export const load = (files: readonly File[]): void =>
  withStore(async (store) => {
    const { importRun } = await import('../storage/imports.ts');
    const run = await importRun(store, files);
    changes.value++;
    if (active.value) inform(`${nameOf(run)} is among the runs now.`);
    else await showRun(run);
  });

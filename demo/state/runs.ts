/** Saved runs other than the shown one. */

import { computed, effect, signal } from '@preact/signals';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Mark } from '../../src/ui/lineChart.ts';
import { changes, nameOf, savedRuns } from '../storage/saved.ts';
import { runName } from './changeWords.ts';
import type { RunEntry, SavedRun } from '../storage/savedRuns.ts';
import { complain, deleted } from './notices.ts';
import { shownRun } from './page.ts';
import { changes as ruleChanges } from './rules.ts';
import { active } from './stage.ts';
import { olderStep } from './tries/shown.ts';

/** A run whose curves are drawn over those of the shown run. */
export interface OtherRun {
  id: string;
  name: string;
  /** Index of the run's colour and dash. */
  slot: number;
  history: readonly Metrics[];
}

/** Axis of the curves. */
export type Along = 'steps' | 'seconds';

export const along = signal<Along>('steps');

/** Maximum number of runs whose curves can be told apart. */
export const MOST_OVERLAID = 4;

/** All saved runs, newest first. */
export const runs = signal<readonly SavedRun[]>([]);

/** Returns the run to compare a saved run with: the run it was forked from, otherwise the previous one. */
export const comparedWith = (run: SavedRun): SavedRun | undefined =>
  runs.value.find(({ id }) => id === run.record.forkedFrom?.id) ??
  runs.value[runs.value.findIndex(({ id }) => id === run.id) + 1 || Infinity];

const names = computed(() => new Map(runs.value.map((run) => [run.id, runName(run, comparedWith(run))])));

/** Returns the name of a saved run. */
export const titleOf = (run: RunEntry): string => names.value.get(run.id) ?? nameOf(run);

/** Ids of overlaid runs. The index is the slot, which determines colour and dash; undefined = a free slot. */
const slots = signal<readonly (string | undefined)[]>(Array<undefined>(MOST_OVERLAID).fill(undefined));

/** Ids of the overlaid runs, without free slots. */
export const overlaid = computed(() => slots.value.filter((id) => id !== undefined));

/** Runs whose curves are drawn over those of the shown run. */
export const others = computed((): OtherRun[] =>
  slots.value.flatMap((id, slot) => {
    const run = runs.value.find((run) => run.id === id);
    return run && run.id !== shownRun.value ? [{ id: run.id, name: titleOf(run), slot, history: run.history }] : [];
  }),
);

/** The saved run whose curves are shown. */
export const shown = computed(() => runs.value.find(({ id }) => id === shownRun.value));

/** Name of the run whose curves are shown; undefined if the run is not saved. */
export const shownName = computed(() => shown.value && titleOf(shown.value));

/** Marks in the curves: where the shown and the overlaid runs branched off, changes of rules, and the older step that is shown. */
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
    ...(olderStep.value === undefined ? [] : [{ step: olderStep.value, colour: '--text' }]),
  ];
});

/** Reads the saved runs again, and notes for the first paint of the next visit whether there are some. */
export async function readRuns(): Promise<void> {
  const store = await savedRuns();
  if (store) store.onDeleted = (run) => void (deleted.value = [...deleted.value, titleOf(run)]);
  runs.value = (await store?.all()) ?? [];
  // A reload shows the newest run from the top. Browsers read this of the page that is left, often before a script of the new one runs.
  history.scrollRestoration = runs.value.length > 0 ? 'manual' : 'auto';
  try {
    if (runs.value.length > 0) localStorage.setItem('webgrpo-has-runs', '1');
    else localStorage.removeItem('webgrpo-has-runs');
  } catch {
    // A window without storage has no saved runs, so there is nothing to read.
  }
}

/** Reads the saved runs now, whenever a run starts or ends, and whenever this tab has written a checkpoint, or added or deleted a run. */
export function watchRuns(): void {
  effect(() => {
    void changes.value;
    void active.value;
    void readRuns().catch(complain);
  });
}

/** Overlays a run, or removes it. */
export function toggleOverlay(id: string): void {
  const at = slots.value.indexOf(id);
  const place = at >= 0 ? at : slots.value.indexOf(undefined);
  if (place >= 0) slots.value = slots.value.with(place, at >= 0 ? undefined : id);
}

/** A step that was trained again for a replay. */
interface ReplayedStep {
  step: number;
  /** Names of metrics that differ from the logged ones; empty = bit for bit equal. */
  differing: string[];
}

/** A replay: steps that were trained again from a saved state, to compare them with the log. */
export interface Replay {
  /** Step of the state that the replay started from; 0 = the start model. */
  from: number;
  to: number;
  steps: readonly ReplayedStep[];
  /** Step during which a rule failed. Its results depend on timing, so the replay ends before that step. */
  broken?: number | undefined;
  /** True if the run uses custom rules, which can use random numbers. */
  hasRules: boolean;
}

/** The newest replay. */
export const replay = signal<Replay | undefined>(undefined);

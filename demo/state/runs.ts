/** Earlier runs beside the one that is shown. */

import { computed, effect, signal } from '@preact/signals';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Mark } from '../../src/ui/lineChart.ts';
import { changes, nameOf, savedRuns } from '../storage/saved.ts';
import type { SavedRun } from '../storage/savedRuns.ts';
import { complain } from './notices.ts';
import { active, shownRun, shownStep } from './page.ts';
import { changes as ruleChanges } from './rules.ts';

/** A run whose curves are drawn over those of the run that is shown. */
export interface OtherRun {
  id: string;
  name: string;
  /** Which of the colours and dashes is its. */
  slot: number;
  history: readonly Metrics[];
}

/** Curves of so many runs can be told apart. */
export const MOST_OVERLAID = 4;

/** Every saved run, the newest first. */
export const runs = signal<readonly SavedRun[]>([]);

/** Ids of runs that are laid over the one that is shown, by slot; undefined = a free slot. */
const slots = signal<readonly (string | undefined)[]>(Array<undefined>(MOST_OVERLAID).fill(undefined));

/** Ids of the runs that are laid over the shown one. */
export const overlaid = computed(() => slots.value.filter((id) => id !== undefined));

/** Runs whose curves are drawn over those of the shown run. */
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

/** Reads the saved runs again. */
export const readRuns = async () => void (runs.value = (await (await savedRuns())?.all()) ?? []);
effect(() => {
  // Of what is written during a run, its checkpoints alone matter here.
  void changes.value;
  void active.value;
  void readRuns().catch(complain);
});

/** Lays a run over the one that is shown, or takes it away. */
export function toggleOverlay(id: string): void {
  const at = slots.value.indexOf(id);
  const place = at >= 0 ? at : slots.value.indexOf(undefined);
  if (place >= 0) slots.value = slots.value.with(place, at >= 0 ? undefined : id);
}

/** A step that was trained once more. */
interface ReplayedStep {
  step: number;
  /** Numbers of the step that are not those that were logged; none = bit for bit the same. */
  differing: string[];
}

/** Steps that were trained once more, from a kept state. */
export interface Replay {
  /** Step of the state that it began with; 0 = the start model. */
  from: number;
  to: number;
  steps: readonly ReplayedStep[];
  /** Step in the middle of which a rule failed: what it had judged by then depends on the time, so the replay ends before. */
  broken?: number | undefined;
  /** The run goes by rules of its own, which may draw random numbers. */
  hasRules: boolean;
}

/** The one that was asked for last. */
export const replay = signal<Replay | undefined>(undefined);

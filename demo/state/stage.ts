/**
 * Stage of the page, as one value. The buttons, the notices and the form derive from it. `NEXT` lists which stage can follow which;
 * no other file decides that.
 */

import { computed, signal } from '@preact/signals';
import type { SavedRun } from '../storage/savedRuns.ts';
import type { Run } from '../training/run.ts';
import type { SharedResult } from './address/share.ts';
import { adapter } from './notices.ts';

/** A sentence with buttons under it, by label. Without buttons it only informs. */
export interface Offer {
  text: string;
  choices: Record<string, () => void>;
}

/** Progress of the active run. */
type Progress = 'loading' | 'running' | 'pausing' | 'paused' | 'stopping';

/** Stage in which a run or a replay is being loaded or trains. */
interface Running {
  name: 'running';
  progress: Progress;
  /** The active run; undefined until its files are open, and again while its last files are written. */
  run?: Run | undefined;
  /** A question that the run waits for, such as whether foreign code may run. */
  question?: Offer | undefined;
}

/** Stage in which results are on the screen: of a run that ended here, of a saved run, of a link, or of the recorded run. */
export type Looking =
  | { name: 'looking'; at: 'ended' | 'failed' | 'saved' | 'recorded'; offer?: Offer | undefined }
  | { name: 'looking'; at: 'shared'; result: SharedResult };

/** Stage in which the visitor chooses settings for a fork: a new run that continues `of` after `step`. */
interface Forking {
  name: 'forking';
  of: SavedRun;
  step: number;
  /** Starts the fork with the settings of the form. */
  start: () => void;
  /** Returns to the stage `back`, and restores the earlier settings. */
  cancel: () => void;
  /** Stage to return to if the fork is cancelled. */
  back: Looking;
}

/** idle: only the settings of the next run are shown. asking: a link waits for permission to load files from other servers. */
export type Stage = { name: 'idle' } | { name: 'asking'; offer: Offer } | Running | Looking | Forking;

/** Stages that can follow a stage. */
export const NEXT: Readonly<Record<Stage['name'], readonly Stage['name'][]>> = {
  idle: ['asking', 'looking', 'running'],
  asking: ['idle', 'looking', 'running'],
  running: ['looking'],
  looking: ['forking', 'idle', 'looking', 'running'],
  forking: ['looking', 'running'],
};

const IDLE: Stage = { name: 'idle' };

/** The first stage of a visitor with saved runs, until the newest is shown. A script in index.html decides before the first paint. */
export const OPENING: Looking = {
  name: 'looking',
  at: 'saved',
  offer: { text: 'Opening the newest run...', choices: {} },
};

const isOpening = globalThis.document?.body?.dataset['stage'] === 'looking';
const current = signal<Stage>(isOpening ? OPENING : IDLE);

/** The stage. `enter` changes it, and a running stage changes by `progress`. */
export const stage = computed(() => current.value);

/** Enters another stage, and returns it. Throws if `NEXT` forbids that. */
export function enter<S extends Stage>(next: S): S {
  const { name } = current.peek();
  if (!NEXT[name].includes(next.name)) throw new Error(`The page cannot go from ${name} to ${next.name}.`);
  performance.mark(`webgrpo stage: ${name} to ${next.name}`);
  current.value = next;
  return next;
}

/** Returns to the settings, with no results on the screen. */
export const leave = (): void => void enter(IDLE);

/** Changes the running stage. Does nothing if no run is active, because a callback of a run can come after its end. */
export function progress(change: Partial<Omit<Running, 'name'>>): void {
  const now = current.peek();
  if (now.name === 'running') current.value = { ...now, ...change };
}

/** Shows an offer below the results if the page is still at stage `at`. Returns the current stage. */
export function offerAt<L extends Looking>(at: L, offer: Offer | undefined): L {
  if (current.peek() !== at) return at;
  return enter({ ...at, offer });
}

/** True if a run is active or being loaded. */
export const active = computed(() => stage.value.name === 'running');

/** The active run. */
export const run = computed(() => (stage.value.name === 'running' ? stage.value.run : undefined));

/** The result of a link, if it is shown. */
export const shared = computed(() => {
  const now = stage.value;
  return now.name === 'looking' && now.at === 'shared' ? now.result : undefined;
});

/** True if the recorded run is shown. */
export const isRecorded = computed(() => stage.value.name === 'looking' && stage.value.at === 'recorded');

/** The sentence and the buttons below the notices. */
export const offer = computed((): Offer | undefined => {
  const now = stage.value;
  if (now.name === 'running') return now.question;
  return 'offer' in now ? now.offer : undefined;
});

export type State = 'idle' | Progress | 'done' | 'failed' | 'no-gpu';

/** Name of the current stage, for the status line and a screen reader. */
export const state = computed((): State => {
  const now = stage.value.name === 'forking' ? stage.value.back : stage.value;
  if (now.name === 'running') return now.progress;
  if (adapter.value === null) return 'no-gpu';
  if (now.name !== 'looking') return 'idle';
  return now.at === 'ended' ? 'done' : now.at === 'failed' ? 'failed' : 'idle';
});

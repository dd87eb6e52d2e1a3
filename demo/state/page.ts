/** What the page shows, as signals: what trains writes them, views read them, and nothing is redrawn that did not change. */

import { computed, signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Phase } from '../../src/grpo/types.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import type { Session } from '../engine/session.ts';
import type { EvaluationProgress, Run } from '../training/run.ts';

export type State = 'idle' | 'loading' | 'running' | 'pausing' | 'paused' | 'stopping' | 'done' | 'failed' | 'no-gpu';

export const state = signal<State>('idle');

/** True if a run is active or being loaded. */
export const active = computed(() => ['loading', 'running', 'pausing', 'paused', 'stopping'].includes(state.value));

/** Of the run that is shown; undefined = there is none yet. */
export const config = signal<TrainConfig | undefined>(undefined);

/** Metrics of every step that is shown, oldest first; replaced, never changed in place. */
export const history = signal<readonly Metrics[]>([]);

/** Tries of the newest step, 0 = the untrained model's before the run; grow while they are scored. Replaced, never changed in place. */
export const tries = signal<readonly LoggedRollout[]>([]);

/** True if more tries of the step that `tries` shows are to come; they have no advantages yet. */
export const growing = signal(false);

/** What the step in hand is at; undefined = nothing yet. */
export const phase = signal<Phase | undefined>(undefined);

/** Tries of the step in hand that have been scored. */
export const scored = signal(0);

/** Of the evaluation in hand. */
export const evaluation = signal<EvaluationProgress | undefined>(undefined);

/** What comes from another server just now. */
export const download = signal<DownloadProgress | undefined>(undefined);

/** The active run. */
export const run = signal<Run | undefined>(undefined);

/** The engine with its model and task, which outlives a run; undefined = none is open. */
export const session = signal<Session | undefined>(undefined);

/** Step that the session's weights are of; undefined = an update is changing them. */
export const weightsStep = signal<number | undefined>(0);

/** Steps that the shown history has done. */
export const stepsDone = computed(() => history.value.at(-1)?.['training/global_step'] ?? 0);

/** The saved run that is shown; undefined = none, or one that is not saved. */
export const shownRun = signal<string | undefined>(undefined);

/** The step that was gone back to, whose tries are shown; undefined = the newest. */
export const shownStep = signal<number | undefined>(undefined);

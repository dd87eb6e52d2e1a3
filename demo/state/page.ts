/** Results on the screen, as signals. The trainer writes them and views read them, so that only what changed is redrawn. */

import { batch, computed, signal } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Phase } from '../../src/grpo/types.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import type { Session } from '../engine/session.ts';
import type { EvaluationProgress } from '../training/run.ts';

/** Config of the shown run; undefined = no run yet. */
export const config = signal<TrainConfig | undefined>(undefined);

/** Metrics of all shown steps, oldest first. Replaced, never changed in place. */
export const history = signal<readonly Metrics[]>([]);

/**
 * Tries of the newest step; step 0 = the untrained model's before the run. The list grows while tries are scored. Replaced, never changed
 * in place.
 */
export const tries = signal<readonly LoggedRollout[]>([]);

/** True if more tries of the step in `tries` will follow; they have no advantages yet. */
export const growing = signal(false);

/** Current phase of a step; undefined = no step yet. */
export const phase = signal<Phase | undefined>(undefined);

/** Number of scored tries of the current step. */
export const scored = signal(0);

/** Progress of the evaluation that is running. */
export const evaluation = signal<EvaluationProgress | undefined>(undefined);

/** Number of held-out problems of the session's task; undefined = not counted yet. */
export const heldOut = signal<number | undefined>(undefined);

/** Progress of the current download from another server. */
export const download = signal<DownloadProgress | undefined>(undefined);

/** The engine with its model and task, which outlives a run; undefined = none is open. */
export const session = signal<Session | undefined>(undefined);

/** Step of the session's weights; undefined while an update changes them. */
export const weightsStep = signal<number | undefined>(0);

/** Makes another engine the session, or none, with the step of its weights. Closes the engine before. */
export function showSession(opened: Session | undefined, step = 0): void {
  const before = session.peek();
  batch(() => ([session.value, weightsStep.value] = [opened, step]));
  if (before !== opened) before?.close();
}

/** Drops an engine that was closed, unless another one is the session. */
export function dropSession(closed: Session): void {
  if (session.peek() === closed) showSession(undefined);
}

/** Shows the phase of a step, which decides the step of the session's weights. */
export function showPhase(now: Phase, step: number): void {
  batch(() => {
    [phase.value, evaluation.value] = [now, undefined];
    weightsStep.value = now === 'update' ? undefined : ['sync', 'validate'].includes(now) ? step : step - 1;
    if (now === 'generate') scored.value = 0;
  });
}

/** Number of steps in the shown history. */
export const stepsDone = computed(() => history.value.at(-1)?.['training/global_step'] ?? 0);

/** Name of the GPU that trained the shown steps; undefined = unknown, as for a run that was imported. */
export const trainedOn = signal<string | undefined>(undefined);

/** Id of the saved run that is shown; undefined = no run is shown, or it is not saved. */
export const shownRun = signal<string | undefined>(undefined);

/** The older step whose tries are shown; undefined = the newest. */
export const shownStep = signal<number | undefined>(undefined);

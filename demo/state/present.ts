/** Replaces the results on the screen. */

import { batch } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import type { RunChange } from '../storage/runChanges.ts';
import { config, evaluation, history, phase, scored, shownRun, trainedOn } from './page.ts';
import { bet } from './bet.ts';
import { showChanges } from './rules.ts';
import { active } from './stage.ts';
import { replay } from './runs.ts';
import { restartTries, showTries } from './tries/growing.ts';
import { looked, showNewest } from './tries/shown.ts';
import { forgetTries } from './tries/stepTries.ts';

/** Results of a run. */
interface Results {
  /** Id of the saved run; undefined = not saved. */
  id?: string | undefined;
  config?: TrainConfig | undefined;
  /** Name of the GPU that trained the steps; undefined = unknown. */
  adapter?: string | undefined;
  history?: readonly Metrics[] | undefined;
  /** Tries of the newest step. */
  tries?: readonly LoggedRollout[] | undefined;
  changes?: readonly RunChange[] | undefined;
}

/** Shows the results of a run, or none. Whatever belonged to the run before is dropped: its replay, held tries and changes. */
export function present({
  id,
  config: of,
  adapter,
  history: lines = [],
  tries = [],
  changes = [],
}: Results = {}): void {
  batch(() => {
    forgetTries();
    trainedOn.value = adapter;
    [shownRun.value, replay.value, looked.value] = [id, undefined, undefined];
    if (!active.peek()) bet.value = undefined;
    showHistory(lines, of);
    showTries(tries);
    showChanges(changes);
    showNewest();
  });
}

/** Replaces the history of the shown run, which continues from there. */
export function showHistory(lines: readonly Metrics[], of: TrainConfig | undefined): void {
  batch(() => {
    [history.value, config.value, phase.value] = [lines, of, undefined];
    [scored.value, evaluation.value] = [0, undefined];
    restartTries();
  });
}

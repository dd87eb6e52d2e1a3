/** Shows tries as they are scored, problem by problem, at most once per frame. */

import { batch } from '@preact/signals';
import type { Sample } from '../../../src/grpo/update/batch.ts';
import { type LoggedRollout, loggedRollouts } from '../../../src/runs/rollouts.ts';
import { growing, tries } from '../page.ts';

let shown: LoggedRollout[] = [];
let waiting: LoggedRollout[] = [];
let frame = 0;

/** Adds a try of the current step; step 0 = the untrained model, before the run. The first try of a step replaces all earlier ones. */
export function showTry(sample: Sample, step: number): void {
  waiting.push(...loggedRollouts([sample], step, 1));
  frame ||= requestAnimationFrame(flush);
}

function flush(): void {
  cancelAnimationFrame(frame);
  frame = 0;
  const step = waiting[0].step;
  const before = shown === tries.value && shown[0]?.step === step ? shown : [];
  shown = [...before, ...waiting].sort((a, b) => a.group - b.group);
  waiting = [];
  batch(() => ([tries.value, growing.value] = [shown, true]));
}

/** Called when no more tries will follow. The existing ones stay unchanged. */
export function endTries(): void {
  if (frame) flush();
  growing.value = false;
}

/** The next try replaces all earlier ones, because its step begins again. */
export function restartTries(): void {
  cancelAnimationFrame(frame);
  [frame, waiting, shown] = [0, [], []];
}

/** Replaces the growing list of tries: by all tries of a step, with their advantages, or by none. */
export function showTries(complete: readonly LoggedRollout[]): void {
  restartTries();
  batch(() => ([tries.value, growing.value] = [complete, false]));
}

/** Shows tries as they are scored, a frame's at a time, problem by problem. */

import type { Sample } from '../../../src/grpo/update/batch.ts';
import { type LoggedRollout, loggedRollouts } from '../../../src/runs/rollouts.ts';
import { growing, tries } from '../page.ts';

let shown: LoggedRollout[] = [];
let waiting: LoggedRollout[] = [];
let frame = 0;

/** A try of the step in hand; 0 = of the untrained model, before the run. The first of a step takes the place of all that were there. */
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
  [tries.value, growing.value] = [shown, true];
}

/** No more are to come, and those that are there stay as they are. */
export function endTries(): void {
  if (frame) flush();
  growing.value = false;
}

/** Other tries in place of those that grew: all of a step, with their advantages, or none. */
export function showTries(complete: readonly LoggedRollout[]): void {
  cancelAnimationFrame(frame);
  [frame, waiting, shown] = [0, [], []];
  [tries.value, growing.value] = [complete, false];
}

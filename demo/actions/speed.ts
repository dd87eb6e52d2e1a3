/** How fast this adapter is, by the steps of a run. */

import { effect } from '@preact/signals';
import { factorOf, keepSpeed } from '../state/estimate.ts';
import { active, config, history } from '../state/page.ts';

/** The first steps compile kernels. */
const FROM_STEP = 2;

export function watchSpeed(): void {
  effect(() => {
    const [of, last] = [config.value, history.value.at(-1)];
    if (!active.value || !of || !last || last['training/global_step'] < FROM_STEP) return;
    const factor = factorOf(of, last);
    if (factor !== undefined) keepSpeed(factor);
  });
}

/** The loss of the newest step, as a sentence. */

import { explainLoss } from '../../../src/report/explainLoss.ts';
import { config, history } from '../../state/page.ts';

/** Explains the newest loss. */
export function Loss() {
  const metrics = history.value.at(-1);
  const said = metrics && explainLoss(metrics, config.value?.rollout.n);
  return (
    <>
      <h2>What a step learns from</h2>
      <p id="loss" class={said ? '' : 'empty'}>
        {said ?? 'Shown after the first step.'}
      </p>
    </>
  );
}

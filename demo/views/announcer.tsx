/** Announces a run to screen readers: its state, and its progress ten times per run. Not every try or step. */

import { useComputed } from '@preact/signals';
import { passAt1 } from '../../src/report/metricOf.ts';
import { short } from '../../src/ui/format.ts';
import { config, history } from '../state/page.ts';
import { state, type State } from '../state/stage.ts';

const STATES: Record<State, string> = {
  idle: '',
  loading: 'Loading the model.',
  running: 'Training.',
  pausing: 'Pauses after this step.',
  paused: 'Paused.',
  stopping: 'Stopping.',
  done: 'The run has ended.',
  failed: 'The run failed.',
  'no-gpu': 'No GPU.',
};

/** A live region for screen readers. */
export function Announcer() {
  const progress = useComputed(milestone);
  return (
    <p class="heard" role="status">
      {`${STATES[state.value]} ${progress.value}`.trim()}
    </p>
  );
}

/** Returns the newest completed tenth of the run. */
function milestone(): string {
  const total = config.value?.trainer.totalTrainingSteps ?? 0;
  const every = Math.max(1, Math.round(total / 10));
  const line = history.value.findLast((metrics) => {
    const step = metrics['training/global_step'];
    return step > 0 && step % every === 0;
  });
  if (!line) return '';
  const solved = passAt1(line);
  const reward = line['critic/score/mean'];
  return (
    `Step ${line['training/global_step']} of ${total}` +
    `${reward === undefined ? '' : `, mean reward ${short(reward)}`}${solved === undefined ? '' : `, pass@1 ${short(solved)}`}.`
  );
}

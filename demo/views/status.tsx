/** Status of a run: step, phase, speed, time left. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Phase } from '../../src/grpo/types.ts';
import { clock, short } from '../../src/ui/format.ts';
import { config, evaluation, history, phase, scored, stepsDone } from '../state/page.ts';
import { shareDone, timeLeft, triesOfStep } from '../state/progress.ts';
import { player } from '../recorded/recorded.ts';
import { state, type State } from '../state/stage.ts';

const PHASES: Record<Phase, string> = {
  generate: 'Generating',
  tools: 'Running tools',
  reward: 'Scoring',
  'log-probs': 'Log-probs',
  update: 'Updating the model',
  sync: 'Syncing',
  validate: 'Evaluating',
};

const STATES: Partial<Record<State, string>> = {
  idle: 'Ready',
  loading: 'Loading the model',
  paused: 'Paused',
  done: 'Done',
  failed: 'Failed',
  'no-gpu': 'No GPU',
};

/** Shows the status of the run in a line, and its progress. */
export function Status() {
  const [lines, total] = [history.value, config.value?.trainer.totalTrainingSteps ?? 0];
  const speed = lines.at(-1)?.['perf/throughput'];
  const left = timeLeft.value === undefined ? '\u2013' : clock(timeLeft.value);
  const tiles = {
    step: ['Step', total > 0 ? `${stepsDone.value} of ${total}` : '\u2013'],
    now: ['Status', doing()],
    speed: ['Tokens per second', speed === undefined ? '\u2013' : short(speed)],
    left: ['Time left', left],
  };
  return (
    <>
      <dl class="status">
        {Object.entries(tiles).map(([name, [label, value]]) => (
          <div class={`tile-${name}`} key={name} hidden={value === '\u2013'}>
            <dt>{label}</dt>
            <dd id={`status-${name}`}>{value}</dd>
          </div>
        ))}
      </dl>
      <progress id="progress" max={1} value={shareDone.value} aria-label="Training progress" />
    </>
  );
}

function doing(): string {
  if (player.value) return 'Recorded run';
  const fixed = STATES[state.value];
  if (fixed !== undefined) return fixed;
  if (!config.value || !phase.value) return 'Starting';
  const after = { pausing: ', then pauses', stopping: ', then stops' }[state.value as string];
  const whose = phase.value === 'validate' && !after && evaluation.value?.step === 0 ? ' the untrained model' : '';
  return `${PHASES[phase.value]}${whose}${counted(phase.value, config.value)}${after ?? ''}`;
}

/** Returns how much of the current phase is done, as text; '' if the phase's progress is not counted. */
function counted(now: Phase, of: TrainConfig): string {
  if (now === 'generate' && scored.value > 0) return ` ${scored.value} of ${triesOfStep(of)}`;
  if (now !== 'validate' || !evaluation.value) return '';
  return `, ${evaluation.value.done} of ${evaluation.value.total}`;
}

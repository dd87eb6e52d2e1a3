/** Shows how the time was spent: one bar over all steps so far, divided by phase. */

import { useSignal } from '@preact/signals';
import { copied } from '../../actions/clipboard.ts';
import { describe } from '../../../src/errors.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { ModelConfig } from '../../../src/model/config.ts';
import { duration } from '../../../src/ui/format.ts';
import type { Limits } from '../../engine/limits.ts';
import { sumOf } from '../../state/measured.ts';
import { machineInWords } from '../../state/machine.ts';
import { noteMissing } from '../../state/missingParts.ts';
import { config, history, session, trainedOn } from '../../state/page.ts';
import { active, shared, state } from '../../state/stage.ts';
import { Term } from '../term.tsx';
import './timeBar.css';

/** Phases in order. Tools and rewards run during `generate`. */
const PHASES = [
  { name: 'generate', keys: ['timing_s/gen'] },
  { name: 'log-probs', keys: ['timing_s/old_log_prob', 'timing_s/ref'] },
  { name: 'update', keys: ['timing_s/update_actor'] },
  { name: 'sync', keys: ['timing_s/sync'] },
  { name: 'evaluate', keys: ['timing_s/testing'] },
] as const;

/** Draws the bar of phases. */
export function TimeBar() {
  const lines = history.value;
  return (
    <>
      <h2>Where the time goes</h2>
      {lines.length > 0 ? <Bar lines={lines} /> : <p class="empty">Shown after the first step.</p>}
    </>
  );
}

function Bar({ lines }: { lines: readonly Metrics[] }) {
  const parts = partsOf(lines);
  const total = parts.reduce((sum, { seconds }) => sum + seconds, 0);
  const shown = parts.filter(({ seconds }) => seconds / total >= 0.001);
  return (
    <>
      <div class="bar">
        {shown.map(({ name, seconds }) => (
          <span
            key={name}
            class={`piece phase-${name}`}
            style={{ flexGrow: seconds / total }}
            title={`${name}: ${duration(seconds)}`}
          >
            {seconds / total > 0.12 && name}
          </span>
        ))}
      </div>
      <ul class="legend">
        {shown.map(({ name, seconds }) => (
          <li key={name}>
            <i class={`key phase-${name}`} />
            <Term word={name} />
            <b>{duration(seconds)}</b>
            {`${((100 * seconds) / total).toFixed(0)}%`}
          </li>
        ))}
      </ul>
      <p class="note">
        {`Within generate: tools ${duration(sumOf(lines, 'timing_s/tools'))}, ` +
          `rewards ${duration(sumOf(lines, 'timing_s/reward'))}.`}
      </p>
      <Machine />
    </>
  );
}

/**
 * Shows the speed of this machine as a sentence, with a button that copies it, and one that measures the limits of the GPU. Not shown for
 * results of other machines.
 */
function Machine() {
  const note = useSignal('');
  const measured = useSignal<{ of: TrainConfig; limits: Limits } | undefined>(undefined);
  const isMeasuring = useSignal(false);
  const of = config.value;
  const on = trainedOn.value;
  if (!of || on === undefined || shared.value) return null;
  // The session can be that of the form's recipe, or of another run.
  const isOf = JSON.stringify(session.value?.config.model) === JSON.stringify(of.model);
  const model = isOf ? session.value?.model.config : undefined;
  const limits = measured.value?.of === of ? measured.value.limits : undefined;
  const text = machineInWords({
    config: of,
    history: history.value,
    model,
    adapter: on,
    limits,
  });
  if (text === undefined) return null;
  const copy = async () => {
    const isCopied = await copied((clipboard) => clipboard.writeText(text));
    note.value = isCopied ? 'Copied.' : 'This browser blocks copying. Select the text.';
  };
  const measure = async (model: ModelConfig) => {
    if (isMeasuring.value) return;
    [isMeasuring.value, note.value] = [true, 'Measuring the GPU...'];
    try {
      const { measureLimits } = await import('../../engine/limits.ts');
      measured.value = { of, limits: await measureLimits(of, model) };
      note.value = 'Measured.';
    } catch (error) {
      note.value = noteMissing(error) ? '' : `Not measured: ${describe(error)}`;
    } finally {
      isMeasuring.value = false;
    }
  };
  return (
    <div class="machine">
      <h3>This machine</h3>
      <p>{text}.</p>
      <div class="machine-buttons">
        {model && !limits && (!active.value || state.value === 'paused') && (
          <button type="button" aria-disabled={isMeasuring.value} onClick={() => void measure(model)}>
            Predict from this GPU's limits
          </button>
        )}
        <button type="button" onClick={() => void copy()}>
          Copy measurement
        </button>
        <span class="note" role="status">
          {note.value}
        </span>
      </div>
    </div>
  );
}

function partsOf(lines: readonly Metrics[]): { name: (typeof PHASES)[number]['name'] | 'rest'; seconds: number }[] {
  const known = PHASES.map(({ name, keys }) => ({
    name,
    seconds: keys.reduce((total, key) => total + sumOf(lines, key), 0),
  }));
  const inSteps = known.reduce((total, { name, seconds }) => total + (name === 'evaluate' ? 0 : seconds), 0);
  return [...known, { name: 'rest', seconds: Math.max(0, sumOf(lines, 'timing_s/step') - inSteps) }];
}

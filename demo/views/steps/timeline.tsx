/** Selects any step of the shown run: its tries, and actions that start from it. */

import { replayTo, stateBefore } from '../../actions/replay.ts';
import { fork, goOnFrom, goTo } from '../../actions/runs.ts';
import { type Replay, replay, shown } from '../../state/runs.ts';
import { history } from '../../state/page.ts';
import './timeline.css';
import { active } from '../../state/stage.ts';
import { olderStep } from '../../state/tries/shown.ts';

/** The slider over the steps of a run. */
export function Timeline() {
  const steps = history.value.map((line) => line['training/global_step']).filter((step) => step > 0);
  const last = steps.at(-1);
  if (last === undefined) return null;
  const [first, step] = [steps[0], Math.max(steps[0], olderStep.value ?? last)];
  const kept = shown.value?.checkpoints ?? [];
  const place = (at: number) => ({ '--at': last === first ? 1 : (at - first) / (last - first) });
  return (
    <div class="timeline">
      <label for="timeline-step">
        Step <b>{step}</b> of {last}
        <span class="note">{step === last ? ' (the newest)' : ''}</span>
      </label>
      <div class="timeline-track">
        <input
          id="timeline-step"
          type="range"
          min={first}
          max={last}
          step={1}
          value={step}
          disabled={first === last}
          aria-valuetext={`Step ${step} of ${last}${kept.includes(step) ? ', checkpoint saved' : ''}`}
          onInput={({ currentTarget }) => void goTo(Number(currentTarget.value))}
        />
        <div class="timeline-marks" aria-hidden="true">
          {kept.map((at) => (
            <i key={at} style={place(at)} />
          ))}
        </div>
      </div>
      {shown.value && <Actions step={step} />}
      {replay.value && <Replayed {...replay.value} />}
    </div>
  );
}

function Actions({ step }: { step: number }) {
  const run = shown.value!;
  const kept = run.checkpoints.findLast((at) => at <= step);
  const busy = active.value ? 'Stops and saves the current run first. ' : '';
  const from = stateBefore(run, step);
  return (
    <div class="timeline-actions">
      <button
        type="button"
        title={`${busy}Trains ${from === 0 ? 'from the start' : `from step ${from}`} to step ${step} again and compares each step with the log`}
        onClick={() => void replayTo(run, step)}
      >
        Replay step {step}
      </button>
      <button
        type="button"
        disabled={kept === undefined}
        title={`${busy}A new run with the same settings. This run is not changed.`}
        onClick={() => goOnFrom(run, kept!)}
      >
        Continue from {kept === undefined ? 'here' : `step ${kept}`}
      </button>
      <button
        type="button"
        disabled={kept === undefined}
        title={`${busy}A new run with other settings. This run is not changed.`}
        onClick={() => fork(run, kept!)}
      >
        Fork at {kept === undefined ? 'a saved step' : `step ${kept}`}
      </button>
      <p class="note">
        {kept === undefined
          ? 'No checkpoint before this step: a replay starts from the beginning.'
          : `Marks: steps with a saved checkpoint.${busy && ` ${busy}`}`}
      </p>
    </div>
  );
}

function Replayed({ from, to, steps, broken, hasRules }: Replay) {
  const same = steps.filter(({ differing }) => differing.length === 0).length;
  const wrong = steps.find(({ differing }) => differing.length > 0);
  const begin = from === 0 ? 'the start' : `step ${from}`;
  if (wrong)
    return (
      <p class="replayed wrong" role="status">
        {`Step ${wrong.step} differs from the log in ${wrong.differing.slice(0, 3).join(', ')}. ${hasRules ? 'Rules that use random numbers or the clock do not repeat. ' : ''}Other GPUs and browsers round differently.`}
      </p>
    );
  return (
    <p class="replayed" role="status">
      {steps.length < to - from
        ? `Replay from ${begin}: ${same} of ${to - from} steps done, bit for bit as logged so far.`
        : to > from && `Replay from ${begin} to step ${to}: ${same} of ${to - from} steps bit for bit as logged.`}
      {broken !== undefined &&
        ` A rule failed during step ${broken}. How many tries it had scored depends on timing, so steps from there to the next checkpoint cannot be replayed.`}
    </p>
  );
}

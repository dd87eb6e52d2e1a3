/** Selects any step of the shown run: its tries, and actions that start from it. */

import { replayTo, stateBefore } from '../../actions/replay.ts';
import { fork, goOnFrom, goTo } from '../../actions/runs.ts';
import { type Replay, replay, shown } from '../../state/runs.ts';
import { active, history, shownStep } from '../../state/page.ts';
import './timeline.css';

/** The slider over the steps of a run. */
export function Timeline() {
  const steps = history.value.map((line) => line['training/global_step']).filter((step) => step > 0);
  const last = steps.at(-1);
  if (last === undefined) return null;
  const [first, step] = [steps[0], shownStep.value ?? last];
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
          aria-valuetext={`Step ${step} of ${last}${kept.includes(step) ? ', state kept' : ''}`}
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
  const busy = active.value ? 'Stops the run first, which stays saved. ' : '';
  const from = stateBefore(run, step);
  return (
    <div class="timeline-actions">
      <button
        type="button"
        title={`${busy}Trains ${from === 0 ? 'from the start' : `from step ${from}`} to step ${step} again, and compares each step with the log`}
        onClick={() => void replayTo(run, step)}
      >
        Replay step {step}
      </button>
      <button
        type="button"
        disabled={kept === undefined}
        title={`${busy}A new run with the same settings; this one stays as it is`}
        onClick={() => goOnFrom(run, kept!)}
      >
        Go on from {kept === undefined ? 'here' : `step ${kept}`}
      </button>
      <button
        type="button"
        disabled={kept === undefined}
        title={`${busy}A new run with other settings; this one stays as it is`}
        onClick={() => fork(run, kept!)}
      >
        Fork at {kept === undefined ? 'a kept step' : `step ${kept}`}
      </button>
      <p class="note">
        {kept === undefined
          ? 'No state up to this step is kept, so a replay begins at the start.'
          : `Marks under the slider: steps whose state is kept.${busy && ` ${busy}`}`}
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
        {`Step ${wrong.step} came out otherwise: ${wrong.differing.slice(0, 3).join(', ')}. ${hasRules ? 'A rule that draws random numbers or looks at the clock does not repeat; another' : 'Another'} GPU or browser rounds otherwise.`}
      </p>
    );
  return (
    <p class="replayed" role="status">
      {steps.length < to - from
        ? `Replay from ${begin}: ${same} of ${to - from} steps done, bit for bit as logged so far.`
        : to > from && `Replay from ${begin} to step ${to}: ${same} of ${to - from} steps bit for bit as logged.`}
      {broken !== undefined &&
        ` A rule failed in the middle of step ${broken}; which tries it had judged by then depends on the time, so that step and those after it, up to the next kept state, cannot be repeated.`}
    </p>
  );
}

/** A slider over all steps of the shown run, with marks. The menu at its thumb has actions that start from the selected step. */

import { useRef } from 'preact/hooks';
import type { Metrics } from '../../../src/grpo/metrics.ts';
import { passAt1 } from '../../../src/report/metricOf.ts';
import { saveMetrics } from '../../actions/controller.ts';
import { replayTo, stateBefore } from '../../actions/replay.ts';
import { fork, goOnFrom, goTo } from '../../actions/runs.ts';
import { history } from '../../state/page.ts';
import { quickOf } from '../../state/measured.ts';
import { changes } from '../../state/rules.ts';
import { along, type Replay, replay, shown } from '../../state/runs.ts';
import { active, isRecorded, stage } from '../../state/stage.ts';
import { olderStep } from '../../state/tries/shown.ts';
import type { SavedRun } from '../../storage/savedRuns.ts';
import './timeline.css';

/** Names of the kinds of mark, in the legend. */
const MARKS = { checkpoint: 'checkpoint', change: 'rule change', evaluation: 'evaluation' } as const;
const KINDS = Object.keys(MARKS) as (keyof typeof MARKS)[];

/** The timeline of a run's steps. */
export function Timeline() {
  const steps = history.value.map((line) => line['training/global_step']).filter((step) => step > 0);
  // Not shown with the recorded run, which has its own slider. Before the first step of a run, an empty timeline reserves the space.
  if (['idle', 'asking'].includes(stage.value.name) || isRecorded.value) return null;
  const [first = 0, last = 0] = [steps[0], steps.at(-1)];
  const step = Math.max(first, olderStep.value ?? last);
  const place = (at: number) => (last === first ? 1 : (at - first) / (last - first));
  const run = shown.value;
  const within = (all: readonly number[]) => [...new Set(all)].filter((at) => at >= first && at <= last);
  const isEvaluated = (line: Metrics) => (passAt1(line) ?? quickOf(line)) !== undefined;
  const marks: Record<keyof typeof MARKS, readonly number[]> = {
    checkpoint: within(run?.checkpoints ?? []),
    change: within(changes.value.map((change) => change.step)),
    evaluation: within(history.value.filter(isEvaluated).map((line) => line['training/global_step'])),
  };
  const here = KINDS.filter((kind) => marks[kind].includes(step)).map((kind) => MARKS[kind]);
  return (
    <div class="timeline">
      <div class="at-thumb" style={{ '--at': place(step) }}>
        {run && last > 0 ? (
          <Menu run={run} step={step} last={last} isRight={place(step) > 0.5} />
        ) : (
          <b>{last > 0 ? `Step ${step} of ${last}` : 'No step yet'}</b>
        )}
      </div>
      <div class="timeline-track">
        <input
          type="range"
          min={first}
          max={last}
          step={1}
          value={step}
          disabled={first === last}
          aria-label="Step"
          aria-valuetext={[`Step ${step} of ${last}`, ...here].join(', ')}
          onInput={({ currentTarget }) => void goTo(Number(currentTarget.value))}
        />
        <div class="timeline-marks" aria-hidden="true">
          {KINDS.flatMap((kind) =>
            marks[kind].map((at) => <i key={`${kind} ${at}`} class={kind} style={{ '--at': place(at) }} />),
          )}
        </div>
      </div>
      <div class="timeline-foot">
        <ul class="timeline-key">
          {KINDS.filter((kind) => marks[kind].length > 0).map((kind) => (
            <li key={kind}>
              <i class={kind} />
              {MARKS[kind]}
            </li>
          ))}
        </ul>
        <div class="along" role="group" aria-label="Axis of the curves">
          {(['steps', 'seconds'] as const).map((unit) => (
            <button key={unit} type="button" aria-pressed={along.value === unit} onClick={() => (along.value = unit)}>
              {unit}
            </button>
          ))}
        </div>
        <button type="button" title="metrics.jsonl, in the command line's format" onClick={saveMetrics}>
          Download metrics
        </button>
      </div>
      {replay.value && <Replayed {...replay.value} />}
    </div>
  );
}

/** Actions that start from the selected step. */
function Menu({ run, step, last, isRight }: { run: SavedRun; step: number; last: number; isRight: boolean }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const kept = run.checkpoints.findLast((at) => at <= step);
  const close = () => menu.current?.removeAttribute('open');
  const replayed = `Trains steps ${stateBefore(run, step) + 1} to ${step} again and compares each with the log.`;
  const items = [
    { label: 'Replay to here', note: replayed, act: () => void replayTo(run, step) },
    { label: 'Resume from', note: 'A new run with the same settings.', act: () => goOnFrom(run, kept!) },
    { label: 'Fork from', note: 'A new run with other settings.', act: () => fork(run, kept!) },
  ];
  return (
    <details
      class={isRight ? 'step-menu right' : 'step-menu'}
      ref={menu}
      onKeyDown={({ key, currentTarget }) => {
        if (key !== 'Escape') return;
        close();
        currentTarget.querySelector('summary')!.focus();
      }}
      onFocusOut={({ currentTarget, relatedTarget }) => {
        if (relatedTarget && !currentTarget.contains(relatedTarget as Node)) close();
      }}
    >
      <summary>{`Step ${step} of ${last}`}</summary>
      <div>
        {items.map(({ label, note, act }, i) => (
          <button
            key={label}
            type="button"
            disabled={i > 0 && kept === undefined}
            onClick={() => {
              close();
              act();
            }}
          >
            {i === 0 ? label : `${label} ${kept ?? 'a checkpoint'}`}
            <small>{i > 0 && kept === undefined ? 'No checkpoint before this step.' : note}</small>
          </button>
        ))}
        {active.value && <p class="note">Each stops and saves the current run first.</p>}
      </div>
    </details>
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

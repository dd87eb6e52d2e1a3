/** The diagnosis of a run: cause, evidence and next check, a point for each. */

import { useState } from 'preact/hooks';
import { namesOf, useOwnId } from '../kit/figure.tsx';
import { predicted } from '../kit/predict.tsx';
import { keep, progress } from '../kit/progress.ts';
import {
  CAUSE_IDS,
  type CauseId,
  CAUSES,
  type Evidence,
  judge,
  type Judged,
  NEXT,
  type Next,
  TRUTHS,
} from './causes.ts';
import { CHARTS, type Run } from './runs.ts';

const PARTS = { cause: 'Cause', evidence: 'Evidence', next: 'Next check' };

interface DiagnosisProps {
  run: Run;
  /** Run 0, a run without a fault. */
  sound: Run;
  /** Evidence that the reader has chosen; undefined = none yet. */
  pointed: Evidence | undefined;
}

/** Asks for the diagnosis of a run, and judges the answer. */
export function Diagnosis({ run, sound, pointed }: DiagnosisProps) {
  const id = `7.${run.number}`;
  const [cause, setCause] = useState((predicted(id) || undefined) as CauseId | undefined);
  const [next, setNext] = useState<Next | undefined>(undefined);
  const [judged, setJudged] = useState<Judged[] | string>([]);
  const [mistakes, setMistakes] = useState(0);
  const [isShown, show] = useState(false);
  const truth = TRUTHS[run.number];
  const isSolved = progress.value.solved[id] === true;
  const submit = (event: Event) => {
    event.preventDefault();
    if (!cause || !pointed || !next)
      return setJudged(
        `Choose ${[!cause && 'a cause', !pointed && 'a chart or the tries to point at', !next && 'a next check'].filter(Boolean).join(', ')}.`,
      );
    const points = judge(run, sound, { cause, evidence: pointed, next });
    setJudged(points);
    if (points.every(({ ok }) => ok)) keep('solved', id, true);
    else setMistakes(mistakes + 1);
  };
  const at = pointed === undefined ? 'nothing yet' : pointed === 'tries' ? 'the tries' : CHARTS[pointed].name;
  return (
    <form class="diagnosis" onSubmit={submit} aria-label={`Diagnosis of run ${run.number}`}>
      <h4>Your diagnosis of run {run.number}</h4>
      <div class="controls">
        <Choice
          label="Cause"
          options={CAUSE_IDS.map((value) => ({ value, name: CAUSES[value].name }))}
          value={cause}
          onChange={(value) => setCause(value as CauseId)}
        />
        <Choice label="Next check" options={namesOf(NEXT)} value={next} onChange={(value) => setNext(value as Next)} />
      </div>
      <p>
        You point at: <b>{at}</b>
      </p>
      <button type="submit" class="primary">
        Check
      </button>
      <div role="status">
        {typeof judged === 'string' ? (
          <p class="result wrong">{judged}</p>
        ) : (
          judged.length > 0 && (
            <>
              <p>{judged.filter(({ ok }) => ok).length} of 3 points.</p>
              <ul class="points">
                {judged.map(({ part, ok, says }) => (
                  <li key={part} class={`result ${ok ? 'right' : 'wrong'}`}>
                    <b>{PARTS[part]}:</b> {says}
                  </li>
                ))}
              </ul>
            </>
          )
        )}
      </div>
      {mistakes >= 2 && !isSolved && !isShown && (
        <button type="button" onClick={() => show(true)}>
          Show the answer
        </button>
      )}
      {(isSolved || isShown) && (
        <div class="truth">
          <p>
            <b>
              Run {run.number}: {CAUSES[truth.cause].name}.
            </b>{' '}
            {truth.why}
          </p>
          <p class="note">
            Others had it:{' '}
            {truth.reports.map(({ name, url }, i) => (
              <>
                {i > 0 && ', '}
                <a href={url}>{name}</a>
              </>
            ))}
            . Next check: {NEXT[truth.next].name}.
          </p>
        </div>
      )}
    </form>
  );
}

interface ChoiceProps {
  label: string;
  options: readonly { value: string; name: string }[];
  value: string | undefined;
  onChange: (value: string) => void;
}

function Choice({ label, options, value, onChange }: ChoiceProps) {
  const id = useOwnId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value ?? ''} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="" disabled>
          choose
        </option>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.name}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Figure 7.1: a recorded run with its charts and tries, and the diagnosis of it. */

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { metricHint } from '../../../src/report/metricDocs.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { asTries } from '../../views/glossary.ts';
import { Explained } from '../../views/term.tsx';
import { Conversation } from '../../views/tries/conversation.tsx';
import { isHidden, move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, Slider, useOwnId } from '../kit/figure.tsx';
import { runPlot } from '../kit/plot.ts';
import { isPredicted, Predict } from '../kit/predict.tsx';
import { progress } from '../kit/progress.ts';
import { CAUSE_IDS, CAUSES, type Evidence, runsOf } from './causes.ts';
import { Diagnosis } from './diagnosis.tsx';
import { type Chart, CHART_NAMES, CHARTS, RECORDED, type Run, STEPS, stepsOf, type StoredTries } from './runs.ts';

/** All recorded runs with their tries, once loaded. */
const runs = signal<Run[] | undefined>(undefined);

/** Number of the run that the figure shows. */
export const shownRun = (): number => Math.round(numberOf('run', 0, 0, RECORDED.runs.length - 1));

/** Returns the id of the prediction about a run. */
export const idOf = (run: number): string => `7.${run}`;

/** Figure 7.1. */
export function RunFigure() {
  useEffect(() => {
    void import('./tries.json').then(
      (module) => (runs.value = runsOf(module.default as unknown as StoredTries)),
      () => {}, // without the file the charts stay
    );
  }, []);
  const number = shownRun();
  const steps = stepsOf(RECORDED.runs[number]);
  const step = Math.round(numberOf('step', steps, 1, steps));
  const isOpen = isPredicted(idOf(number));
  const pointed = movedTo('at') as Evidence | undefined;
  const run = runs.value?.[number];
  const { curves } = RECORDED.runs[number];
  const at = (chart: Chart) => {
    const value = curves[chart][step];
    return `${CHARTS[chart].name} ${value === null ? 'not measured' : short(value)}`;
  };
  const shown = CHART_NAMES.filter((name) => isOpen || CHARTS[name].page === 1);
  const behind = Math.round(numberOf('behind', -1, -1, RECORDED.runs.length - 1));
  return (
    <Figure
      number="7.1"
      title={`Run ${number}`}
      says={`Step ${step} of run ${number}: ${shown.slice(0, 6).map(at).join(', ')}.`}
      source={`Recorded: ${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}, ${RECORDED.date}. The tries are those of the first two problems of each step.`}
    >
      <RunPicker number={number} />
      <div class="controls">
        <Slider control="step" label="Step" value={step} least={1} most={steps} step={1} shown={`${step}`} />
        {!isHidden('behind') && <Behind number={number} />}
      </div>
      <div class="charts">
        {shown.map((chart) => (
          <OneChart key={chart} chart={chart} number={number} step={step} behind={behind} isOpen={isOpen} />
        ))}
      </div>
      {run && <Tries tries={run.tries[step - 1]} step={step} isOpen={isOpen} />}
      <Predict
        key={number}
        id={idOf(number)}
        question={`What is wrong with run ${number}? Eight more charts open afterwards.`}
        options={CAUSE_IDS.map((id) => ({
          value: id,
          name: CAUSES[id].name,
          means: `You said: ${CAUSES[id].name}. Eight more charts are open now. See whether they agree.`,
        }))}
        onLocked={() => {}}
      />
      {isOpen && run && <Diagnosis key={`diagnosis ${number}`} run={run} sound={runs.value![0]} pointed={pointed} />}
    </Figure>
  );
}

function RunPicker({ number }: { number: number }) {
  return (
    <div class="buttons" role="group" aria-label="Run">
      {RECORDED.runs.map((_, run) => (
        <button
          key={run}
          type="button"
          aria-pressed={run === number}
          onClick={() => move({ run, at: undefined, behind: undefined })}
        >
          Run {run}
          {progress.value.solved[idOf(run)] === true && <span class="solved"> solved</span>}
        </button>
      ))}
    </div>
  );
}

function Behind({ number }: { number: number }) {
  const id = useOwnId();
  return (
    <div class="field">
      <label for={id}>Another run behind it, pale</label>
      <select
        id={id}
        value={movedTo('behind') ?? ''}
        onChange={(event) => move({ behind: event.currentTarget.value || undefined })}
      >
        <option value="">none</option>
        {RECORDED.runs.map((_, run) =>
          run === number ? null : (
            <option key={run} value={`${run}`}>
              run {run}
            </option>
          ),
        )}
      </select>
    </div>
  );
}

/** A radio button with which the reader chooses a chart, or the tries, as evidence. */
function Point({ at, name }: { at: Evidence; name: string }) {
  return (
    <label class="choice point">
      <input type="radio" name="point" value={at} checked={movedTo('at') === at} onChange={() => move({ at })} />
      <span>
        point at it<span class="unseen">: {name}</span>
      </span>
    </label>
  );
}

interface ChartProps {
  chart: Chart;
  number: number;
  step: number;
  /** Number of the run whose curve is drawn behind the curve of run `number`; -1 = none. */
  behind: number;
  isOpen: boolean;
}

function OneChart({ chart, number, step, behind, isOpen }: ChartProps) {
  const curve = RECORDED.runs[number].curves[chart];
  const value = curve[step];
  const { name, most } = CHARTS[chart];
  const others = behind < 0 ? [] : [RECORDED.runs[behind].curves[chart]];
  const label = `${name}, step 1 ${textOf(curve[1])}, step ${curve.length - 1} ${textOf(curve.at(-1))}`;
  return (
    <div class={`chart ${movedTo('at') === chart ? 'pointed' : ''}`}>
      <p>
        <span class="together">
          <Explained meaning={asTries(metricHint(chart))}>{name}</Explained>:
        </span>{' '}
        <output>{textOf(value)}</output>
      </p>
      <div
        class="svg"
        dangerouslySetInnerHTML={{ __html: runPlot(curve, label, { step, last: STEPS, behind: others, most }) }}
      />
      {isOpen && <Point at={chart} name={name} />}
    </div>
  );
}

const textOf = (value: number | null | undefined): string => (value == null ? 'not measured' : short(value));

function Tries({ tries, step, isOpen }: { tries: LoggedRollout[]; step: number; isOpen: boolean }) {
  const groups = [0, 1].map((group) => tries.filter((one) => one.group === group));
  return (
    <section class={`run-tries ${movedTo('at') === 'tries' ? 'pointed' : ''}`} aria-label={`Tries of step ${step}`}>
      <h4>Tries of step {step}</h4>
      {groups.map((group) => (
        <details key={`${step} ${group[0].group}`} open={group[0].group === 0}>
          <summary>
            {group[0].messages[0].content} (right: {group[0].answer})
          </summary>
          <ol class="one-group">
            {group.map((one, i) => (
              <li key={i} class="run-try">
                <Conversation shown={one} />
                <span class="run-verdict">
                  <span>
                    {one.stopReason === 'max_tokens' ? 'cut at ' : ''}
                    {one.responseTokens} tokens
                  </span>
                  <span>
                    reward <b>{short(one.score ?? NaN)}</b>
                  </span>
                  <span>
                    advantage <b>{signed(one.advantage ?? 0)}</b>
                  </span>
                </span>
              </li>
            ))}
          </ol>
        </details>
      ))}
      {isOpen && <Point at="tries" name="the tries" />}
    </section>
  );
}
